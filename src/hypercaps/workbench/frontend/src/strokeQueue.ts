/** Sends changes of the labels in order, one at a time, and repeats what was not answered: the server knows a stroke by its uuid. */

export interface Entry {
  readonly uuid: string;
  /** Sends the entry; refusals are thrown as `Refused`, anything else means that the server was not reached. */
  send(): Promise<void>;
  /** The server refused: what was painted must go. */
  refused(reason: string): void;
}

/** The server has answered, and will not take it. */
export class Refused extends Error {
  constructor(
    message: string,
    readonly status: number,
  ) {
    super(message);
  }
}

export interface QueueState {
  readonly waiting: number;
  readonly offline: boolean;
}

const PAUSES = [250, 500, 1000, 2000, 4000]; // ms between attempts

export class StrokeQueue {
  private entries: Entry[] = [];
  private running = false;
  private offline = false;

  constructor(
    private readonly report: (state: QueueState) => void,
    private readonly pause: (ms: number) => Promise<void> = (ms) => new Promise((done) => setTimeout(done, ms)),
  ) {}

  get waiting(): number {
    return this.entries.length;
  }

  add(entry: Entry): void {
    this.entries.push(entry);
    this.tell();
    if (!this.running) void this.run();
  }

  /** Resolves when nothing waits any more. */
  async idle(): Promise<void> {
    while (this.running) await new Promise((done) => setTimeout(done, 5));
  }

  private async run(): Promise<void> {
    this.running = true;
    for (let failures = 0; this.entries.length > 0; ) {
      const entry = this.entries[0]!;
      try {
        await entry.send();
        failures = 0;
        this.offline = false;
      } catch (error) {
        if (!(error instanceof Refused)) {
          this.offline = true;
          this.tell();
          await this.pause(PAUSES[Math.min(failures++, PAUSES.length - 1)]!);
          continue;
        }
        entry.refused(error.message);
      }
      this.entries.shift();
      this.tell();
    }
    this.running = false;
  }

  private tell(): void {
    this.report({ waiting: this.entries.length, offline: this.offline });
  }
}

/** A random uuid (version 4); also where the page is not a secure context, as behind `--host`. */
export function newUuid(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6]! & 0x0f) | 0x40;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('');
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}
