/** A layer of coloured chunks on a canvas of its own, so that a stroke repaints only the rectangle it touched. */

import type { FrameState } from 'ol/Map';
import Layer from 'ol/layer/Layer';
import type { ChunkId } from './chunkLoader';
import { frameOf, overlap, shown, type Frame } from './frame';
import { CHUNK, chunkKey } from './labelRaster';
import { levelFor, sceneExtent } from './projection';
import type { Rect, Size } from './spans';

export interface ChunkColours {
  /** Write the pixels of a part of a chunk, row by row; false if the chunk is not there. */
  colour(chunk: ChunkId, part: Rect, pixels: Uint32Array): boolean;
  /** Called after each frame with the chunks in view, the middle first. */
  inView(chunks: ChunkId[]): void;
}

/** Shows only what lies on one side of a line, at this share of the width. */
export interface Clip {
  readonly side: 'left' | 'right';
  readonly share: number;
}

const MOST_IMAGES = 300; // 256 kB each
const WHOLE: Rect = { row0: 0, row1: CHUNK, col0: 0, col1: CHUNK };

export class ChunkLayer extends Layer {
  private readonly canvas = document.createElement('canvas');
  private readonly images = new Map<string, HTMLCanvasElement>();
  private readonly dirty = new Set<string>();
  private frame: Frame | null = null;
  private level = 0;
  private clip: Clip | null = null;

  constructor(
    private readonly size: Size,
    private readonly levels: number,
    private readonly colours: ChunkColours,
  ) {
    super({ extent: sceneExtent(size) });
    this.canvas.className = 'chunk-layer';
  }

  setClip(clip: Clip | null): void {
    this.clip = clip;
    this.changed();
  }

  /** Colour everything anew, for example with other colours. */
  recolour(): void {
    for (const key of this.images.keys()) this.dirty.add(key);
    this.changed();
  }

  /** A chunk has new data. */
  renew({ level, x, y }: ChunkId): void {
    this.dirty.add(chunkKey(level, x, y));
    this.changed();
  }

  /** Forget all chunks. */
  clear(): void {
    this.images.clear();
    this.dirty.clear();
    this.changed();
  }

  /** Pixels of the scene have changed: draw them now, without a frame of the whole map. */
  repaint(rect: Rect): void {
    for (const key of this.images.keys()) if (!key.startsWith(`${this.level}/`)) this.dirty.add(key);
    const context = this.canvas.getContext('2d');
    const visible = this.frame && shown(this.frame, rect);
    for (const chunk of this.chunksIn(rect)) this.update(chunk, this.partOf(chunk, rect));
    if (!context || !this.frame || !visible || !this.getVisible()) return;
    context.save();
    const [x0, y0, x1, y1] = this.toCanvas(this.frame, visible);
    context.beginPath();
    context.rect(x0, y0, x1 - x0, y1 - y0);
    context.clip();
    this.applyClip(context, this.frame);
    context.clearRect(x0, y0, x1 - x0, y1 - y0);
    for (const chunk of this.chunksIn(visible)) this.draw(context, this.frame, chunk, visible);
    context.restore();
  }

  override render(state: FrameState): HTMLElement {
    const frame = frameOf(state);
    this.frame = frame;
    this.level = levelFor(1 / frame.scale, this.levels);
    if (this.canvas.width !== frame.width || this.canvas.height !== frame.height) {
      this.canvas.width = frame.width;
      this.canvas.height = frame.height;
    }
    this.canvas.style.opacity = String(this.getOpacity());
    const context = this.canvas.getContext('2d')!;
    context.clearRect(0, 0, frame.width, frame.height);
    const visible = shown(frame, { row0: 0, row1: this.size.rows, col0: 0, col1: this.size.cols });
    const chunks = visible ? this.chunksIn(visible) : [];
    context.save();
    this.applyClip(context, frame);
    if (visible) for (const chunk of chunks) this.draw(context, frame, chunk, visible);
    context.restore();
    this.forgetFar(chunks);
    this.colours.inView(visible ? fromTheMiddle(chunks, visible) : []);
    return this.canvas;
  }

  private applyClip(context: CanvasRenderingContext2D, frame: Frame): void {
    if (!this.clip) return;
    const at = Math.round(this.clip.share * frame.width);
    context.beginPath();
    if (this.clip.side === 'left') context.rect(0, 0, at, frame.height);
    else context.rect(at, 0, frame.width - at, frame.height);
    context.clip();
  }

