/** Requests to the server, one function each. Addresses are relative, so that a path prefix and `ssh -L` work. */

import type { Rect, Span } from './spans';
import { newUuid, Refused } from './strokeQueue';
import type * as t from './types';

export type ToolName = 'brush' | 'eraser' | 'line' | 'polygon' | 'contour' | 'point' | 'wand' | 'suggestion';

export interface Stroke {
  stroke: string;
  class: number;
  tool: ToolName;
  spans: Span[];
}

/** The name of this tab: a reload keeps it, a copy of the tab gets its own. */
function clientName(): string {
  const [navigation] = performance.getEntriesByType('navigation') as PerformanceNavigationTiming[];
  const kept = navigation?.type === 'reload' ? sessionStorage.getItem('client') : null;
  const name = kept ?? newUuid();
  sessionStorage.setItem('client', name);
  return name;
}

export const client = clientName();

async function checked(answer: Response): Promise<Response> {
  if (answer.ok) return answer;
  const text = await answer.text();
  let reason = `The server answered ${answer.status}.`;
  try {
    const { error } = JSON.parse(text) as { error?: unknown };
    if (typeof error === 'string') reason = error;
  } catch {
    // no JSON: the status says it
  }
  throw new Refused(reason, answer.status);
}

async function get(path: string, signal?: AbortSignal): Promise<Response> {
  return checked(await fetch(path, { signal: signal ?? null }));
}

async function getJson<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await get(path, signal)).json()) as T;
}

async function post<T>(path: string, body: object): Promise<T> {
  const headers = { 'Content-Type': 'application/json', 'X-Hypercaps': '1', 'X-Client': client };
  return (await (await checked(await fetch(path, { method: 'POST', headers, body: JSON.stringify(body) }))).json()) as T;
}

function asList(rect: Rect): [number, number, number, number] {
  return [rect.row0, rect.row1, rect.col0, rect.col1];
}

function query(parts: Record<string, number | string | null | undefined>): string {
  const given = Object.entries(parts).filter(([, value]) => value !== null && value !== undefined);
  return new URLSearchParams(given.map(([key, value]) => [key, String(value)])).toString();
}

export const eventsAddress = `api/events?client=${client}`;
/** Address of the scene's tiles; what was drawn before there were overviews has another one, so that it is drawn again. */
export const sceneTiles = (bands: string, stretch: string, hasOverviews: boolean): string =>
  `api/tiles/scene/${bands}/${stretch}/{k}/{x}/{y}${hasOverviews ? '' : '?overviews=none'}`;

export const sceneTile = (address: string): Promise<Response> => get(address);

export const state = (): Promise<t.ServerState> => getJson(`api/state?client=${client}`);

export async function labelTile(version: number, level: number, x: number, y: number, signal: AbortSignal): Promise<Uint8Array> {
  return new Uint8Array(await (await get(`api/tiles/labels/${version}/${level}/${x}/${y}`, signal)).arrayBuffer());
}

export async function mapTile(map: t.MapInfo, level: number, x: number, y: number, signal: AbortSignal): Promise<Uint8Array> {
  return new Uint8Array(await (await get(`api/tiles/map/${map.id}/${map.revision}/${level}/${x}/${y}`, signal)).arrayBuffer());
}

/** Values of a pixel's bands; null where the scene has no data. */
export async function spectrum(row: number, col: number, signal?: AbortSignal): Promise<Float32Array | null> {
  const answer = await get(`api/spectrum?${query({ row, col })}`, signal);
  const values = new Float32Array(await answer.arrayBuffer());
  return answer.headers.get('X-Valid') === '0' ? null : values;
}

export const classSpectra = (): Promise<Record<string, t.ClassSpectrum>> => getJson('api/spectra/classes');
export const changeClass = (change: object): Promise<t.ClassesAnswer> => post('api/classes', change);
export const sendStroke = (stroke: Stroke): Promise<t.StrokeAnswer> => post('api/strokes', { client, ...stroke });
export const undo = (step: string): Promise<t.UndoAnswer> => post('api/undo', { client, step });
export const redo = (step: string): Promise<t.UndoAnswer> => post('api/redo', { client, step });

export function wand(row: number, col: number, tolerance: number, signal: AbortSignal): Promise<{ spans: Span[]; pixels: number }> {
  return getJson(`api/wand?${query({ row, col, tolerance })}`, signal);
}

export async function importLabels(file: File, field: string): Promise<t.ClassesAnswer & { imported: number; messages: (string | t.Message)[] }> {
  const headers: Record<string, string> = {
    'Content-Type': 'application/octet-stream',
    'X-Hypercaps': '1',
    'X-Client': client,
    'X-Name': encodeURIComponent(file.name),
  };
  if (field) headers['X-Class-Field'] = encodeURIComponent(field);
  return (await (await checked(await fetch('api/labels/import', { method: 'POST', headers, body: file }))).json()) as never;
}

export const labelsFile = (format: string): string => `api/labels/export/${format}`;

export const train = (view: Rect): Promise<{ id: string }> => post('api/train', { client, view: asList(view) });
export const setOptions = (chosen: Partial<t.Options['chosen']>): Promise<object> => post('api/options', chosen);
export const setView = (view: Rect): Promise<object> => post('api/view', { view: asList(view) });
export const cancel = (): Promise<object> => post('api/cancel', {});
export const showTraining = (id: string): Promise<object> => post(`api/trainings/${id}/show`, {});
export const restoreTraining = (id: string): Promise<t.ClassesAnswer> => post(`api/trainings/${id}/restore`, {});

export function errors(id: string, truth: number | null, predicted: number | null): Promise<{ spans: Span[] }> {
  return getJson(`api/trainings/${id}/errors?${query({ truth, predicted })}`);
}

export const doubtful = (id: string): Promise<{ pixels: t.Doubtful[] }> => getJson(`api/trainings/${id}/doubtful`);
export const compare = (id: string, other: string): Promise<t.Comparison> => getJson(`api/trainings/${id}/compare/${other}`);

export function changedSpans(id: string, other: string, from: number | null, to: number | null): Promise<{ spans: Span[] }> {
  return getJson(`api/trainings/${id}/compare/${other}/spans?${query({ from, to })}`);
}

export const suggestions = (count: number): Promise<{ points: t.Suggestion[] }> => getJson(`api/suggestions?${query({ count })}`);
export const explain = (row: number, col: number): Promise<t.Explanation> => getJson(`api/explain?${query({ row, col })}`);
export const exportRun = (training: string | null): Promise<t.Exported> => post('api/export', training ? { training } : {});
export const runFile = (id: string, file: string): string => `api/runs/${id}/${encodeURIComponent(file)}`;
