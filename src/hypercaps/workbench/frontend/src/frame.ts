/** Where pixels of the scene are on the screen. The map is never rotated. */

import type { FrameState } from 'ol/Map';
import type { Position, Rect } from './spans';

export interface Frame {
  readonly width: number; // of the canvas
  readonly height: number;
  readonly scale: number; // canvas pixels per scene pixel
  readonly ratio: number; // canvas pixels per CSS pixel
  readonly left: number; // column at the canvas' left edge
  readonly top: number;
}

export function frameOf(state: FrameState): Frame {
  const { center, resolution } = state.viewState;
  const [width, height] = [state.size[0]!, state.size[1]!];
  return {
    width: Math.round(width * state.pixelRatio),
    height: Math.round(height * state.pixelRatio),
    scale: state.pixelRatio / resolution,
    ratio: state.pixelRatio,
    left: center[0]! - (width / 2) * resolution,
    top: -center[1]! - (height / 2) * resolution,
  };
}

export function onCanvas(frame: Frame, position: Position): [x: number, y: number] {
  return [(position.col - frame.left) * frame.scale, (position.row - frame.top) * frame.scale];
}

/** The part of the scene that a canvas shows, in whole pixels, cut to `bounds`; null if none. */
export function shown(frame: Frame, bounds: Rect): Rect | null {
  const rect = {
    row0: Math.max(bounds.row0, Math.floor(frame.top)),
    row1: Math.min(bounds.row1, Math.ceil(frame.top + frame.height / frame.scale)),
    col0: Math.max(bounds.col0, Math.floor(frame.left)),
    col1: Math.min(bounds.col1, Math.ceil(frame.left + frame.width / frame.scale)),
  };
  return rect.row0 < rect.row1 && rect.col0 < rect.col1 ? rect : null;
}

export function overlap(a: Rect, b: Rect): Rect | null {
  const rect = {
    row0: Math.max(a.row0, b.row0),
    row1: Math.min(a.row1, b.row1),
    col0: Math.max(a.col0, b.col0),
    col1: Math.min(a.col1, b.col1),
  };
  return rect.row0 < rect.row1 && rect.col0 < rect.col1 ? rect : null;
}
