/** Painting: first into the page's raster, then, in order, to the server; undo and redo alike. */

import * as api from './api';
import { attempt, notify, takeLabels, type AppStore } from './appState';
import { changeOf, chunkKey, LabelRaster, type Change } from './labelRaster';
import { countPixels, SpanSet, type Rect, type Span } from './spans';
import { newUuid, StrokeQueue } from './strokeQueue';
import type { LabelsEvent, StrokeAnswer, UndoAnswer } from './types';
import { LocalHistory } from './undo';

/** A change that chunks loaded meanwhile may not have yet; version null: not on the server. */
interface Recent {
  readonly value: number;
  readonly spans: Span[];
  version: number | null;
}

const MOST_RECENT = 200;

export class Labelling {
  readonly raster: LabelRaster;
  readonly queue: StrokeQueue;
  private readonly history = new LocalHistory();
  private recent: Recent[] = []; // in the order of the server
  private readonly live = new Set<LiveStroke>();
  /** The server's version that the raster shows, apart from strokes under way. */
  version: number;
  private oldest = 0; // version that a chunk must have: those asked for before a reload come too late
  onPainted: (rect: Rect) => void = () => undefined;
  onReload: () => void = () => undefined;

  constructor(private readonly store: AppStore) {
    const { scene, labels } = store.get();
    this.raster = new LabelRaster(scene, scene.levels);
    this.version = labels.version;
    this.queue = new StrokeQueue((queue) => {
      const known = store.get().queue.reason;
      store.set({ queue });
      if (queue.reason !== null && queue.reason !== known) notify(store, 'error', `${queue.reason}; what you paint is kept here and saved as soon as possible`);
    });
  }

  /** Begin a stroke of a class (0: erase). */
  begin(value: number, tool: api.ToolName): LiveStroke {
    const stroke = new LiveStroke(this, value, tool);
    this.live.add(stroke);
    return stroke;
  }

  /** A stroke was finished or given up. */
  end(stroke: LiveStroke): void {
    this.live.delete(stroke);
  }

  /** Paint and send pixels that are known at once. */
  stroke(value: number, tool: api.ToolName, spans: Span[]): void {
    const live = this.begin(value, tool);
    live.add(spans);
    live.commit();
  }

  paint(spans: Span[], value: number): Change {
    const locked = new Set(this.store.get().classes.filter((one) => one.locked && one.id !== value).map((one) => one.id));
    const { before, touched } = this.raster.paint(spans, value, locked);
    if (touched) this.onPainted(touched);
    return before;
  }

  apply(change: Change): void {
    const { touched } = this.raster.apply(change);
    if (touched) this.onPainted(touched);
  }

  commit(value: number, tool: api.ToolName, spans: Span[], before: Change[], after: Change[]): void {
    const recent: Recent = { value, spans, version: null };
    this.remember([], [recent]);
    this.history.push({ before, after });
    const stroke = { stroke: newUuid(), class: value, tool, spans };
    this.queue.add({
      uuid: stroke.stroke,
      send: async () => {
        const answer = await api.sendStroke(stroke);
        recent.version = answer.version;
        this.answered(answer);
        if (answer.nodata) this.cutOff(answer.nodata, spans);
        if (value === 0) this.onReload();
      },
      refused: (reason) => {
        this.recent = this.recent.filter((one) => one !== recent);
        for (const change of [...before].reverse()) this.apply(change);
        this.readAgain(); // tiles may have come since
        this.history.clear();
        notify(this.store, 'error', reason);
      },
    });
  }

  undo(): void {
    if (!this.store.get().labels.undo && this.queue.waiting === 0) return;
    this.step(this.history.undo(), api.undo);
  }

  redo(): void {
    if (!this.store.get().labels.redo && this.queue.waiting === 0) return;
    this.step(this.history.redo(), api.redo);
  }

  /** A step that only the server can undo, such as a class renamed. */
  serverStep(): void {
    this.history.push(null);
  }

  /** Labels changed by another page, or by the server itself. */
  received(event: LabelsEvent): void {
    if (event.origin === api.client || event.version <= this.version) return;
    this.history.clear();
    this.version = event.version;
    this.applyUnder(changeOf(event.spans), event.version);
  }

