/** Pixels as spans: brush disks, lines and filled outlines. Rows count downwards, columns to the right, from 0. */

/** Row, first column, one past the last column. */
export type Span = [row: number, first: number, end: number];

/** A position in pixels of the scene: `col` 3.5 is the middle of column 3. */
export interface Position {
  readonly row: number;
  readonly col: number;
}

export interface Size {
  readonly rows: number;
  readonly cols: number;
}

/** Rows and columns from the first to one past the last. */
export interface Rect {
  row0: number;
  row1: number;
  col0: number;
  col1: number;
}

/** A set of pixels of a scene that grows span by span; overlapping spans are joined. */
export class SpanSet {
  private readonly rows = new Map<number, [number, number][]>();

  constructor(private readonly size: Size) {}

  add(row: number, first: number, end: number): void {
    const from = Math.max(0, first);
    const to = Math.min(this.size.cols, end);
    if (row < 0 || row >= this.size.rows || from >= to) return;
    const old = this.rows.get(row) ?? [];
    const joined: [number, number] = [from, to];
    const others: [number, number][] = [];
    for (const part of old) {
      if (part[1] < joined[0] || part[0] > joined[1]) others.push(part);
      else {
        joined[0] = Math.min(joined[0], part[0]);
        joined[1] = Math.max(joined[1], part[1]);
      }
    }
    others.push(joined);
    this.rows.set(row, others);
  }

  addAll(spans: Iterable<Readonly<Span>>): void {
    for (const [row, first, end] of spans) this.add(row, first, end);
  }

  /** The spans by row, then by column. */
  toSpans(): Span[] {
    const spans: Span[] = [];
    for (const row of [...this.rows.keys()].sort((a, b) => a - b)) {
      const parts = this.rows.get(row)!.sort((a, b) => a[0] - b[0]);
      for (const [first, end] of parts) spans.push([row, first, end]);
    }
    return spans;
  }
}

export function pixelOf(position: Position): Position {
  return { row: Math.floor(position.row), col: Math.floor(position.col) };
}

export function countPixels(spans: Iterable<Readonly<Span>>): number {
  let count = 0;
  for (const [, first, end] of spans) count += end - first;
  return count;
}

/** The smallest rectangle around spans, or null if there are none. */
export function boundsOf(spans: Iterable<Readonly<Span>>): Rect | null {
  let rect: Rect | null = null;
  for (const [row, first, end] of spans) {
    rect ??= { row0: row, row1: row + 1, col0: first, col1: end };
    rect.row0 = Math.min(rect.row0, row);
    rect.row1 = Math.max(rect.row1, row + 1);
    rect.col0 = Math.min(rect.col0, first);
    rect.col1 = Math.max(rect.col1, end);
  }
  return rect;
}

/** Half-widths of a disk of `size` pixels across, one for each of its rows from the top. */
function halfWidths(size: number): number[] {
  const radius = size / 2;
  return Array.from({ length: size }, (_, i) => {
    const distance = i + 0.5 - radius;
    return Math.sqrt(radius * radius - distance * distance);
  });
}

/** A brush of `size` pixels across: around the pixel at `position`, or, for even sizes, around its nearest corner. */
export function disk(position: Position, size: number): Span[] {
  const middle = size % 2 === 1 ? Math.floor(position.col) + 0.5 : Math.round(position.col);
  const top = (size % 2 === 1 ? Math.floor(position.row) + 0.5 : Math.round(position.row)) - size / 2;
  return halfWidths(size).map((half, i): Span => {
    const first = Math.ceil(middle - half - 0.5);
    return [top + i, first, Math.max(first + 1, Math.floor(middle + half - 0.5) + 1)];
  });
}

/** Pixels of a line from one position to another, both ends included (Bresenham). */
export function linePixels(from: Position, to: Position): Position[] {
  let { row, col } = pixelOf(from);
  const end = pixelOf(to);
  const down = Math.abs(end.row - row);
  const right = Math.abs(end.col - col);
  const stepRow = Math.sign(end.row - row);
  const stepCol = Math.sign(end.col - col);
  const pixels: Position[] = [{ row, col }];
  let error = right - down;
  while (row !== end.row || col !== end.col) {
    const doubled = 2 * error;
    if (doubled > -down) {
      error -= down;
      col += stepCol;
    }
    if (doubled < right) {
      error += right;
      row += stepRow;
    }
    pixels.push({ row, col });
  }
  return pixels;
}

