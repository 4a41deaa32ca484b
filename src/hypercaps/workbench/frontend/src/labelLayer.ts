/** The labels on the map. */

import * as api from './api';
import type { AppStore } from './appState';
import { ChunkLayer, type ChunkColours } from './chunkLayer';
import { ChunkLoader, type ChunkId } from './chunkLoader';
import type { Labelling } from './labelling';
import { CHUNK, chunkKey } from './labelRaster';
import { lookupTable } from './palette';
import type { Rect } from './spans';

class LabelColours implements ChunkColours {
  layer: ChunkLayer | null = null;
  table: Uint32Array = new Uint32Array(256);
  readonly loader: ChunkLoader;

  constructor(
    private readonly store: AppStore,
    private readonly labelling: Labelling,
  ) {
    this.loader = new ChunkLoader(
      (chunk, signal) => this.load(chunk, signal),
      () => this.layer?.changed(),
    );
  }

  colour({ level, x, y }: ChunkId, part: Rect, pixels: Uint32Array): boolean {
    const data = this.labelling.raster.get(level, x, y);
    if (!data) return false;
    let i = 0;
    for (let row = part.row0; row < part.row1; row++) {
      for (let at = row * CHUNK + part.col0; at < row * CHUNK + part.col1; at++) pixels[i++] = this.table[data[at]!]!;
    }
    return true;
  }

  inView(chunks: ChunkId[]): void {
    const { raster, queue } = this.labelling;
    raster.dropStale(new Set(chunks.map(({ level, x, y }) => chunkKey(level, x, y))));
    const isStale = ({ level, x, y }: ChunkId): boolean => raster.stale.has(chunkKey(level, x, y)) && queue.waiting === 0;
    this.loader.want(chunks.filter((chunk) => !raster.get(chunk.level, chunk.x, chunk.y) || isStale(chunk)));
  }

  private async load(chunk: ChunkId, signal: AbortSignal): Promise<void> {
    const version = this.labelling.version;
    const data = await api.labelTile(version, chunk.level, chunk.x, chunk.y, signal);
    this.labelling.putChunk(chunk.level, chunk.x, chunk.y, data, version);
    this.layer?.renew(chunk);
    this.store.set({ labelChunks: this.store.get().labelChunks + 1 });
  }
}

export function makeLabelLayer(store: AppStore, labelling: Labelling): ChunkLayer {
  const { scene } = store.get();
  const colours = new LabelColours(store, labelling);
  const layer = new ChunkLayer(scene, scene.levels, colours);
  colours.layer = layer;
  labelling.onPainted = (rect) => {
    layer.repaint(rect);
  };
  labelling.onReload = () => {
    layer.changed();
  };
  let painted = '';
  store.watch(['classes', 'overlay', 'labelOpacity', 'queue'], ({ classes, overlay, labelOpacity, queue }) => {
    layer.setVisible(overlay);
    layer.setOpacity(labelOpacity);
    const now = classes.map(({ id, color, hidden }) => `${id}${color}${hidden}`).join();
    if (now !== painted) {
      painted = now;
      colours.table = lookupTable(classes);
      layer.recolour();
    }
    if (queue.waiting === 0 && labelling.raster.stale.size > 0) layer.changed();
  });
  return layer;
}
