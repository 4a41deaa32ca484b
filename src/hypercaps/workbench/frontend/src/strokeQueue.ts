/** Sends changes of the labels in order, one at a time, and repeats what was not answered: the server knows a stroke by its uuid. */

export interface Entry {
  readonly uuid: string;
  /** Sends the entry; an answer other than success is thrown as `Refused`, anything else means that none came. */
  send(): Promise<void>;
  /** The server refused: what was painted must go. */
  refused(reason: string): void;
}

/** The server has answered, and has not taken it. */
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
  readonly reason: string | null; // why the server does not take it now, if it said so
}

/** Whether the server may take it later: it was started again, another page is writing, or its disk is full. */
function mayPass({ status }: Refused): boolean {
  return [403, 503, 507].includes(status);
}

const PAUSES = [250, 500, 1000, 2000, 4000]; // ms between attempts

export class StrokeQueue {
  private entries: Entry[] = [];
  private running = false;
  private offline = false;
  private reason: string | null = null;

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
        this.reason = null;
      } catch (error) {
        if (!(error instanceof Refused) || mayPass(error)) {
          this.offline = true;
          this.reason = error instanceof Refused ? error.message : null;
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
    this.report({ waiting: this.entries.length, offline: this.offline, reason: this.reason });
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
