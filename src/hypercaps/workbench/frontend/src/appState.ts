/** Everything the page shows: what the server said, and what the user has chosen here. */

import type { ToolName } from './api';
import type { Span } from './spans';
import { Store } from './store';
import type { QueueState } from './strokeQueue';
import type { Comparison, Explanation, Message, ServerState, Suggestion } from './types';

export type ToolId = Exclude<ToolName, 'suggestion'> | 'pan' | 'explain';
export type Shown = 'classes' | 'confidence' | 'familiarity';

export interface Pixel {
  readonly row: number;
  readonly col: number;
}

export interface Highlight {
  readonly spans: Span[];
  readonly text: string;
}

export interface Suggesting {
  readonly points: Suggestion[];
  readonly index: number;
}

export interface Comparing {
  readonly from: string; // training at the left
  readonly to: string;
  readonly share: number; // where the line is
  readonly result: Comparison | null;
}

export interface Explained {
  readonly pixel: Pixel;
  readonly result: Explanation;
}

export interface Pin {
  readonly pixel: Pixel;
  readonly values: Float32Array;
  readonly number: number;
}

export interface AppState extends ServerState {
  tool: ToolId;
  brush: number; // pixels across
  tolerance: number; // of the wand
  selected: number | null; // class to paint
  cursor: Pixel | null; // under the pointer, or moved by the arrow keys
  keyboard: boolean; // the cursor was moved by keys
  overlay: boolean;
  opacity: Readonly<Record<Shown, number>>; // of what the map shows
  labelOpacity: number;
  minConfidence: number;
  minFamiliarity: number;
  shown: Shown;
  bands: string; // preset, or r-g-b
  stretch: string;
  queue: QueueState;
  labelChunks: number; // grows when labels have come from the server
  connected: boolean;
  highlight: Highlight | null;
  suggesting: Suggesting | null;
  comparing: Comparing | null;
  explained: Explained | null;
  spectrum: { pixel: Pixel; values: Float32Array | null } | null;
  pins: Pin[];
  notices: (Message & { number: number })[];
}

export type AppStore = Store<AppState>;

export function initialState(server: ServerState): AppState {
  return {
    ...server,
    map: server.map ?? null,
    stale: server.stale ?? null,
    tool: server.classes.length > 0 ? 'brush' : 'pan',
    brush: 3,
    tolerance: 0.05,
    selected: server.classes[0]?.id ?? null,
    cursor: null,
    keyboard: false,
    overlay: true,
    opacity: { classes: 0.65, confidence: 1, familiarity: 1 }, // a scale of colours means nothing if the scene shines through
    labelOpacity: 0.9,
    minConfidence: 0,
    minFamiliarity: 0,
    shown: 'classes',
    bands: server.scene.presets[0]?.id ?? '0-0-0',
    stretch: '2-98',
    labelChunks: 0,
    queue: { waiting: 0, offline: false, reason: null },
    connected: true,
    highlight: null,
    suggesting: null,
    comparing: null,
    explained: null,
    spectrum: null,
    pins: [],
    notices: [],
  };
}

/** The tool with which a class that was just chosen is painted. */
export function paintingTool(tool: ToolId): ToolId {
  return tool === 'pan' || tool === 'explain' ? 'brush' : tool;
}

export function className(state: Readonly<AppState>, id: number): string {
  return state.classes.find((one) => one.id === id)?.name ?? (id === 0 ? 'unlabelled' : `class ${id}`);
}

export function classColor(state: Readonly<AppState>, id: number): string {
  return state.classes.find((one) => one.id === id)?.color ?? '#808080';
}

/** Take over what the server says of the labels, unless more is known: answers and events overtake each other. */
export function takeLabels(store: AppStore, { labels, classes }: Pick<ServerState, 'labels'> & Partial<Pick<ServerState, 'classes'>>): void {
  if (labels.version >= store.get().labels.version) store.set({ labels, ...(classes ? { classes } : {}) });
}

/** With a capital letter, unless it begins with the name of a file or scene. */
export function asSentence(text: string): string {
  return /^[a-z]+[\s,;]/.test(text) ? text.charAt(0).toUpperCase() + text.slice(1) : text;
}

let noticeNumber = 0;

/** Show a sentence until the user closes it, or, if it only informs, for a while. */
export function notify(store: AppStore, level: Message['level'], text: string): void {
  const number = ++noticeNumber;
  text = asSentence(text);
  const others = store.get().notices.filter((notice) => notice.text !== text);
  store.set({ notices: [...others.slice(-3), { level, text, number }] });
  if (level === 'info') setTimeout(() => { dismiss(store, number); }, 6000);
}

export function dismiss(store: AppStore, number: number): void {
  store.set({ notices: store.get().notices.filter((notice) => notice.number !== number) });
}

/** Run a request; the reason why it failed is shown. */
export async function attempt<T>(store: AppStore, request: () => Promise<T>): Promise<T | null> {
  try {
    return await request();
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') return null;
    notify(store, 'error', error instanceof TypeError ? 'The server does not answer.' : (error as Error).message);
    return null;
  }
}
