import type { components } from "../schema.js";
import { after } from "../time.js";

type Signal = components["schemas"]["Signal"];

/** Wait is one wait of a function. */
export interface Wait {
  /** The wait, for people. */
  text: string;
  /** When the wait is over, by performance.now(); undefined for never. */
  until: number | undefined;
  /** Selects the signals that end the wait; undefined for a wait for time. */
  wants: ((s: Signal) => boolean) | undefined;
}

/** How long a run whose function only waits keeps its worker before it suspends. */
const lingerMs = 1_000;

/**
 * Waits has the waits of a run. It decides when the run suspends: when the function has waited for a second without a
 * step that is being carried out, or at once when the worker stops.
 */
export class Waits {
  readonly #open = new Map<Wait, () => void>();
  readonly #suspend: (until: number | undefined, text: string) => void;
  #busy = 0;
  #draining = false;
  #over = false;
  #idleSince: number | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** suspend is called once, with the end of the first wait and the text of all. */
  constructor(suspend: (until: number | undefined, text: string) => void) {
    this.#suspend = suspend;
  }

  /** block waits until wake is called, or the time of the wait is over. */
  async block(w: Wait): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#open.set(w, resolve);
      this.#look();
    });
    this.#open.delete(w);
    this.#idleSince = undefined;
  }

  /** wake ends all calls of block, so that each wait looks whether it is over. */
  wake(): void {
    for (const resolve of this.#open.values()) resolve();
  }

  /** busy changes the number of steps that are being carried out. */
  busy(n: number): void {
    this.#busy += n;
    this.#idleSince = undefined;
    this.#look();
  }

  /** drain makes the run suspend as soon as its function only waits. */
  drain(): void {
    this.#draining = true;
    this.#look();
  }

  /** close stops the timer. */
  close(): void {
    this.#over = true;
    clearTimeout(this.#timer);
  }

  #look(): void {
    clearTimeout(this.#timer);
    if (this.#over || this.#open.size === 0) return;
    const now = performance.now();
    const ends = [...this.#open.keys()].flatMap((w) => (w.until === undefined ? [] : [w.until]));
    const next = ends.length > 0 ? Math.min(...ends) : undefined;
    let at = next ?? Infinity;
    if (this.#busy === 0) {
      this.#idleSince ??= now;
      const linger = this.#draining ? now : this.#idleSince + lingerMs;
      if (next === undefined || next > linger) {
        if (linger <= now) return this.#end(next);
        at = linger;
      }
    }
    if (at === Infinity) return;
    this.#timer = after(at - now, () => {
      const now = performance.now();
      for (const [w, resolve] of this.#open) if (w.until !== undefined && w.until <= now) resolve();
      this.#look();
    });
  }

  #end(until: number | undefined): void {
    this.#over = true;
    const texts = [...this.#open.keys()].map((w) => w.text).sort();
    this.#suspend(until, clip(texts.join(", "), 200));
    this.wake();
  }
}

/** clip shortens a text to at most so many bytes. */
export function clip(text: string, most: number): string {
  const bytes = new TextEncoder().encode(text);
  if (bytes.length <= most) return text;
  let end = most;
  while (end > 0 && (bytes[end]! & 0xc0) === 0x80) end--; // not within a character
  return new TextDecoder().decode(bytes.subarray(0, end));
}
