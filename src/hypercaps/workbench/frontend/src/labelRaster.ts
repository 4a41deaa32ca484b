/** The labels as far as the page has seen them: chunks of 256 x 256 class numbers at each level, painted here before the server answers. */

import { boundsOf, type Rect, type Size, type Span } from './spans';

export const CHUNK = 256;

/** Spans by class number: what a change puts where. */
export type Change = Map<number, Span[]>;

export interface Painted {
  /** What was there before, of the pixels that changed. */
  before: Change;
  touched: Rect | null;
}

export function chunkKey(level: number, x: number, y: number): string {
  return `${level}/${x}/${y}`;
}

export function changeOf(spans: Record<string, Span[]>): Change {
  return new Map(Object.entries(spans).map(([id, parts]) => [Number(id), parts]));
}

/** Bounds of all spans of a change. */
export function changeBounds(change: Change): Rect | null {
  return boundsOf([...change.values()].flat());
}

export class LabelRaster {
  private readonly chunks = new Map<string, Uint8Array>();
  /** Coarse chunks whose value after erasing only the server knows. */
  readonly stale = new Set<string>();

  constructor(
    readonly size: Size,
    readonly levels: number,
  ) {}

  get(level: number, x: number, y: number): Uint8Array | undefined {
    return this.chunks.get(chunkKey(level, x, y));
  }

  put(level: number, x: number, y: number, data: Uint8Array): void {
    this.chunks.set(chunkKey(level, x, y), data);
    this.stale.delete(chunkKey(level, x, y));
  }

  /** Forget what is stale and not among the chunks that are shown: it is asked for when it is seen again. */
  dropStale(shown: ReadonlySet<string>): void {
    for (const key of this.stale) {
      if (shown.has(key)) continue;
      this.chunks.delete(key);
      this.stale.delete(key);
    }
  }

  keys(): IterableIterator<string> {
    return this.chunks.keys();
  }

  /** Class of a pixel; null if its chunk has not been loaded. */
  valueAt(row: number, col: number): number | null {
    const chunk = this.get(0, Math.floor(col / CHUNK), Math.floor(row / CHUNK));
    return chunk ? chunk[(row % CHUNK) * CHUNK + (col % CHUNK)]! : null;
  }

  /** Give pixels a class; pixels of locked classes keep theirs. */
  paint(spans: readonly Readonly<Span>[], value: number, locked: ReadonlySet<number> = new Set()): Painted {
    const before: Change = new Map();
    for (const [row, first, end] of spans) {
      for (let col = first; col < end; ) {
        const next = Math.min(end, (Math.floor(col / CHUNK) + 1) * CHUNK);
        this.paintFine(row, col, next, value, locked, before);
        col = next;
      }
      for (let level = 1; level < this.levels; level++) this.paintCoarse(level, row, first, end, value);
    }
    return { before, touched: boundsOf(spans) };
  }

  /** Apply a change as it is, whatever is locked. */
  apply(change: Change): Painted {
    const before: Change = new Map();
    for (const [value, spans] of change) {
      for (const [old, parts] of this.paint(spans, value).before) before.set(old, [...(before.get(old) ?? []), ...parts]);
    }
    return { before, touched: changeBounds(change) };
  }

  private paintFine(row: number, from: number, to: number, value: number, locked: ReadonlySet<number>, before: Change): void {
    const chunk = this.get(0, Math.floor(from / CHUNK), Math.floor(row / CHUNK));
    if (!chunk) return;
    const start = (row % CHUNK) * CHUNK;
    for (let col = from; col < to; col++) {
      const old = chunk[start + (col % CHUNK)]!;
      if (old === value || locked.has(old)) continue;
      chunk[start + (col % CHUNK)] = value;
      const spans = before.get(old);
      const last = spans?.at(-1);
      if (last?.[0] === row && last[2] === col) last[2] = col + 1;
      else if (spans) spans.push([row, col, col + 1]);
      else before.set(old, [[row, col, col + 1]]);
    }
  }

  /** A labelled pixel wins over unlabelled ones; what is left after erasing has to be asked for again. */
  private paintCoarse(level: number, row: number, first: number, end: number, value: number): void {
    const y = row >> level;
    for (let x = first >> level; x <= (end - 1) >> level; x++) {
      const chunk = this.get(level, Math.floor(x / CHUNK), Math.floor(y / CHUNK));
      if (!chunk) continue;
      if (value === 0) this.stale.add(chunkKey(level, Math.floor(x / CHUNK), Math.floor(y / CHUNK)));
      else chunk[(y % CHUNK) * CHUNK + (x % CHUNK)] = value;
    }
  }
}
