/** Class maps: tiles of class, confidence and familiarity, coloured here, so that sliders need no request. */

import * as api from './api';
import { ChunkLayer, type ChunkColours } from './chunkLayer';
import { ChunkLoader, type ChunkId } from './chunkLoader';
import { CHUNK, chunkKey } from './labelRaster';
import { mapPixel, type MapStyle } from './palette';
import type { Rect } from './spans';
import type { MapInfo, Scene } from './types';

interface Tile {
  readonly data: Uint8Array;
  isOld: boolean; // the server has a newer one
}

export interface MapValue {
  readonly id: number;
  readonly confidence: number;
  readonly familiarity: number;
  readonly isOld: boolean;
}

const MOST_TILES = 500; // 192 kB each; a large screen shows some 270 of two maps

/** One map on the page, with the older map where the new one has no pieces yet. */
export class ClassMap implements ChunkColours {
  readonly layer: ChunkLayer;
  private readonly tiles = new Map<string, Tile>();
  private readonly loader: ChunkLoader;
  private front: MapInfo | null = null;
  private back: MapInfo | null = null;
  private style: MapStyle | null = null;

  constructor(scene: Scene) {
    this.layer = new ChunkLayer(scene, scene.levels, this);
    this.levels = scene.levels;
    this.loader = new ChunkLoader(
      (chunk, signal) => this.load(chunk, signal),
      () => { this.layer.changed(); },
    );
  }

  private readonly levels: number;

  get isIdle(): boolean {
    return this.loader.isIdle;
  }

  setStyle(style: MapStyle): void {
    this.style = style;
    this.layer.recolour();
  }

  /** Show a map, and below it an older one. */
  show(front: MapInfo | null, back: MapInfo | null): void {
    const isSame = front?.id === this.front?.id && back?.id === this.back?.id;
    const isNewer = isSame && front !== null && front.revision > this.front!.revision;
    this.front = front;
    this.back = back;
    if (isNewer) return; // the windows that are new are told by `renew`
    if (!isSame) this.forgetOthers();
    this.layer.recolour();
  }

  /** Windows of the map (rows, then columns) are new. */
  renew(windows: readonly (readonly [number, number, number, number])[]): void {
    if (!this.front) return;
    for (const [key, tile] of this.tiles) {
      const [id, level, x, y] = key.split('/') as [string, string, string, string];
      const span = CHUNK * 2 ** Number(level);
      const [row, col] = [Number(y) * span, Number(x) * span];
      const isTouched = windows.some(([row0, row1, col0, col1]) => row0 < row + span && row < row1 && col0 < col + span && col < col1);
      if (id === this.front.id && isTouched) tile.isOld = true;
    }
    this.layer.changed();
  }

  /** What the map says of a pixel, from the finest tile that is here. */
  valueAt(row: number, col: number): MapValue | null {
    return this.valueOf(this.front, row, col, false) ?? this.valueOf(this.back, row, col, true);
  }

  colour(chunk: ChunkId, part: Rect, pixels: Uint32Array): boolean {
    const front = this.front && this.tiles.get(tileKey(this.front, chunk))?.data;
    const back = this.back && this.tiles.get(tileKey(this.back, chunk))?.data;
    const { style } = this;
    if (!style || (!front && !back)) return false;
    let i = 0;
    for (let row = part.row0; row < part.row1; row++) {
      for (let at = 3 * (row * CHUNK + part.col0); at < 3 * (row * CHUNK + part.col1); at += 3) {
        if (front && front[at] !== 0) pixels[i] = mapPixel(front, at, style, style.table);
        else if (back && back[at] !== 0) pixels[i] = mapPixel(back, at, style, style.oldTable);
        i++;
      }
    }
    return true;
  }

  inView(chunks: ChunkId[]): void {
    this.loader.want(chunks.filter((chunk) => this.missing(chunk).length > 0));
  }

  private missing(chunk: ChunkId): MapInfo[] {
    return [this.front, this.back].filter((map): map is MapInfo => {
      const tile = map && this.tiles.get(tileKey(map, chunk));
      return map !== null && (!tile || tile.isOld);
    });
  }

  private async load(chunk: ChunkId, signal: AbortSignal): Promise<void> {
    for (const map of this.missing(chunk)) {
      const data = await api.mapTile(map, chunk.level, chunk.x, chunk.y, signal);
      const newest = this.front?.id === map.id ? this.front.revision : map.revision;
      this.tiles.set(tileKey(map, chunk), { data, isOld: newest > map.revision });
    }
    for (const key of this.tiles.keys()) {
      if (this.tiles.size <= MOST_TILES) break;
      this.tiles.delete(key); // the oldest first
    }
    this.layer.renew(chunk);
  }

  private valueOf(map: MapInfo | null, row: number, col: number, isOld: boolean): MapValue | null {
    for (let level = 0; map && level < this.levels; level++) {
      const [y, x] = [row >> level, col >> level];
      const tile = this.tiles.get(tileKey(map, { level, x: Math.floor(x / CHUNK), y: Math.floor(y / CHUNK) }));
      if (!tile) continue;
      const at = 3 * ((y % CHUNK) * CHUNK + (x % CHUNK));
      const [id, confidence, familiarity] = [tile.data[at]!, tile.data[at + 1]!, tile.data[at + 2]!];
      return id === 0 ? null : { id, confidence: confidence / 255, familiarity: familiarity / 255, isOld };
    }
    return null;
  }

  private forgetOthers(): void {
    const kept = [this.front?.id, this.back?.id];
    for (const key of this.tiles.keys()) if (!kept.includes(key.slice(0, key.indexOf('/')))) this.tiles.delete(key);
    if (!this.front && !this.back) this.layer.clear();
  }
}

function tileKey(map: MapInfo, { level, x, y }: ChunkId): string {
  return `${map.id}/${chunkKey(level, x, y)}`;
}
