/** The tools: what the pointer and the keys do on the map. */

import type MapBrowserEvent from 'ol/MapBrowserEvent';
import PointerInteraction from 'ol/interaction/Pointer';
import * as api from './api';
import { classColor, notify, type AppStore, type Pixel, type ToolId } from './appState';
import { explain } from './explaining';
import type { Labelling, LiveStroke } from './labelling';
import type { MapView } from './mapView';
import { isInside, toPosition } from './projection';
import { brushLine, disk, fillContour, fillOutline, pixelOf, SpanSet, type Position, type Span } from './spans';
import { drawCorners, drawLine, drawOutline, drawSpans, drawTarget, type Drawing } from './toolCanvas';

export interface ToolInfo {
  readonly id: ToolId;
  readonly name: string;
  readonly key: string;
  readonly help: string;
  readonly icon: readonly string[];
}

export const TOOLS: readonly ToolInfo[] = [
  { id: 'pan', name: 'Move', key: 'H', help: 'drag to move, wheel to zoom', icon: ['M10 2v16M2 10h16M10 2 8 4.5M10 2l2 2.5M10 18l-2-2.5M10 18l2-2.5M2 10l2.5-2M2 10l2.5 2M18 10l-2.5-2M18 10l-2.5 2'] },
  { id: 'brush', name: 'Brush', key: 'B', help: 'paint; [ and ] change the size', icon: ['M17 3 9 11', 'M8.6 10.4a3 3 0 0 0-3.9 2.9c0 1.6-.9 2.6-2.2 3.2 2.7 1.2 7.3.6 7.3-3a3 3 0 0 0-1.2-3.1z'] },
  { id: 'eraser', name: 'Eraser', key: 'R', help: 'remove labels; [ and ] change the size', icon: ['M8 16.5h9', 'm3 11.5 8-8.5 5.5 5-8 8.5h-2.7z', 'm6.8 7.5 5.5 5'] },
  { id: 'line', name: 'Line', key: 'L', help: 'drag from end to end', icon: ['M4 16 16 4', 'M3 15h2v2H3zM15 3h2v2h-2z'] },
  { id: 'polygon', name: 'Polygon', key: 'G', help: 'click corners; double-click or Enter closes', icon: ['M10 3 17 8.5 14 16H6L3 8.5z'] },
  { id: 'contour', name: 'Filled contour', key: 'F', help: 'draw around an area; it is filled', icon: ['M10 3.5c4 0 7 2.2 6.5 5.5S13 12 13.5 14s-2 3-5 2.5S3 13 3.5 9s2.5-5.5 6.5-5.5z', 'M7 9h.01M10 8h.01M12.5 9.5h.01M8 12h.01M11 12h.01'] },
  { id: 'point', name: 'Point', key: 'D', help: 'label single pixels', icon: ['M10 7.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5z', 'M10 2v2.5M10 15.5V18M2 10h2.5M15.5 10H18'] },
  { id: 'wand', name: 'Spectral wand', key: 'W', help: 'label pixels with a spectrum like this one; the wheel changes the tolerance', icon: ['m3 17 8-8', 'M14 2.5v3M14 9v3M9.3 7.3h3M15.8 7.3h3M11.5 4.8l1 1M16.5 4.8l-1 1M16.5 9.8l-1-1'] },
  { id: 'explain', name: 'Explain', key: 'E', help: 'click a pixel to see which bands spoke for its class', icon: ['M3 17V3M3 17h14', 'M6.5 17v-4M9.5 17V8M12.5 17v-6M15.5 17v-2.5'] },
];

export const LARGEST_BRUSH = 60;
const MOST_OUTLINED = 1000; // highlighted spans
const CLOSE = 10; // CSS pixels from the first corner that close a polygon

/** The tool that is chosen, and what it has under way. */
export class Tools {
  private stroke: LiveStroke | null = null;
  private last: Position | null = null; // of the stroke
  private path: Position[] = []; // of a line, polygon or contour
  private pointer: Position | null = null;
  private wand: { pixel: Pixel; spans: Span[]; tolerance: number } | null = null;
  private wandRequest: AbortController | null = null;
  private isCommitWaiting = false;
  private isDouble = false; // the last click repeated a corner

