/** A record that tells its readers which of its fields have changed. */

export type Listener<T> = (state: Readonly<T>) => void;

export class Store<T extends object> {
  private readonly listeners: { keys: readonly (keyof T)[]; call: Listener<T> }[] = [];

  constructor(private state: T) {}

  get(): Readonly<T> {
    return this.state;
  }

  set(patch: Partial<T>): void {
    const changed = (Object.keys(patch) as (keyof T)[]).filter((key) => patch[key] !== this.state[key]);
    if (changed.length === 0) return;
    this.state = { ...this.state, ...patch };
    for (const { keys, call } of this.listeners) if (keys.some((key) => changed.includes(key))) call(this.state);
  }

  /** Call now, and again whenever one of the fields changes. */
  watch(keys: readonly (keyof T)[], call: Listener<T>): void {
    this.listeners.push({ keys, call });
    call(this.state);
  }
}
