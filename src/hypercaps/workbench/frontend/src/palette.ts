/** Colours of classes, and the tables that turn class numbers into pixels. */

export interface Paint {
  readonly id: number;
  readonly color: string;
  readonly hidden: boolean;
}

export type Rgb = readonly [red: number, green: number, blue: number];

export function parseColor(color: string): Rgb {
  const value = /^#[0-9a-f]{6}$/i.test(color) ? Number.parseInt(color.slice(1), 16) : 0x808080;
  return [value >> 16, (value >> 8) & 255, value & 255];
}

/** A colour as one 32-bit pixel of a canvas (little-endian: alpha, blue, green, red). */
export function toPixel([red, green, blue]: Rgb, alpha: number): number {
  return ((alpha << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/** Pixel of each class number, transparent for 0, hidden and unknown classes. */
export function lookupTable(classes: readonly Paint[], alpha = 255): Uint32Array {
  const table = new Uint32Array(256);
  for (const { id, color, hidden } of classes) if (!hidden) table[id] = toPixel(parseColor(color), alpha);
  return table;
}

function linear(channel: number): number {
  const share = channel / 255;
  return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
}

/** Relative luminance (WCAG 2). */
export function luminance(color: string): number {
  const [red, green, blue] = parseColor(color);
  return 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
}

/** Black or white, whichever reads better on a colour. */
export function textOn(color: string): '#000000' | '#ffffff' {
  const light = luminance(color);
  return (light + 0.05) / 0.05 >= 1.05 / (light + 0.05) ? '#000000' : '#ffffff';
}

/** Anchors of a ramp that reads alike for all kinds of colour vision, from low to high. */
const RAMP: readonly Rgb[] = [[0, 32, 81], [60, 77, 110], [127, 124, 117], [187, 175, 113], [253, 234, 69]];

/** Pixel of each value from 0 to 255: dark blue over grey to yellow. */
export function ramp(): Uint32Array {
  return Uint32Array.from({ length: 256 }, (_, value) => {
    const place = (value / 255) * (RAMP.length - 1);
    const low = RAMP[Math.floor(place)]!;
    const high = RAMP[Math.ceil(place)]!;
    const mixed = low.map((channel, i) => Math.round(channel + (place % 1) * (high[i]! - channel)));
    return toPixel(mixed as unknown as Rgb, 255);
  });
}

/** The look of an old map: halfway to grey, and fainter. */
export function faded(classes: readonly Paint[]): Uint32Array {
  const table = new Uint32Array(256);
  for (const { id, color, hidden } of classes) {
    const mixed = parseColor(color).map((channel) => Math.round((channel + 140) / 2));
    if (!hidden) table[id] = toPixel(mixed as unknown as Rgb, 150);
  }
  return table;
}

/** How a map is coloured; confidence and familiarity below the limits (0 to 255) are left transparent. */
export interface MapStyle {
  readonly table: Uint32Array;
  readonly oldTable: Uint32Array;
  readonly minConfidence: number;
  readonly minFamiliarity: number;
  readonly shown: 'classes' | 'confidence' | 'familiarity';
}

const RAMP_PIXELS = ramp();

/** Pixel of one place of a map. */
export function mapPixel(data: Uint8Array, at: number, style: MapStyle, table: Uint32Array): number {
  const confidence = data[at + 1]!;
  const familiarity = data[at + 2]!;
  if (confidence < style.minConfidence || familiarity < style.minFamiliarity) return 0;
  if (style.shown === 'classes') return table[data[at]!]!;
  return RAMP_PIXELS[style.shown === 'confidence' ? confidence : familiarity]!;
}
