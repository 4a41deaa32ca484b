/** The next points to label: shown one after another, labelled by the key of their class. */

import * as api from './api';
import { attempt, notify, type AppStore } from './appState';
import type { Labelling } from './labelling';
import type { MapView } from './mapView';
import type { Suggestion } from './types';

const COUNT = 20;

export class Suggesting {
  private asked = 0; // questions so far; 0 is no number of one
  private asking = 0; // number of the question that is under way
  private readonly rejected = new Set<string>();
  private readonly skipped = new Set<string>();
  private training: string | null = null; // whose points were skipped

  constructor(
    private readonly store: AppStore,
    private readonly labelling: Labelling,
    private readonly view: MapView,
  ) {}

  current(): Suggestion | null {
    const { suggesting } = this.store.get();
    return suggesting?.points[suggesting.index] ?? null;
  }

  /** Go to the next point; ask for more when there is none. */
  async next(): Promise<void> {
    const { suggesting } = this.store.get();
    if (suggesting && suggesting.index + 1 < suggesting.points.length) this.go(suggesting.points, suggesting.index + 1);
    else await this.ask();
  }

  /** Give the point a class and go on. */
  async label(id: number): Promise<void> {
    const point = this.current();
    if (!point || !this.store.get().writer) return;
    this.labelling.stroke(id, 'suggestion', [[point.row, point.col, point.col + 1]]);
    await this.next();
  }

  /** Can't tell: the point is not shown again. */
  async reject(): Promise<void> {
    const point = this.current();
    if (!point) return;
    this.rejected.add(nameOf(point));
    await this.next();
  }

  /** Not now: the others come first. */
  async skip(): Promise<void> {
    const point = this.current();
    if (!point) return;
    this.skipped.add(nameOf(point));
    await this.next();
  }

  end(): boolean {
    const was = this.store.get().suggesting !== null;
    this.asking = 0; // an answer that is on its way shows nothing any more
    this.store.set({ suggesting: null });
    return was;
  }

  private async ask(): Promise<void> {
    if (this.asking) return;
    const number = (this.asking = ++this.asked);
    await this.labelling.queue.idle(); // the answer must know what has just been labelled
    const { current } = this.store.get();
    if (current !== this.training) this.skipped.clear(); // another training suggests other points
    this.training = current;
    const answer = await attempt(this.store, () => api.suggestions(COUNT + this.rejected.size + this.skipped.size));
    if (number !== this.asking) return;
    this.asking = 0;
    if (!answer) return;
    const possible = answer.points.filter((point) => !this.rejected.has(nameOf(point)));
    const points = possible.filter((point) => !this.skipped.has(nameOf(point)));
    if (points.length === 0) this.skipped.clear(); // nothing else is left
    if (possible.length > 0) this.go((points.length > 0 ? points : possible).slice(0, COUNT), 0);
    else {
      this.store.set({ suggesting: null });
      notify(this.store, 'info', 'This training suggests no more points: train again with the new labels for others.');
    }
  }

  private go(points: Suggestion[], index: number): void {
    const { row, col } = points[index]!;
    this.store.set({ suggesting: { points, index }, cursor: { row, col }, keyboard: false, highlight: null });
    this.view.flyTo({ row, col });
  }
}

function nameOf({ row, col }: Suggestion): string {
  return `${row} ${col}`;
}
