/** Loads chunks that are in view, the middle first, a few at a time; what has left the view is given up. */

export interface ChunkId {
  readonly level: number;
  readonly x: number;
  readonly y: number;
}

const AT_ONCE = 2; // of the six connections that a browser opens, scene tiles and events need some
const REST = 2000; // ms until a chunk that failed is tried again

export class ChunkLoader {
  private wanted: ChunkId[] = [];
  private readonly running = new Map<string, AbortController>();
  private readonly resting = new Set<string>();

  constructor(
    private readonly load: (chunk: ChunkId, signal: AbortSignal) => Promise<void>,
    private readonly again: () => void,
  ) {}

  get isIdle(): boolean {
    return this.running.size === 0 && this.wanted.length === 0;
  }

  /** The chunks that are needed now, most urgent first; it replaces what was wanted before. */
  want(chunks: ChunkId[]): void {
    const keys = new Set(chunks.map(keyOf));
    for (const [key, control] of this.running) {
      if (!keys.has(key)) {
        control.abort();
        this.running.delete(key);
      }
    }
    this.wanted = chunks.filter((chunk) => !this.running.has(keyOf(chunk)) && !this.resting.has(keyOf(chunk)));
    this.start();
  }

  private start(): void {
    while (this.running.size < AT_ONCE && this.wanted.length > 0) {
      const chunk = this.wanted.shift()!;
      const control = new AbortController();
      this.running.set(keyOf(chunk), control);
      void this.run(chunk, control);
    }
  }

  private async run(chunk: ChunkId, control: AbortController): Promise<void> {
    const key = keyOf(chunk);
    try {
      await this.load(chunk, control.signal);
    } catch {
      if (!control.signal.aborted) this.rest(key);
    }
    if (this.running.get(key) === control) this.running.delete(key);
    this.start();
  }

  private rest(key: string): void {
    this.resting.add(key);
    setTimeout(() => {
      this.resting.delete(key);
      this.again();
    }, REST);
  }
}

function keyOf({ level, x, y }: ChunkId): string {
  return `${level}/${x}/${y}`;
}
