/** The x axis of spectra: bands by rising wavelength, with a break where bands are bad or missing. */

import type { Scene } from './types';

export interface SpectralAxis {
  readonly x: number[]; // rising
  readonly bands: number[]; // band at each place; -1 is a break
  readonly unit: string;
}

export function spectralAxis(scene: Pick<Scene, 'bands' | 'wavelengths' | 'wavelength_unit' | 'gaps'>): SpectralAxis {
  const waves = scene.wavelengths ?? Array.from({ length: scene.bands }, (_, band) => band);
  const order = Array.from({ length: scene.bands }, (_, band) => band).sort((a, b) => waves[a]! - waves[b]!);
  const breaks = new Set(scene.gaps ?? []);
  const x: number[] = [];
  const bands: number[] = [];
  order.forEach((band, i) => {
    x.push(waves[band]!);
    bands.push(band);
    const next = order[i + 1];
    if (next !== undefined && breaks.has(band)) {
      x.push((waves[band]! + waves[next]!) / 2);
      bands.push(-1);
    }
  });
  return { x, bands, unit: scene.wavelengths ? (scene.wavelength_unit ?? '') : 'band' };
}

/** Values at each place of the axis; null breaks the line. */
export function onAxis(axis: SpectralAxis, values: ArrayLike<number | null>, good: readonly boolean[]): (number | null)[] {
  return axis.bands.map((band) => {
    const value = band < 0 || good[band] === false ? null : values[band];
    return value === null || value === undefined || !Number.isFinite(value) ? null : value;
  });
}

/** The place of the axis that is nearest to x, breaks left out. */
export function nearestBand(axis: SpectralAxis, x: number): number {
  let best = 0;
  let least = Infinity;
  axis.bands.forEach((band, i) => {
    const distance = Math.abs(axis.x[i]! - x);
    if (band >= 0 && distance < least) {
      best = band;
      least = distance;
    }
  });
  return best;
}

/** Name of a band, as read-outs show it. */
export function bandName(scene: Pick<Scene, 'wavelengths' | 'wavelength_unit'>, band: number): string {
  const wave = scene.wavelengths?.[band];
  if (wave === undefined) return `band ${band}`;
  return `${wave >= 100 ? Math.round(wave) : Number(wave.toPrecision(4))} ${scene.wavelength_unit ?? ''}`.trim();
}

/** Four significant digits, without an exponent where it can be. */
export function shortNumber(value: number): string {
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-4 || size >= 1e7) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

/** A table for other programs: one row for each band, one column for each spectrum. */
export function toCsv(scene: Scene, spectra: readonly { name: string; values: ArrayLike<number | null> }[]): string {
  const quoted = (text: string): string => {
    const safe = /^[=+\-@\t]/.test(text) ? `'${text}` : text; // spreadsheets would take it for a formula
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const head = ['band', ...(scene.wavelengths ? [`wavelength_${scene.wavelength_unit ?? 'unknown'}`] : []), ...spectra.map(({ name }) => name)];
  const rows = Array.from({ length: scene.bands }, (_, band) => [
    String(band),
    ...(scene.wavelengths ? [String(scene.wavelengths[band])] : []),
    ...spectra.map(({ values }) => {
      const value = values[band];
      return value === null || value === undefined || !Number.isFinite(value) ? '' : String(Number(value.toPrecision(7)));
    }),
  ]);
  return [head.map(quoted), ...rows].map((row) => row.join(',')).join('\r\n') + '\r\n';
}