  constructor(
    private readonly store: AppStore,
    private readonly labelling: Labelling,
    private readonly view: MapView,
  ) {
    view.addMoving(
      (event) => event.button === 1 || (event.button === 0 && store.get().tool === 'pan'),
      (event) => store.get().tool !== 'wand' || event.shiftKey || event.ctrlKey,
    );
    view.addInteraction(new ToolInteraction(this));
    view.addPainter((drawing) => {
      this.paint(drawing);
    });
    store.watch(['tool'], () => {
      this.cancel();
    });
    store.watch(['brush', 'selected', 'classes', 'highlight', 'suggesting', 'cursor', 'explained'], () => {
      view.redraw();
    });
    store.watch(['tolerance'], () => {
      if (this.wand) this.askWand(this.wand.pixel);
    });
    view.map.getViewport().addEventListener('pointerleave', () => {
      this.pointer = null;
      view.redraw();
    });
    view.map.getViewport().addEventListener('wheel', (event) => {
      this.wheel(event);
    }, { passive: true });
  }

  /** The class that the tool paints: 0 erases; null: there is none to paint with. */
  private value(): number | null {
    const { tool, selected, classes, writer } = this.store.get();
    if (!writer) {
      notify(this.store, 'info', 'Another tab or browser is working on this project: here it can only be viewed.');
      return null;
    }
    if (tool === 'eraser') return 0;
    const chosen = classes.find((one) => one.id === selected);
    if (!chosen) notify(this.store, 'info', 'Add a class first, then paint a few of its pixels.');
    else if (chosen.hidden) notify(this.store, 'info', `${chosen.name} is hidden: show it to paint it.`);
    return chosen && !chosen.hidden ? chosen.id : null;
  }

  private isIn(position: Position): boolean {
    return isInside(position, this.store.get().scene);
  }

  down(position: Position): boolean {
    const { tool, brush } = this.store.get();
    if (tool === 'pan') return false;
    if (tool === 'polygon' || tool === 'explain') return true;
    const value = this.value();
    if (value === null) return true;
    this.last = position;
    if (tool === 'brush' || tool === 'eraser') {
      this.stroke = this.labelling.begin(value, tool);
      this.stroke.add(disk(position, brush));
    } else if (tool === 'contour' || tool === 'line') this.path = [position];
    return true;
  }

  drag(position: Position): void {
    const { tool, brush, scene } = this.store.get();
    this.move(position);
    if (this.stroke && this.last) {
      this.stroke.add(brushLine(this.last, position, brush, scene));
      this.last = position;
    } else if (this.path.length > 0 && tool === 'contour') this.path.push(position);
    else if (this.path.length > 0 && tool === 'line') this.path = [this.path[0]!, position];
    this.view.redraw();
  }

  up(position: Position): void {
    const { tool } = this.store.get();
    if (this.stroke) {
      this.stroke.commit();
      this.stroke = null;
    } else if (tool === 'polygon') this.corner(position);
    else if (tool === 'explain') void explain(this.store, this.isIn(position) ? pixelOf(position) : null);
    else if (tool === 'point' && this.last) this.dab(position);
    else if (tool === 'wand' && this.last) this.commitWand(position);
    else if (this.path.length > 0) this.finish();
    this.last = null;
    this.view.redraw();
  }

  /** The pointer moves over the map, pressed or not. */
  move(position: Position): void {
    this.pointer = position;
    const inside = this.isIn(position);
    const pixel = inside ? pixelOf(position) : null;
    const { cursor, tool } = this.store.get();
    if (cursor?.row !== pixel?.row || cursor?.col !== pixel?.col) {
      this.store.set({ cursor: pixel, keyboard: false });
      if (tool === 'wand' && pixel) this.askWand(pixel);
    }
    this.view.redraw();
  }

