/** From pixels of the scene to coordinates of the page's map (x = column, y = -row) and of the scene's own grid. */

import type { Position, Rect, Size } from './spans';

/** Affine matrix of a georeferenced grid: x = a col + b row + c, y = d col + e row + f. */
export type Affine = readonly [a: number, b: number, c: number, d: number, e: number, f: number];

export function toMap(position: Position): [number, number] {
  return [position.col, -position.row];
}

export function toPosition(coordinate: readonly number[]): Position {
  return { row: -coordinate[1]!, col: coordinate[0]! };
}

export function sceneExtent(size: Size): [number, number, number, number] {
  return [0, -size.rows, size.cols, 0];
}

export function isInside(position: Position, size: Size): boolean {
  return position.row >= 0 && position.col >= 0 && position.row < size.rows && position.col < size.cols;
}

/** Coordinates of a position in the scene's reference system. */
export function toGround(position: Position, matrix: Affine): [x: number, y: number] {
  const [a, b, c, d, e, f] = matrix;
  return [a * position.col + b * position.row + c, d * position.col + e * position.row + f];
}

/** Decimals that tell neighbouring pixels apart: degrees need more than metres. */
export function groundDecimals(matrix: Affine): number {
  const step = Math.min(Math.hypot(matrix[0], matrix[3]), Math.hypot(matrix[1], matrix[4]));
  return step > 0 && Number.isFinite(step) ? Math.min(8, Math.max(0, 1 - Math.floor(Math.log10(step)))) : 2;
}

/** The pixels that a map extent shows, cut to the scene; null if none. */
export function visibleRect(extent: readonly number[], size: Size): Rect | null {
  const rect = {
    row0: Math.max(0, Math.floor(-extent[3]!)),
    row1: Math.min(size.rows, Math.ceil(-extent[1]!)),
    col0: Math.max(0, Math.floor(extent[0]!)),
    col1: Math.min(size.cols, Math.ceil(extent[2]!)),
  };
  return rect.row0 < rect.row1 && rect.col0 < rect.col1 ? rect : null;
}

/** The level of which one pixel is at most as large as a pixel of the screen (level k: 2^k scene pixels). */
export function levelFor(resolution: number, levels: number): number {
  return Math.max(0, Math.min(levels - 1, Math.floor(Math.log2(resolution) + 1e-6)));
}

/** Resolutions of a pyramid, coarsest first, as tile grids want them. */
export function resolutions(levels: number): number[] {
  return Array.from({ length: levels }, (_, i) => 2 ** (levels - 1 - i));
}

/** Of the two resolutions beside a view's: positive if the higher, coarser one is nearer, by their ratios. */
export function coarserIsNearer(resolution: number, higher: number, lower: number): number {
  return resolution * resolution - higher * lower;
}

/** A short name of a reference system that may be given as well-known text: its code, or else its name. */
export function referenceName(system: string): string {
  const code = /(?:AUTHORITY|ID)\["EPSG",\s*"?(\d+)"?\]\s*\]$/.exec(system)?.[1];
  return code ? `EPSG:${code}` : (/^\w+\["([^"]*)"/.exec(system)?.[1] ?? system);
}