  private chunksIn(rect: Rect): ChunkId[] {
    const span = CHUNK * 2 ** this.level;
    const chunks: ChunkId[] = [];
    for (let y = Math.floor(rect.row0 / span); y * span < rect.row1; y++) {
      for (let x = Math.floor(rect.col0 / span); x * span < rect.col1; x++) chunks.push({ level: this.level, x, y });
    }
    return chunks;
  }

  /** The pixels of a chunk that a rectangle of the scene touches. */
  private partOf({ level, x, y }: ChunkId, rect: Rect): Rect {
    const scale = 2 ** level;
    return {
      row0: Math.max(0, Math.floor(rect.row0 / scale) - y * CHUNK),
      row1: Math.min(CHUNK, Math.ceil(rect.row1 / scale) - y * CHUNK),
      col0: Math.max(0, Math.floor(rect.col0 / scale) - x * CHUNK),
      col1: Math.min(CHUNK, Math.ceil(rect.col1 / scale) - x * CHUNK),
    };
  }

  /** Colour a part of a chunk's image; the whole if it has none yet. */
  private update(chunk: ChunkId, part: Rect): HTMLCanvasElement | null {
    const key = chunkKey(chunk.level, chunk.x, chunk.y);
    let image = this.images.get(key) ?? null;
    const wanted = image && !this.dirty.has(key) ? part : WHOLE;
    const data = new ImageData(wanted.col1 - wanted.col0, wanted.row1 - wanted.row0);
    if (!this.colours.colour(chunk, wanted, new Uint32Array(data.data.buffer))) return image;
    if (!image) {
      image = document.createElement('canvas');
      image.width = image.height = CHUNK;
      this.images.set(key, image);
    }
    image.getContext('2d')!.putImageData(data, wanted.col0, wanted.row0);
    this.dirty.delete(key);
    return image;
  }

  private imageOf(chunk: ChunkId): HTMLCanvasElement | null {
    const key = chunkKey(chunk.level, chunk.x, chunk.y);
    const image = this.images.get(key);
    return image && !this.dirty.has(key) ? image : this.update(chunk, WHOLE);
  }

  /** Draw what is visible of a chunk; while it is not there, what coarser levels have of it. */
  private draw(context: CanvasRenderingContext2D, frame: Frame, chunk: ChunkId, visible: Rect): void {
    const span = CHUNK * 2 ** chunk.level;
    const area = overlap(visible, { row0: chunk.y * span, row1: (chunk.y + 1) * span, col0: chunk.x * span, col1: (chunk.x + 1) * span });
    if (!area) return;
    for (let level = chunk.level; level < this.levels; level++) {
      const up = level - chunk.level;
      const source = { level, x: chunk.x >> up, y: chunk.y >> up };
      const image = this.imageOf(source);
      if (!image) continue;
      const part = this.partOf(source, area);
      const scale = 2 ** level;
      const covered = {
        row0: (source.y * CHUNK + part.row0) * scale,
        row1: (source.y * CHUNK + part.row1) * scale,
        col0: (source.x * CHUNK + part.col0) * scale,
        col1: (source.x * CHUNK + part.col1) * scale,
      };
      const [x0, y0, x1, y1] = this.toCanvas(frame, covered);
      context.imageSmoothingEnabled = false;
      context.drawImage(image, part.col0, part.row0, part.col1 - part.col0, part.row1 - part.row0, x0, y0, x1 - x0, y1 - y0);
      return;
    }
  }

  /** Whole pixels of the canvas, so that neighbouring chunks leave no seam. */
  private toCanvas(frame: Frame, rect: Rect): [number, number, number, number] {
    return [
      Math.round((rect.col0 - frame.left) * frame.scale),
      Math.round((rect.row0 - frame.top) * frame.scale),
      Math.round((rect.col1 - frame.left) * frame.scale),
      Math.round((rect.row1 - frame.top) * frame.scale),
    ];
  }

  private forgetFar(visible: ChunkId[]): void {
    if (this.images.size <= MOST_IMAGES) return;
    const near = new Set(visible.map(({ level, x, y }) => chunkKey(level, x, y)));
    for (const key of this.images.keys()) {
      if (this.images.size <= MOST_IMAGES / 2) break;
      if (!near.has(key)) this.images.delete(key);
    }
  }
}

function fromTheMiddle(chunks: ChunkId[], visible: Rect): ChunkId[] {
  const span = CHUNK * 2 ** (chunks[0]?.level ?? 0);
  const row = (visible.row0 + visible.row1) / 2 / span - 0.5;
  const col = (visible.col0 + visible.col1) / 2 / span - 0.5;
  const distance = ({ x, y }: ChunkId): number => Math.hypot(y - row, x - col);
  return [...chunks].sort((a, b) => distance(a) - distance(b));
}
