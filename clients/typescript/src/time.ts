/** The longest delay of a timer: one that is longer would fire at once. */
const longestTimerMs = 2 ** 31 - 1;

/** after calls fn once ms have passed. A time that is no number counts as none. */
export function after(ms: number, fn: () => void): ReturnType<typeof setTimeout> {
  return setTimeout(fn, Math.min(Math.max(ms, 0) || 0, longestTimerMs));
}

/** pause waits, or throws as soon as the signal is aborted. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = after(ms, () => {
      signal?.removeEventListener("abort", stop);
      resolve();
    });
    signal?.addEventListener("abort", stop, { once: true });
  });
}

const leastPauseMs = 100;
const mostPauseMs = 2_000;

/** backoff is how long to wait before the next try: doubling, with jitter. */
export function backoff(tries: number): number {
  const most = Math.min(mostPauseMs, leastPauseMs * 2 ** tries);
  return most * (0.5 + Math.random() / 2);
}

/** Linked is a signal that another signal or a timer aborts. */
export interface Linked {
  readonly signal: AbortSignal;
  abort(reason?: unknown): void;
  /** Starts the timer again, from zero. */
  restart(): void;
  /** Stops the timer. */
  stop(): void;
  /** Stops the timer, and forgets the other signal. */
  release(): void;
}

/** linked makes a signal that is aborted with outer, or after ms. Infinity means no timer. */
export function linked(outer: AbortSignal | null | undefined, ms: number): Linked {
  const own = new AbortController();
  const abort = () => own.abort(outer?.reason);
  let timer: ReturnType<typeof setTimeout> | undefined;
  const stop = () => clearTimeout(timer);
  const restart = () => {
    stop();
    if (ms !== Infinity)
      timer = after(ms, () => own.abort(new DOMException(`no answer within ${ms} ms`, "TimeoutError")));
  };
  if (outer?.aborted) abort();
  else outer?.addEventListener("abort", abort, { once: true });
  restart();
  return {
    signal: own.signal,
    abort: (reason) => own.abort(reason),
    restart,
    stop,
    release: () => {
      stop();
      outer?.removeEventListener("abort", abort);
    },
  };
}

/**
 * Moment is a point in time by two clocks: the monotonic clock, which may stand still while the machine sleeps, and the
 * wall clock, which may be set. The clock that is ahead decides how much time is left.
 */
export class Moment {
  private constructor(
    private readonly monotonic: number,
    private readonly wall: number,
  ) {}

  static now(): Moment {
    return new Moment(performance.now(), Date.now());
  }

  plus(ms: number): Moment {
    return new Moment(this.monotonic + ms, this.wall + ms);
  }

  /** left is how many milliseconds are left until the moment. */
  left(): number {
    return Math.min(this.monotonic - performance.now(), this.wall - Date.now());
  }
}

/** fence is the part of a lease's life on which its owner relies. A third is left to end effects that have begun. */
export const fence = (expiresInMs: number): number => (expiresInMs * 2) / 3;

const units: Record<string, number> = { ns: 1e-6, us: 1e-3, µs: 1e-3, μs: 1e-3, ms: 1, s: 1e3, m: 60e3, h: 3600e3 };

/** milliseconds reads a duration as the server writes it, such as 3m20s; undefined if the text is none. */
export function milliseconds(text: string): number | undefined {
  if (!/^(\d+(\.\d+)?(ns|us|µs|μs|ms|s|m|h))+$/.test(text)) return text === "0" ? 0 : undefined;
  let sum = 0;
  for (const [, n, unit] of text.matchAll(/(\d+(?:\.\d+)?)(ns|us|µs|μs|ms|s|m|h)/g)) sum += Number(n) * units[unit!]!;
  return sum;
}
