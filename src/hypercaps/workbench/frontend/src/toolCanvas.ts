/** What tools draw over the map: brush outline, unfinished polygons, highlighted pixels, the next suggestion. */

import type { Frame } from './frame';
import { onCanvas, shown } from './frame';
import { outlineOf, type Position, type Rect, type Span } from './spans';

export interface Drawing {
  readonly context: CanvasRenderingContext2D;
  readonly frame: Frame;
}

function trace({ context, frame }: Drawing, points: readonly Position[]): void {
  context.beginPath();
  points.forEach((point, i) => {
    const [x, y] = onCanvas(frame, point);
    if (i === 0) context.moveTo(x, y);
    else context.lineTo(x, y);
  });
}

/** A line that is seen on light and on dark ground. */
function strokeTwice({ context, frame }: Drawing, color: string, width = 1.5): void {
  context.lineJoin = 'round';
  context.strokeStyle = 'rgba(0, 0, 0, 0.75)';
  context.lineWidth = (width + 2) * frame.ratio;
  context.stroke();
  context.strokeStyle = color;
  context.lineWidth = width * frame.ratio;
  context.stroke();
}

export function drawLine(drawing: Drawing, points: readonly Position[], color: string): void {
  trace(drawing, points);
  strokeTwice(drawing, color);
}

export function drawCorners(drawing: Drawing, points: readonly Position[], color: string): void {
  for (const point of points) {
    const [x, y] = onCanvas(drawing.frame, point);
    drawing.context.beginPath();
    drawing.context.arc(x, y, 3.5 * drawing.frame.ratio, 0, 2 * Math.PI);
    strokeTwice(drawing, color);
  }
}

export function drawOutline(drawing: Drawing, spans: readonly Readonly<Span>[], color: string): void {
  const { context, frame } = drawing;
  context.beginPath();
  for (const edge of outlineOf(spans)) {
    context.moveTo(...onCanvas(frame, { row: edge.row0, col: edge.col0 }));
    context.lineTo(...onCanvas(frame, { row: edge.row1, col: edge.col1 }));
  }
  strokeTwice(drawing, color, 1);
}

/** Fill spans, at least two screen pixels each, so that single pixels are seen from far. */
export function drawSpans({ context, frame }: Drawing, spans: readonly Readonly<Span>[], color: string, bounds: Rect): void {
  const visible = shown(frame, bounds);
  if (!visible) return;
  context.fillStyle = color;
  const least = 2 * frame.ratio;
  for (const [row, first, end] of spans) {
    if (row < visible.row0 || row >= visible.row1 || end <= visible.col0 || first >= visible.col1) continue;
    const [x, y] = onCanvas(frame, { row, col: first });
    context.fillRect(x, y, Math.max(least, (end - first) * frame.scale), Math.max(least, frame.scale));
  }
}

/** A ring with cross hairs around one pixel. */
export function drawTarget(drawing: Drawing, pixel: Position, color: string): void {
  const { context, frame } = drawing;
  const [x, y] = onCanvas(frame, { row: pixel.row + 0.5, col: pixel.col + 0.5 });
  const radius = Math.max(14 * frame.ratio, frame.scale);
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]] as const) {
    context.moveTo(x + dx * radius, y + dy * radius);
    context.lineTo(x + dx * (radius + 8 * frame.ratio), y + dy * (radius + 8 * frame.ratio));
  }
  strokeTwice(drawing, color, 2);
}
