/** The next points to label: shown one after another, labelled by the key of their class. */

import * as api from './api';
import { attempt, notify, type AppStore } from './appState';
import type { Labelling } from './labelling';
import type { MapView } from './mapView';
import type { Suggestion } from './types';

const COUNT = 20;

export class Suggesting {
  private isAsking = false;
  private readonly rejected = new Set<string>();

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

  previous(): void {
    const { suggesting } = this.store.get();
    if (suggesting && suggesting.index > 0) this.go(suggesting.points, suggesting.index - 1);
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
    this.rejected.add(`${point.row} ${point.col}`);
    await this.next();
  }

  end(): boolean {
    const was = this.store.get().suggesting !== null;
    this.store.set({ suggesting: null });
    return was;
  }

  private async ask(): Promise<void> {
    if (this.isAsking) return;
    this.isAsking = true;
    await this.labelling.queue.idle(); // the answer must know what has just been labelled
    const answer = await attempt(this.store, () => api.suggestions(COUNT + this.rejected.size));
    this.isAsking = false;
    if (!answer) return;
    const points = answer.points.filter(({ row, col }) => !this.rejected.has(`${row} ${col}`));
    if (points.length === 0) {
      this.store.set({ suggesting: null });
      notify(this.store, 'info', 'There is nothing to suggest.');
    } else this.go(points, 0);
  }

  private go(points: Suggestion[], index: number): void {
    const { row, col } = points[index]!;
    this.store.set({ suggesting: { points, index }, cursor: { row, col }, keyboard: false, highlight: null });
    this.view.flyTo({ row, col });
  }
}
