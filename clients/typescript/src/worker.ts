import { accepted, answer } from "./call.js";
import type { Belay } from "./client.js";
import { invalid, LeaseLost, unreadable } from "./error.js";
import { newWorkerId } from "./id.js";
import type { components } from "./schema.js";
import { after, backoff, linked, milliseconds, Moment, pause } from "./time.js";
import type { Attempt, Handler } from "./worker/attempt.js";
import { permanent } from "./worker/error.js";
import type { Run } from "./worker/run.js";
import { isUnknown, Session, type Host, type Log } from "./worker/session.js";

export { Cancelled, permanent, RunError, Stopping, TimedOut, WaitTimeout, Yield } from "./worker/error.js";
export type { Retry, Run, SignalOptions, StepOptions } from "./worker/run.js";
export type { Log } from "./worker/session.js";

export interface WorkerOptions {
  /** How many functions run at the same time; 10 by default. */
  concurrency?: number;
  /** The queues to claim from; "default" by default. */
  queues?: string[];
  /** The labels of the worker, which executions can require (worker_labels). */
  labels?: Record<string, string>;
  /** The name of the worker, for people. */
  name?: string;
  /** The version of the program, for people. */
  version?: string;
  /** How long the session is valid after a heartbeat, as in "15s", which is the default; at least "1s". */
  ttl?: string;
  /** The interval between heartbeats; a third of the TTL by default. */
  heartbeat?: string;
  /** How long running functions may continue after stop, in milliseconds; 30,000 by default. */
  graceMs?: number;
  /** How long functions may take to return once their AbortSignal is aborted after that; 5,000 by default. */
  unwindMs?: number;
  /** Gets messages for operators; console by default. */
  log?: Log;
}

/** How long the worker tries to tell the server that its session ends. */
const farewellMs = 5_000;
/** How long a worker claims nothing beside a run that may kill its worker. */
const aloneMs = 5_000;

/**
 * Worker claims executions and calls the functions of their workflows. It sends heartbeats for all of them, saves their
 * steps and ends, and gives them back when it stops.
 */
export class Worker {
  readonly #belay: Belay;
  readonly #o: WorkerOptions;
  readonly #concurrency: number;
  readonly #handlers = new Map<string, Handler>();
  readonly #registered: components["schemas"]["Registration"][] = [];
  readonly #stopping = new AbortController();
  readonly #log: Log;
  #started = false;
  #running = 0; // functions that have not returned
  #held = 0; // runs that are not settled
  readonly #alone = new Map<Attempt, ReturnType<typeof setTimeout>>();
  #waiting = new Set<() => void>();