  /** Enter: use the tool at the cursor, or close what is being drawn. */
  enter(): void {
    const { cursor, tool, brush } = this.store.get();
    if (tool === 'polygon' && this.path.length >= 3 && this.isSame(this.path.at(-1)!, cursor)) {
      this.finish();
      return;
    }
    if (!cursor) return;
    const middle = { row: cursor.row + 0.5, col: cursor.col + 0.5 };
    if (tool === 'polygon') this.corner(middle);
    else if (tool === 'wand') this.commitWand(middle);
    else if (tool === 'point') this.dab(middle);
    else if (tool === 'explain') void explain(this.store, cursor);
    else if (tool === 'line' || tool === 'contour') {
      this.path.push(middle);
      if ((tool === 'line' && this.path.length === 2) || (this.path.length > 2 && this.isSame(this.path.at(-2)!, cursor))) this.finish();
    } else if (tool !== 'pan') {
      const value = this.value();
      if (value !== null) this.labelling.stroke(value, tool, disk(middle, brush));
    }
    this.view.redraw();
  }

  /** Two clicks at one place; quick clicks at two places are corners. */
  doubleClick(): void {
    if (this.store.get().tool === 'polygon' && this.isDouble && this.path.length >= 3) this.finish();
  }

  /** Take back the last corner; false if there is none. */
  backspace(): boolean {
    if (this.path.length === 0) return false;
    this.path.pop();
    this.view.redraw();
    return true;
  }

  /** Give up what is under way; false if there was nothing. */
  cancel(): boolean {
    const hadSome = this.stroke !== null || this.path.length > 0 || this.wand !== null;
    this.stroke?.cancel();
    this.stroke = null;
    this.path = [];
    this.last = null;
    this.wand = null;
    this.wandRequest?.abort();
    this.isCommitWaiting = false;
    this.view.redraw();
    return hadSome;
  }

  resize(change: number): void {
    const { brush, tool, tolerance } = this.store.get();
    if (tool === 'wand') this.store.set({ tolerance: nextTolerance(tolerance, change) });
    else this.store.set({ brush: Math.max(1, Math.min(LARGEST_BRUSH, brush + change * (brush >= 12 ? 4 : brush >= 6 ? 2 : 1))) });
  }

  private isSame(position: Position, pixel: Pixel | null): boolean {
    return pixel !== null && Math.floor(position.row) === pixel.row && Math.floor(position.col) === pixel.col;
  }

  private wheel(event: WheelEvent): void {
    const { tool, tolerance } = this.store.get();
    if (tool !== 'wand' || event.shiftKey || event.ctrlKey) return;
    this.store.set({ tolerance: nextTolerance(tolerance, event.deltaY < 0 ? 1 : -1) });
  }

  private dab(position: Position): void {
    const value = this.value();
    const { row, col } = pixelOf(position);
    if (value !== null && this.isIn(position)) this.labelling.stroke(value, 'point', [[row, col, col + 1]]);
  }

  private corner(position: Position): void {
    const first = this.path[0];
    const reach = CLOSE * this.view.map.getView().getResolution()!;
    if (first && this.path.length >= 3 && Math.hypot(first.row - position.row, first.col - position.col) < reach) this.finish();
    else if (this.isRepeated(position)) this.isDouble = true;
    else if (this.value() !== null) {
      this.path.push(position);
      this.isDouble = false;
    }
  }

  /** The second click of a double click is no new corner. */
  private isRepeated(position: Position): boolean {
    const last = this.path.at(-1);
    const reach = 3 * this.view.map.getView().getResolution()!;
    return last !== undefined && Math.hypot(last.row - position.row, last.col - position.col) < reach;
  }

  private finish(): void {
    const { tool, brush, scene } = this.store.get();
    const value = this.value();
    const [first, last] = [this.path[0]!, this.path.at(-1)!];
    if (value !== null) {
      if (tool === 'line') this.labelling.stroke(value, tool, brushLine(first, last, brush, scene));
      else if (tool === 'polygon') this.labelling.stroke(value, tool, fillOutline(this.path, scene));
      else if (tool === 'contour') this.labelling.stroke(value, tool, fillContour(this.path, scene));
    }
    this.path = [];
  }

  /** Ask which pixels are like this one; a newer question replaces an older one. */
  private askWand(pixel: Pixel): void {
    const { tolerance } = this.store.get();
    this.wandRequest?.abort();
    const control = (this.wandRequest = new AbortController());
    api.wand(pixel.row, pixel.col, tolerance, control.signal).then(
      ({ spans }) => {
        this.wand = { pixel, spans, tolerance };
        if (this.isCommitWaiting) this.commitWand({ row: pixel.row + 0.5, col: pixel.col + 0.5 });
        this.view.redraw();
      },
      (error: unknown) => {
        if (!control.signal.aborted) notify(this.store, 'error', (error as Error).message);
      },
    );
  }

