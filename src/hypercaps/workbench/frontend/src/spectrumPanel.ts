/** Spectra: under the cursor, pinned, and of classes; the displayed bands are dragged here. */

import uPlot from 'uplot';
import * as api from './api';
import { attempt, classColor, className, type AppState, type AppStore, type Pixel } from './appState';
import { el, replace } from './dom';
import { bandName, nearestBand, onAxis, shortNumber, spectralAxis, toCsv, type SpectralAxis } from './spectralAxis';
import type { ClassSpectrum } from './types';

const HANDLES = ['Red', 'Green', 'Blue'] as const;
const PIN_COLOURS = ['#e4572e', '#2e86ab', '#8f5fd7', '#3a9d5d', '#c98a00', '#d14d8b'];
const MOST_PINS = PIN_COLOURS.length;

interface Line {
  readonly name: string;
  readonly color: string;
  readonly width: number;
  readonly dash?: number[];
  readonly values: ArrayLike<number | null>;
  readonly spread?: ArrayLike<number | null>; // drawn as a band around the values
}

/** Band numbers of the picture, if it is made of bands. */
export function bandsShown({ bands, scene }: Pick<AppState, 'bands' | 'scene'>): [number, number, number] | null {
  const preset = scene.presets.find(({ id }) => id === bands);
  if (preset) return preset.bands ?? null;
  const parts = bands.split('-').map(Number);
  return parts.length === 3 && parts.every(Number.isInteger) ? (parts as [number, number, number]) : null;
}

export class SpectrumPanel {
  readonly element: HTMLElement;
  private readonly axis: SpectralAxis;
  private readonly plotBox = el('div', { class: 'plot' });
  private readonly chips = el('ul', { class: 'pins', 'aria-label': 'Spectra shown' });
  private readonly told = el('p', { class: 'muted small told' });
  private readonly explanation = el('div', { class: 'explanation' });
  private readonly handles: HTMLElement[];
  private means: Record<string, ClassSpectrum> = {};
  private showsMeans = true;
  private plot: uPlot | null = null;
  private shape = '';
  private isAskingMeans = false;
  private areMeansOld = false;