  /** Ask for everything again, for example after labels were imported; what is here is shown until then. */
  reload(version: number): void {
    this.version = this.oldest = version;
    this.history.clear();
    this.recent = this.recent.filter((one) => one.version === null);
    for (const key of this.raster.keys()) this.raster.stale.add(key);
    this.onReload();
  }

  /** A chunk has come: what it can't have yet is painted into it again. */
  putChunk(level: number, x: number, y: number, data: Uint8Array, version: number): void {
    this.raster.put(level, x, y, data);
    if (version < this.oldest) this.raster.stale.add(chunkKey(level, x, y));
    for (const { value, spans, version: known } of this.recent) if (known === null || known > version) this.paint(spans, value);
    for (const stroke of this.live) stroke.repaint();
  }

  private step(changes: Change[] | null, request: (step: string) => Promise<UndoAnswer>): void {
    for (const change of changes ?? []) this.apply(change);
    const uuid = newUuid();
    this.queue.add({
      uuid,
      send: async () => {
        const answer = await request(uuid);
        this.answered(answer);
        this.applyUnder(changeOf(answer.spans), answer.version);
        this.onReload();
      },
      refused: (reason) => {
        notify(this.store, 'warning', reason);
        void attempt(this.store, api.state).then((state) => {
          if (state) this.reload(state.labels.version);
        });
      },
    });
  }

  /** Apply a change of the server below the strokes that it has not answered yet. */
  private applyUnder(change: Change, version: number): void {
    this.apply(change);
    this.remember([...change].map(([value, spans]) => ({ value, spans, version })), []);
    for (const one of this.recent) if (one.version === null) this.paint(one.spans, one.value);
  }

  /** Keep what the server has just told, and what it will be told next. */
  private remember(told: Recent[], next: Recent[]): void {
    const known = this.recent.filter(({ version }) => version !== null);
    const pending = this.recent.filter(({ version }) => version === null);
    this.recent = [...known.slice(-MOST_RECENT), ...told, ...pending, ...next];
  }

  private answered(answer: StrokeAnswer): void {
    this.version = Math.max(this.version, answer.version);
    const counted = (answer.classes ?? this.store.get().classes).map((one) => ({ ...one, count: answer.counts[String(one.id)] ?? one.count }));
    const count = counted.reduce((sum, one) => sum + one.count, 0);
    takeLabels(this.store, { classes: counted, labels: { version: answer.version, undo: answer.undo, redo: answer.redo, count } });
  }

  private cutOff(nodata: number, spans: Span[]): void {
    notify(this.store, 'info', `${nodata} of ${countPixels(spans)} pixels have no data and stay unlabelled.`);
    this.recent = this.recent.filter((one) => one.spans !== spans);
    this.readAgain();
  }

  /** Ask for all labels again where what is known of them may be old. */
  readAgain(): void {
    for (const key of this.raster.keys()) this.raster.stale.add(key);
    this.onReload();
  }
}

/** A stroke under way: painted at once, sent when it is finished. */
export class LiveStroke {
  private readonly pixels: SpanSet;
  private readonly before: Change[] = [];
  private readonly after: Change[] = [];
  private isBeforeOld = false; // labels have come since

  constructor(
    private readonly labelling: Labelling,
    private readonly value: number,
    private readonly tool: api.ToolName,
  ) {
    this.pixels = new SpanSet(labelling.raster.size);
  }

  add(spans: Span[]): void {
    const inside = new SpanSet(this.labelling.raster.size);
    inside.addAll(spans);
    const cut = inside.toSpans();
    this.pixels.addAll(cut);
    this.before.push(this.labelling.paint(cut, this.value));
    this.after.push(new Map([[this.value, cut]]));
  }

  /** Paint again what a chunk that has come since does not have. */
  repaint(): void {
    this.labelling.paint(this.pixels.toSpans(), this.value);
    this.isBeforeOld = true;
  }

  commit(): void {
    this.labelling.end(this);
    const spans = this.pixels.toSpans();
    if (spans.length > 0) this.labelling.commit(this.value, this.tool, spans, this.before, this.after);
  }

  cancel(): void {
    this.labelling.end(this);
    for (const change of [...this.before].reverse()) this.labelling.apply(change);
    if (this.isBeforeOld) this.labelling.readAgain();
  }
}