  private commitWand(position: Position): void {
    const pixel = pixelOf(position);
    this.isCommitWaiting = false;
    if (this.wand && this.isSame(position, this.wand.pixel) && this.wand.tolerance === this.store.get().tolerance) {
      const value = this.value();
      if (value !== null) this.labelling.stroke(value, 'wand', this.wand.spans);
    } else if (this.isIn(position)) {
      this.isCommitWaiting = true;
      this.askWand(pixel);
    }
  }

  private paint(drawing: Drawing): void {
    const state = this.store.get();
    const isPaint = state.tool !== 'eraser' && state.tool !== 'explain';
    const color = isPaint && state.selected !== null ? classColor(state, state.selected) : '#ffffff';
    const bounds = { row0: 0, row1: state.scene.rows, col0: 0, col1: state.scene.cols };
    if (state.highlight) {
      drawSpans(drawing, state.highlight.spans, 'rgba(255, 0, 160, 0.9)', bounds);
      if (state.highlight.spans.length < MOST_OUTLINED) drawOutline(drawing, state.highlight.spans, '#ffffff');
    }
    if (this.wand && state.tool === 'wand') drawOutline(drawing, this.wand.spans, color);
    if (this.path.length > 0) this.paintPath(drawing, color);
    const suggestion = state.suggesting?.points[state.suggesting.index];
    if (suggestion) drawTarget(drawing, suggestion, '#ffd23f');
    if (state.explained) drawTarget(drawing, state.explained.pixel, '#7fd6ff');
    const at = state.keyboard && state.cursor ? { row: state.cursor.row + 0.5, col: state.cursor.col + 0.5 } : this.pointer;
    if (at) this.paintCursor(drawing, at, color, state.keyboard);
  }

  private paintCursor(drawing: Drawing, at: Position, color: string, isKeyboard: boolean): void {
    const { tool, brush, scene, cursor } = this.store.get();
    const hasSize = tool === 'brush' || tool === 'eraser' || tool === 'line';
    if (hasSize || isKeyboard || tool === 'point' || tool === 'wand' || tool === 'explain') {
      const spans = new SpanSet(scene);
      spans.addAll(disk(at, hasSize ? brush : 1));
      drawOutline(drawing, spans.toSpans(), color);
    }
    if (isKeyboard && cursor) drawTarget(drawing, cursor, '#ffffff');
  }

  private paintPath(drawing: Drawing, color: string): void {
    const { tool } = this.store.get();
    const end = tool === 'polygon' && this.pointer ? [this.pointer, this.path[0]!] : [];
    drawLine(drawing, [...this.path, ...end], color);
    if (tool === 'polygon' || tool === 'line') drawCorners(drawing, this.path, color);
  }
}

/** Steps of a tenth, finer where it is small. */
export function nextTolerance(tolerance: number, change: number): number {
  return Number(Math.max(0.002, Math.min(0.9, tolerance * 1.15 ** change)).toFixed(4));
}

/** Hands pointer events to the tools, one finger or the left button only. */
class ToolInteraction extends PointerInteraction {
  constructor(private readonly tools: Tools) {
    super({ stopDown: (handled) => handled });
  }

  override handleDownEvent(event: MapBrowserEvent): boolean {
    const { button } = event.originalEvent as PointerEvent;
    if (button !== 0 || this.targetPointers.length > 1) return false;
    return this.tools.down(toPosition(event.coordinate));
  }

  override handleDragEvent(event: MapBrowserEvent): void {
    if (this.targetPointers.length > 1) this.tools.cancel(); // a second finger moves the map
    else this.tools.drag(toPosition(event.coordinate));
  }

  override handleUpEvent(event: MapBrowserEvent): boolean {
    this.tools.up(toPosition(event.coordinate));
    return false;
  }

  override handleMoveEvent(event: MapBrowserEvent): void {
    this.tools.move(toPosition(event.coordinate));
  }

  override handleEvent(event: MapBrowserEvent): boolean {
    if (event.type === 'dblclick') this.tools.doubleClick();
    return super.handleEvent(event);
  }
}