  constructor(private readonly store: AppStore) {
    const { scene } = store.get();
    this.axis = spectralAxis(scene);
    this.handles = HANDLES.map((name, i) => this.makeHandle(name, i));
    this.element = el('section', { class: 'panel spectrum', 'aria-label': 'Spectrum' }, this.head(), this.plotBox, this.told, this.explanation, this.chips);
    new ResizeObserver(() => {
      this.resize();
    }).observe(this.plotBox);
    store.watch(['spectrum', 'pins', 'selected', 'classes', 'explained'], () => {
      this.draw();
    });
    store.watch(['bands'], () => {
      this.placeHandles();
    });
    store.watch(['labels'], () => void this.askMeans());
    store.watch(['explained'], (state) => {
      this.tellExplanation(state);
    });
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
      this.rebuild();
    });
  }

  /** Draw anew, with the colours of another theme. */
  rebuild(): void {
    this.shape = '';
    this.draw();
  }

  /** Keep the spectrum of the pixel under the cursor, also if its values are still on their way. */
  async pin(): Promise<void> {
    const { cursor, spectrum } = this.store.get();
    const pixel = cursor ?? spectrum?.pixel;
    if (!pixel) return;
    const isHere = spectrum?.pixel.row === pixel.row && spectrum.pixel.col === pixel.col;
    const values = isHere ? spectrum.values : await attempt(this.store, () => api.spectrum(pixel.row, pixel.col));
    if (!values) return;
    const { pins } = this.store.get();
    const number = (pins.at(-1)?.number ?? 0) + 1;
    this.store.set({ pins: [...pins, { pixel, values, number }].slice(-MOST_PINS) });
  }

  private head(): HTMLElement {
    const means = el('input', { type: 'checkbox', checked: true, onchange: () => {
      this.showsMeans = means.checked;
      this.draw();
    } });
    return el('header', {},
      el('h2', {}, 'Spectrum'),
      el('label', { class: 'check' }, means, 'Class means'),
      el('button', { class: 'plain', title: 'Keep the spectrum under the cursor (S)', onclick: () => void this.pin() }, 'Pin'),
      el('button', { class: 'plain', title: 'Save the spectra that are shown as a table', onclick: () => {
        this.save();
      } }, 'CSV'));
  }

  private shownMeans(): { id: number; found: ClassSpectrum }[] {
    if (!this.showsMeans) return [];
    return this.store.get().classes.flatMap(({ id, hidden }) => {
      const found = this.means[String(id)];
      return found && !hidden && found.count > 0 ? [{ id, found }] : [];
    });
  }

  private lines(): Line[] {
    const state = this.store.get();
    const lines: Line[] = [];
    for (const { id, found } of this.shownMeans()) {
      const isChosen = id === state.selected;
      lines.push({ name: className(state, id), color: classColor(state, id), width: isChosen ? 2 : 1, values: found.mean, ...(isChosen ? { spread: found.std } : {}) });
    }
    for (const pin of state.pins) lines.push({ name: pinName(pin.pixel, pin.number), color: pinColor(pin.number), width: 1.5, dash: [5, 3], values: pin.values });
    return lines;
  }

  private draw(): void {
    const { scene, spectrum } = this.store.get();
    const lines = this.lines();
    const cursor = spectrum?.values ?? new Float32Array(scene.bands).fill(Number.NaN);
    const data: uPlot.AlignedData = [
      this.axis.x,
      ...lines.flatMap((line) => this.columns(line, scene.good)),
      onAxis(this.axis, cursor, scene.good),
    ];
    const shape = JSON.stringify(lines.map(({ name, color, width, dash, spread }) => [name, color, width, dash, spread !== undefined]));
    if (shape !== this.shape || !this.plot) this.make(lines, data);
    else this.plot.setData(data);
    this.shape = shape;
    this.listPins();
  }

  private columns({ values, spread }: Line, good: readonly boolean[]): (number | null)[][] {
    const middle = onAxis(this.axis, values, good);
    if (!spread) return [middle];
    const width = onAxis(this.axis, spread, good);
    const shifted = (sign: number): (number | null)[] => middle.map((value, i) => (value === null || width[i] === null ? null : value + sign * width[i]!));
    return [shifted(1), shifted(-1), middle];
  }

  private make(lines: Line[], data: uPlot.AlignedData): void {
    const style = getComputedStyle(document.documentElement);
    const color = (name: string): string => style.getPropertyValue(name).trim();
    const series: uPlot.Series[] = [{}];
    const bands: uPlot.Band[] = [];
    for (const line of lines) {
      if (line.spread) {
        bands.push({ series: [series.length, series.length + 1], fill: `${line.color}38` });
        for (let i = 0; i < 2; i++) series.push({ stroke: 'transparent', width: 0, points: { show: false } });
      }
      series.push({ stroke: line.color, width: line.width, points: { show: false }, ...(line.dash ? { dash: line.dash } : {}) });
    }
    series.push({ stroke: color('--text'), width: 2, points: { show: false } });
    const axisStyle = { stroke: color('--muted'), grid: { stroke: color('--line'), width: 1 }, ticks: { stroke: color('--line'), size: 4 }, font: '11px system-ui, sans-serif' };
    this.plot?.destroy();
    this.plot = new uPlot({
      width: Math.max(200, this.plotBox.clientWidth),
      height: Math.max(120, this.plotBox.clientHeight),
      legend: { show: false },
      scales: { x: { time: false } },
      cursor: { drag: { x: true, y: false }, points: { show: false } },
      padding: [8, 10, 0, 0],
      axes: [{ ...axisStyle, size: 24, gap: 3, values: (_, ticks) => withUnit(ticks, this.axis.unit) }, { ...axisStyle, size: 44, gap: 3, values: (_, ticks) => ticks.map(shortNumber) }],
      series,
      bands,
      hooks: {
        setCursor: [(plot) => {
          this.tell(plot);
        }],
        drawClear: [(plot) => {
          this.drawExplanation(plot);
        }],
        draw: [() => {
          this.placeHandles();
        }],
      },
    }, data, this.plotBox);
    for (const handle of this.handles) this.plot.over.appendChild(handle);
    this.placeHandles();
  }

  private resize(): void {
    if (this.plot) this.plot.setSize({ width: Math.max(200, this.plotBox.clientWidth), height: Math.max(120, this.plotBox.clientHeight) });
  }

  /** The value under the pointer in the plot. */
  private tell(plot: uPlot): void {
    const place = plot.cursor.idx;
    const { scene, spectrum } = this.store.get();
    const band = place === null || place === undefined ? -1 : (this.axis.bands[place] ?? -1);
    const value = band >= 0 ? spectrum?.values?.[band] : undefined;
    const unit = scene.value_unit ? ` ${scene.value_unit}` : '';
    this.told.textContent = band < 0 ? this.title() : `${bandName(scene, band)} (band ${band})${value === undefined ? '' : `: ${shortNumber(value)}${unit}`}`;
  }

  private title(): string {
    const { spectrum } = this.store.get();
    if (!spectrum) return 'Move over the scene to see spectra; drag R, G and B to choose the bands shown.';
    return spectrum.values ? `Row ${spectrum.pixel.row}, column ${spectrum.pixel.col}` : `Row ${spectrum.pixel.row}, column ${spectrum.pixel.col}: no data`;
  }

  private listPins(): void {
    const { pins } = this.store.get();
    if (!this.plot || this.plot.cursor.left === undefined || this.plot.cursor.left < 0) this.told.textContent = this.title();
    replace(this.chips, ...pins.map((pin) => {
      const swatch = el('span', { class: 'swatch' });
      swatch.style.background = pinColor(pin.number);
      return el('li', {}, swatch, pinName(pin.pixel, pin.number), el('button', { class: 'plain', 'aria-label': `Remove ${pinName(pin.pixel, pin.number)}`, onclick: () => {
        this.store.set({ pins: this.store.get().pins.filter((one) => one !== pin) });
      } }, '×'));
    }));
  }

  private save(): void {
    const state = this.store.get();
    const means = this.shownMeans().flatMap(({ id, found: { mean, std } }) => [
      { name: `${className(state, id)} mean`, values: mean },
      { name: `${className(state, id)} standard deviation`, values: std },
    ]);
    const pins = state.pins.map((pin) => ({ name: `row ${pin.pixel.row} column ${pin.pixel.col}`, values: pin.values }));
    const isPinned = state.pins.some(({ pixel }) => pixel.row === state.spectrum?.pixel.row && pixel.col === state.spectrum.pixel.col);
    const under = state.spectrum?.values && !isPinned ? [{ name: `row ${state.spectrum.pixel.row} column ${state.spectrum.pixel.col}`, values: state.spectrum.values }] : [];
    const address = URL.createObjectURL(new Blob([toCsv(state.scene, [...under, ...pins, ...means])], { type: 'text/csv' }));
    el('a', { href: address, download: `${state.scene.name}-spectra.csv` }).click();
    setTimeout(() => {
      URL.revokeObjectURL(address);
    }, 10_000);
  }

  private async askMeans(): Promise<void> {
    this.areMeansOld = true;
    if (this.isAskingMeans) return; // one request at a time: answers could overtake each other
    this.isAskingMeans = true;
    while (this.areMeansOld) {
      await new Promise((done) => setTimeout(done, 600)); // while somebody paints, once in a while is enough
      this.areMeansOld = false;
      try {
        this.means = await api.classSpectra();
        this.draw();
      } catch {
        // asked again with the next change
      }
    }
    this.isAskingMeans = false;
  }

  // ---- bands of the picture ----------------------------------------------------------------------------------------

  private makeHandle(name: string, channel: number): HTMLElement {
    const handle = el('div', { class: `band-handle ${name.toLowerCase()}`, role: 'slider', tabindex: 0, 'aria-label': `${name} band`, 'aria-valuemin': 0, 'aria-valuemax': this.store.get().scene.bands - 1, 'aria-valuenow': 0 }, el('span', {}, name[0]));
    handle.addEventListener('pointerdown', (event) => {
      event.stopPropagation();
      event.preventDefault();
      handle.focus();
      handle.setPointerCapture(event.pointerId);
    });
    handle.addEventListener('mousedown', (event) => {
      event.stopPropagation(); // uPlot would begin a selection
    });
    handle.addEventListener('pointermove', (event) => {
      if (!handle.hasPointerCapture(event.pointerId) || !this.plot) return;
      const x = this.plot.posToVal(event.clientX - this.plot.over.getBoundingClientRect().left, 'x');
      this.choose(channel, nearestBand(this.axis, x));
    });
    handle.addEventListener('keydown', (event) => {
      const bands = bandsShown(this.store.get());
      const step = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1, PageDown: -10, PageUp: 10 }[event.key];
      if (step === undefined || !bands) return;
      event.preventDefault();
      this.choose(channel, Math.max(0, Math.min(this.store.get().scene.bands - 1, bands[channel]! + step)));
    });
    return handle;
  }

  private choose(channel: number, band: number): void {
    const bands = bandsShown(this.store.get());
    if (!bands || bands[channel] === band) return;
    const chosen = [...bands];
    chosen[channel] = band;
    this.store.set({ bands: chosen.join('-') });
  }

  private placeHandles(): void {
    const state = this.store.get();
    const bands = bandsShown(state);
    this.handles.forEach((handle, i) => {
      handle.hidden = bands === null;
      if (!bands || !this.plot) return;
      const place = this.axis.bands.indexOf(bands[i]!);
      handle.style.left = `${this.plot.valToPos(this.axis.x[place]!, 'x')}px`;
      handle.setAttribute('aria-valuenow', String(bands[i]!));
      handle.setAttribute('aria-valuetext', bandName(state.scene, bands[i]!));
    });
  }

  // ---- explanation -------------------------------------------------------------------------------------------------

  /** Bars from the middle of the plot: bands that spoke for the class upwards, against it downwards. */
  private drawExplanation(plot: uPlot): void {
    const { explained } = this.store.get();
    if (!explained) return;
    const values = onAxis(this.axis, explained.result.bands, []);
    const largest = Math.max(...values.map((value) => Math.abs(value ?? 0)));
    if (largest === 0) return;
    const { left, top, width, height } = plot.bbox;
    const bar = Math.max(1, (width / this.axis.x.length) * 0.9);
    plot.ctx.save();
    plot.ctx.beginPath();
    plot.ctx.rect(left, top, width, height);
    plot.ctx.clip();
    values.forEach((value, i) => {
      if (value === null) return;
      const tall = (value / largest) * (height / 2) * 0.95;
      plot.ctx.fillStyle = value > 0 ? 'rgba(22, 160, 133, 0.42)' : 'rgba(214, 106, 40, 0.42)';
      plot.ctx.fillRect(plot.valToPos(this.axis.x[i]!, 'x', true) - bar / 2, top + height / 2 - Math.max(0, tall), bar, Math.abs(tall));
    });
    plot.ctx.restore();
  }

  private tellExplanation(state: Readonly<AppState>): void {
    const { explained } = state;
    this.explanation.hidden = explained === null;
    if (!explained) return;
    const { result, pixel } = explained;
    const strongest = [...result.bands.keys()].filter((band) => (result.bands[band] ?? 0) > 0).sort((a, b) => result.bands[b]! - result.bands[a]!).slice(0, 3);
    replace(this.explanation,
      el('p', {}, el('strong', {}, `${className(state, result.class)}, ${Math.round(result.confidence * 100)} %`), ` at row ${pixel.row}, column ${pixel.col}. `,
        strongest.length > 0 ? `Bars upwards are bands that spoke for it, most of all ${strongest.map((band) => bandName(state.scene, band)).join(', ')}; downwards, against it.` : 'No band spoke for it.'),
      el('button', { class: 'plain', 'aria-label': 'Close the explanation', onclick: () => {
        this.store.set({ explained: null });
      } }, '×'));
  }
}

/** Numbers of the axis, the last one with its unit. */
function withUnit(ticks: readonly number[], unit: string): string[] {
  return ticks.map((tick, i) => (i === ticks.length - 1 ? `${shortNumber(tick)} ${unit}`.trim() : shortNumber(tick)));
}

function pinName(pixel: Pixel, number: number): string {
  return `${number}: row ${pixel.row}, col ${pixel.col}`;
}

function pinColor(number: number): string {
  return PIN_COLOURS[(number - 1) % PIN_COLOURS.length]!;
}
