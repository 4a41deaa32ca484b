/** The stream of events: what changes on the server, by this page, another one, or the training. */

import * as api from './api';
import { attempt, notify, takeLabels, type AppStore } from './appState';
import type { Labelling } from './labelling';
import type { MapView } from './mapView';
import type { LabelsEvent, MapEvent, Message, ServerState, Training } from './types';

function dataOf(event: Event): unknown {
  return JSON.parse((event as MessageEvent<string>).data);
}

export class ServerEvents {
  private stream: EventSource | null = null;
  private told: readonly Message[] = []; // what the server has said so far
  private isTold = false; // why it can't be reached

  constructor(
    private readonly store: AppStore,
    private readonly labelling: Labelling,
    private readonly view: MapView,
  ) {}

  connect(): void {
    const stream = (this.stream = new EventSource(api.eventsAddress));
    stream.addEventListener('open', () => {
      this.store.set({ connected: true });
      this.isTold = false;
    });
    stream.addEventListener('error', () => {
      this.store.set({ connected: false });
      if (stream.readyState === EventSource.CLOSED) this.refused();
    });
    stream.addEventListener('state', (event) => {
      this.state(dataOf(event) as Partial<ServerState>);
    });
    stream.addEventListener('labels', (event) => {
      this.labelling.received(dataOf(event) as LabelsEvent);
    });
    stream.addEventListener('training', (event) => {
      this.store.set({ training: dataOf(event) as Training | null });
    });
    stream.addEventListener('map', (event) => {
      this.map(dataOf(event) as MapEvent);
    });
    stream.addEventListener('overviews', (event) => {
      const { done } = dataOf(event) as { done: number };
      this.store.set({ scene: { ...this.store.get().scene, overviews: done } });
    });
    stream.addEventListener('message', (event) => {
      const message = dataOf(event) as Message;
      this.told = [...this.told, message];
      notify(this.store, message.level, message.text);
    });
    stream.addEventListener('end', () => {
      stream.close();
      this.store.set({ connected: false });
      setTimeout(() => { this.reconnect(); }, 2000);
    });
  }

  /** Show what the server has said while nobody listened, for example that it was started again and has lost something. */
  tell(messages: readonly Message[]): void {
    const known = new Set(this.told.map(({ text }) => text));
    for (const { level, text } of messages) if (!known.has(text)) notify(this.store, level, text);
    this.told = messages;
  }

  /** The stream was refused, not only cut off: say why, once, and try again. */
  private refused(): void {
    if (!this.isTold) void attempt(this.store, api.state);
    this.isTold = true;
    setTimeout(() => { this.reconnect(); }, 2000);
  }

  private reconnect(): void {
    this.stream?.close();
    this.connect();
  }

  private state(patch: Partial<ServerState>): void {
    const { labels, classes, messages, ...others } = patch;
    const isWhole = patch.scene !== undefined;
    const known = this.store.get();
    const isNewServer = isWhole && patch.server !== known.server; // only then labels can be older than those known here
    if (others.scene && sameScene(others.scene, known.scene)) delete others.scene;
    this.store.set(others);
    if (others.map && known.map?.id === others.map.id && others.map.revision > known.map.revision) {
      this.view.classMap.renew([[0, known.scene.rows, 0, known.scene.cols]]); // which windows are new was not told
    }
    if (isWhole) this.tell(messages ?? []);
    if (!labels) return;
    const missed = isWhole && (isNewServer ? labels.version !== this.labelling.version : labels.version > this.labelling.version);
    if (missed) {
      this.labelling.reload(labels.version);
      this.store.set({ labels });
    }
    takeLabels(this.store, { labels, classes });
  }

  private map({ id, windows, done, revision }: MapEvent): void {
    const { map, stale } = this.store.get();
    const older = map && map.id !== id ? map : stale;
    this.store.set({ map: { id, revision, done }, stale: done >= 1 ? null : older });
    this.view.classMap.renew(windows);
  }
}

function sameScene(a: ServerState['scene'], b: ServerState['scene']): boolean {
  return a.name === b.name && a.overviews === b.overviews && a.presets.length === b.presets.length;
}