  constructor(belay: Belay, o: WorkerOptions = {}) {
    this.#belay = belay;
    this.#o = o;
    this.#concurrency = o.concurrency ?? 10;
    if (!Number.isSafeInteger(this.#concurrency) || this.#concurrency < 1)
      throw invalid("concurrency must be at least 1");
    this.#log = o.log ?? {
      warn: (m, f) => console.warn(`belay: ${m}`, f),
      error: (m, f) => console.error(`belay: ${m}`, f),
    };
  }

  /**
   * register registers fn as the function for executions of a workflow; with a version, for those that require this
   * version. Input and output are JSON; the server does not check their types.
   */
  register<In = unknown, Out = unknown>(
    workflow: string,
    fn: (input: In, run: Run) => Out | Promise<Out>,
    o: { version?: string } = {},
  ): this {
    if (this.#started) throw invalid(`register ${workflow}: the worker runs already`);
    const key = nameOf(workflow, o.version);
    if (this.#handlers.has(key)) throw invalid(`register ${workflow}: it is registered already`);
    this.#handlers.set(key, fn as Handler);
    this.#registered.push({ workflow, ...(o.version === undefined ? {} : { version: o.version }) });
    return this;
  }

  /**
   * run claims and runs executions until stop is called, the signal is aborted, or an operator drains the worker. Then
   * the worker claims nothing more; running functions have graceMs to finish, and functions that only wait suspend.
   * After that the signals of the remaining functions are aborted, and other workers continue their executions at once.
   * run throws if the server refuses the worker, or if a function did not return in time.
   */
  async run(o: { signal?: AbortSignal } = {}): Promise<void> {
    if (this.#started) throw invalid("run: a worker runs once");
    if (this.#registered.length === 0) throw invalid("run: no workflow is registered");
    this.#started = true;
    const stop = linked(o.signal, Infinity);
    const abort = () => stop.abort();
    this.#stopping.signal.addEventListener("abort", abort, { once: true });
    if (this.#stopping.signal.aborted) abort();
    try {
      for (;;) {
        const session = await this.#open(stop.signal);
        if (session === undefined) return await this.#settledAll(this.#o.unwindMs ?? 5_000);
        const { lost } = await session.serve(stop.signal);
        if (!lost) return await this.#stop(session);
      }
    } finally {
      stop.release();
    }
  }

  /** stop begins a graceful stop; the promise of run resolves when it is over. */
  stop(): void {
    this.#stopping.abort();
  }

  /** open opens a session. It tries again after errors that may pass; it returns undefined when stop is aborted. */
  async #open(stop: AbortSignal): Promise<Session | undefined> {
    const { queues, labels, version, ttl, heartbeat, name = defaultName() } = this.#o;
    const given = Object.fromEntries(
      Object.entries({ queues, labels, version, ttl, heartbeat }).filter(([, v]) => v !== undefined),
    );
    const spec = { ...given, name, workflows: this.#registered, capacity: this.#concurrency };
    for (let id = newWorkerId(), tries = 0; !stop.aborted; tries++) {
      const sent = Moment.now();
      try {
        const got = await answer(this.#belay.api.POST("/v1/workers", { body: { ...spec, id }, signal: stop }));
        if (got.warning) this.#log.warn(got.warning, { worker: got.id });
        const [ttlMs, beatMs] = [milliseconds(got.ttl), milliseconds(got.heartbeat)];
        if (!got.id || !ttlMs || !beatMs) throw unreadable();
        return new Session(this.#host, got.id, ttlMs, beatMs, sent);
      } catch (err) {
        if (stop.aborted) return undefined;
        if (err instanceof LeaseLost)
          id = newWorkerId(); // the session was opened, its answer was lost, and it has ended
        else if (!isUnknown(err)) throw err;
      }
      await pause(backoff(tries), stop).catch(() => undefined);
    }
    return undefined;
  }

  async #stop(session: Session): Promise<void> {
    const drained = this.#tell((signal) =>
      this.#belay.api.POST("/v1/workers/{id}/drain", { params: { path: { id: session.id } }, signal }),
    );
    session.drainRuns();
    let failure: unknown;
    await this.#settledAll(this.#o.graceMs ?? 30_000).catch(async () => {
      session.stopRuns();
      await this.#settledAll(this.#o.unwindMs ?? 5_000).catch((err: unknown) => (failure = err));
    });
    const left = this.#running;
    session.leave();
    await drained;
    // While a function runs, the session stays open: another worker would begin the execution at once.
    if (left === 0) {
      await this.#tell((signal) =>
        this.#belay.api.DELETE("/v1/workers/{id}", { params: { path: { id: session.id } }, signal }),
      );
    }
    if (failure !== undefined) throw failure;
  }

  /** tell makes a call about the end of a session. If it does not get through, the session ends by its TTL. */
  async #tell(call: (signal: AbortSignal) => Parameters<typeof accepted>[0]): Promise<void> {
    const time = linked(undefined, farewellMs);
    try {
      for (let tries = 0; ; tries++) {
        try {
          await accepted(call(time.signal));
          return;
        } catch (err) {
          if (!isUnknown(err)) return;
        }
        await pause(backoff(tries), time.signal);
      }
    } catch {
      // the time is over
    } finally {
      time.release();
    }
  }

  /** settledAll waits until every run is settled, at most for ms. */
  async #settledAll(ms: number): Promise<void> {
    const end = performance.now() + ms;
    while (this.#held > 0) {
      const left = end - performance.now();
      if (left <= 0) throw new Error(`${this.#held} runs of the worker did not end within ${ms} ms`);
      await this.#freed(left);
    }
  }

  readonly #host: Host = (() => {
    const worker = this as Worker;
    return {
      get api() {
        return worker.#belay.api;
      },
      get log() {
        return worker.#log;
      },
      // A slot is free as soon as its function has returned; as many runs may be waiting for their end to be saved.
      free: () =>
        this.#alone.size > 0
          ? 0
          : Math.max(0, Math.min(this.#concurrency - this.#running, 2 * this.#concurrency - this.#held)),
      freed: (ms, signal) => this.#freed(ms, signal),
      handler: ({ workflow, version }) =>
        this.#handlers.get(nameOf(workflow, version)) ??
        (() => {
          throw permanent(`workflow ${JSON.stringify(workflow)} is not registered with this worker`);
        }),
      took: (a) => {
        this.#running++;
        this.#held++;
        if (a.alone)
          this.#alone.set(
            a,
            after(aloneMs, () => this.#joined(a)),
          );
      },
      returned: () => {
        this.#running--;
        this.#wake();
      },
      settled: (a) => {
        this.#held--;
        this.#joined(a);
        this.#wake();
      },
      saved: (a) => this.#joined(a),
    } satisfies Host;
  })();

  /** joined lets the worker claim other executions beside a run that may kill its worker. */
  #joined(a: Attempt): void {
    clearTimeout(this.#alone.get(a));
    if (this.#alone.delete(a)) this.#wake();
  }

  #wake(): void {
    for (const resolve of this.#waiting) resolve();
  }

  /** freed waits until a function has returned or a run is settled, at most for ms. */
  #freed(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const end = () => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", end);
        this.#waiting.delete(end);
        resolve();
      };
      const timer = after(ms, end);
      this.#waiting.add(end);
      signal?.addEventListener("abort", end, { once: true });
      if (signal?.aborted) end();
    });
  }
}

const nameOf = (workflow: string, version: string | undefined): string => JSON.stringify([workflow, version ?? ""]);

/** defaultName is the process id, where there are processes. */
function defaultName(): string {
  const pid = (globalThis as { process?: { pid?: number } }).process?.pid;
  return pid === undefined ? "belay-client" : `belay-client/${pid}`;
}
