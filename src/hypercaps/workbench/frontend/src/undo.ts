/** What undo and redo show at once, before the server answers; it keeps the real steps on disk. */

import type { Change } from './labelRaster';

export interface Step {
  readonly before: Change[]; // in the order in which they were painted
  readonly after: Change[];
}

/** Steps of this page. A step that it can't undo by itself (a class renamed, labels imported) is kept as null. */
export class LocalHistory {
  private past: (Step | null)[] = [];
  private future: (Step | null)[] = [];

  constructor(private readonly limit = 1000) {}

  push(step: Step | null): void {
    this.past.push(step);
    if (this.past.length > this.limit) this.past.shift();
    this.future = [];
  }

  /** Changes to apply one after another; null if only the server knows them. */
  undo(): Change[] | null {
    const step = this.past.pop() ?? null;
    this.future.push(step);
    return step && [...step.before].reverse();
  }

  redo(): Change[] | null {
    const step = this.future.pop() ?? null;
    this.past.push(step);
    return step && [...step.after];
  }

  /** Forget everything: somebody else has changed the labels. */
  clear(): void {
    this.past = [];
    this.future = [];
  }
}