/** A line that a brush of `size` pixels draws. */
export function brushLine(from: Position, to: Position, size: number, scene: Size): Span[] {
  const set = new SpanSet(scene);
  if (size % 2 === 1) {
    for (const pixel of linePixels(from, to)) set.addAll(disk(pixel, size));
    return set.toSpans();
  }
  const steps = Math.max(1, Math.ceil(Math.max(Math.abs(to.row - from.row), Math.abs(to.col - from.col))));
  for (let i = 0; i <= steps; i++) {
    const share = i / steps;
    set.addAll(disk({ row: from.row + share * (to.row - from.row), col: from.col + share * (to.col - from.col) }, size));
  }
  return set.toSpans();
}

/** Columns at which the outline crosses the middle of a row. */
function crossings(outline: readonly Position[], middle: number): number[] {
  const columns: number[] = [];
  outline.forEach((a, i) => {
    const b = outline[(i + 1) % outline.length]!;
    if (a.row <= middle !== b.row <= middle) {
      columns.push(a.col + ((middle - a.row) / (b.row - a.row)) * (b.col - a.col));
    }
  });
  return columns.sort((x, y) => x - y);
}

/** Pixels whose middle lies inside an outline (even-odd rule). */
export function fillOutline(outline: readonly Position[], scene: Size): Span[] {
  const set = new SpanSet(scene);
  if (outline.length < 3) return [];
  const rows = outline.map((point) => point.row);
  const last = Math.min(scene.rows - 1, Math.floor(Math.max(...rows)));
  for (let row = Math.max(0, Math.floor(Math.min(...rows))); row <= last; row++) {
    const columns = crossings(outline, row + 0.5);
    for (let i = 0; i + 1 < columns.length; i += 2) {
      set.add(row, Math.ceil(columns[i]! - 0.5), Math.ceil(columns[i + 1]! - 0.5));
    }
  }
  return set.toSpans();
}

/** A contour drawn by hand: what it encloses, and the pixels it was drawn over. */
export function fillContour(contour: readonly Position[], scene: Size): Span[] {
  const set = new SpanSet(scene);
  set.addAll(fillOutline(contour, scene));
  contour.forEach((point, i) => {
    for (const { row, col } of linePixels(contour[Math.max(0, i - 1)]!, point)) set.add(row, col, col + 1);
  });
  return set.toSpans();
}

/** A line between two corners of pixels. */
export interface Edge {
  readonly row0: number;
  readonly col0: number;
  readonly row1: number;
  readonly col1: number;
}

/** Columns where either of two rows has a pixel, but not both. */
function difference(above: readonly number[], below: readonly number[]): number[] {
  const ends = [...above, ...below].sort((a, b) => a - b);
  const left: number[] = [];
  for (const end of ends) {
    if (left.at(-1) === end) left.pop();
    else left.push(end);
  }
  return left;
}

/** The edges around spans that do not overlap. */
export function outlineOf(spans: readonly Readonly<Span>[]): Edge[] {
  const ends = new Map<number, number[]>();
  const edges: Edge[] = [];
  for (const [row, first, end] of spans) {
    ends.set(row, [...(ends.get(row) ?? []), first, end]);
    for (const col of [first, end]) edges.push({ row0: row, col0: col, row1: row + 1, col1: col });
  }
  const rows = new Set([...ends.keys()].flatMap((row) => [row, row + 1]));
  for (const row of rows) {
    const columns = difference(ends.get(row - 1) ?? [], ends.get(row) ?? []);
    for (let i = 0; i + 1 < columns.length; i += 2) edges.push({ row0: row, col0: columns[i]!, row1: row, col1: columns[i + 1]! });
  }
  return edges;
}
