import { LeaseLost } from "./error.js";
import { pause } from "./fetch.js";
import type { components } from "./schema.js";

type LockReply = components["schemas"]["LockReply"];
type Renewal = components["schemas"]["Renewal"];
type Release = components["schemas"]["Release"];
type Failure = components["schemas"]["Failure"];
type Execution = components["schemas"]["Execution"];

/** What a lock needs of its client. */
export interface Owner {
  renew(execution: string, lock: string): Promise<Renewal>;
  checkpoint(execution: string, lock: string, token: number, body: components["schemas"]["Progress"]): Promise<number>;
  release(execution: string, lock: string, token: number, body: Release): Promise<Execution>;
}

/** A failure, or what was thrown. */
export type Thrown = Failure | Error | string;

/**
 * Lock is the exclusive, expiring right to be one execution's owner. Once it is lost nothing can be written any more: every
 * call throws LeaseLost, and signal is aborted with it.
 */
export class Lock {
  readonly #owner: Owner;
  readonly #lost = new AbortController();
  readonly #over = new AbortController(); // it was given back, or is lost
  #until: Moment;

  /** The execution as it was when the lock was won, with its input. */
  readonly execution: Execution;
  /** The secret that proves to be the owner. Never log it. */
  readonly id: string;
  /** The fencing token: hand it to whatever can refuse a stale writer. */
  readonly token: number;
  /** What the last owner saved; undefined if nothing. */
  readonly checkpoint: unknown;
  /** The newest checkpoint of each key. */
  readonly checkpoints: readonly components["schemas"]["Checkpoint"][];
  /** Signals that nobody has taken yet. */
  readonly signals: readonly components["schemas"]["Signal"][];
  /** How often to renew it. */
  readonly heartbeatMs: number;

  /** asked is when the request for the lock was sent. */
  constructor(owner: Owner, reply: LockReply, asked: Moment) {
    this.#owner = owner;
    this.execution = reply.execution;
    this.id = reply.lease.lock_id;
    this.token = reply.lease.token;
    this.checkpoint = reply.checkpoint?.data;
    this.checkpoints = reply.checkpoints ?? [];
    this.signals = reply.signals ?? [];
    this.heartbeatMs = reply.lease.heartbeat_interval_ms;
    this.#until = asked.plus(fence(reply.lease.expires_in_ms));
  }

  /** Aborted, with LeaseLost as the reason, as soon as the lock is known to be lost. Pass it to whatever works under it. */
  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  /**
   * guard throws if the lock is lost, or may be: if no heartbeat was answered for so long that another owner may get
   * the execution soon. Call it right before every effect on the world outside.
   */
  guard(): void {
    this.#lost.signal.throwIfAborted();
    if (this.#until.left() <= 0) {
      throw this.#lose(this.#late());
    }
  }

  /** heartbeat renews the lock. Its answer says what the owner is asked to do: cancel, pause. */
  async heartbeat(): Promise<Renewal> {
    this.#lost.signal.throwIfAborted();
    const asked = Moment.now();
    const renewal = await this.#fenced(() => this.#owner.renew(this.execution.id, this.id));
    this.#until = asked.plus(fence(renewal.expires_in_ms));
    return renewal;
  }

  /**
   * keepAlive renews the lock until it is given back or lost, and resolves then; signal says which. What a heartbeat asks the
   * owner to do is passed to onRenewal.
   */
  async keepAlive(onRenewal: (r: Renewal) => void = () => {}): Promise<void> {
    let wait = this.heartbeatMs;
    while (!this.#over.signal.aborted) {
      await pause(wait, this.#over.signal).catch(() => undefined);
      if (this.#over.signal.aborted) return;
      const late = pause(this.#until.left() + 1, this.#over.signal).then(() => undefined, () => undefined);
      const renewal = await Promise.race([this.heartbeat().catch(() => undefined), late]);
      wait = renewal === undefined ? this.heartbeatMs / 5 : this.heartbeatMs; // as long as it holds, it is tried again
      if (renewal !== undefined) onRenewal(renewal);
      else if (this.#until.left() <= 0) this.#lose(this.#late());
    }
  }

  /**
   * save writes a checkpoint and answers with its seq. Without a key it is the execution's one state, which replaces the
   * one before; with a key it stands beside the others.
   */
  save(data: unknown, key?: string): Promise<number> {
    this.guard();
    return this.#fenced(() => this.#owner.checkpoint(this.execution.id, this.id, this.token, key === undefined ? { data } : { data, key }));
  }

  /** complete ends the execution well. */
  complete(output?: unknown): Promise<Execution> {
    return this.#release({ outcome: "complete", ...(output === undefined ? {} : { output }) });
  }

  /** fail ends this attempt badly; the execution's policy says what follows. */
  fail(error: Thrown, output?: unknown): Promise<Execution> {
    return this.#release({ outcome: "fail", error: failure(error), ...(output === undefined ? {} : { output }) });
  }

  /** suspend gives the lock back until somebody locks the execution again. wait ("15m") is when it is due by itself. */
  suspend(o: { wait?: string; waitText?: string } = {}): Promise<Execution> {
    return this.#release({
      outcome: "suspend",
      ...(o.wait === undefined ? {} : { wait: o.wait }),
      ...(o.waitText === undefined ? {} : { wait_text: o.waitText }),
    });
  }

  /** requeue gives the lock back for the next owner to have at once. */
  requeue(): Promise<Execution> {
    return this.#release({ outcome: "requeue" });
  }

  async #release(body: Release): Promise<Execution> {
    this.#lost.signal.throwIfAborted();
    const execution = await this.#fenced(() => this.#owner.release(this.execution.id, this.id, this.token, body));
    this.#over.abort();
    return execution;
  }

  /** fenced makes a call under the lock, and takes note if the answer is that it is lost. */
  async #fenced<T>(call: () => Promise<T>): Promise<T> {
    try {
      return await call();
    } catch (err) {
      if (err instanceof LeaseLost) this.#lose(err);
      throw err;
    }
  }

  #late(): LeaseLost {
    return new LeaseLost("lease_lost", `no heartbeat of the lock on ${this.execution.id} was answered in time`);
  }

  #lose(err: LeaseLost): LeaseLost {
    if (!this.#over.signal.aborted) this.#lost.abort(err);
    this.#over.abort();
    return err;
  }
}

/** fence is how much of a lease's life its owner counts on. A third is left for what cannot be called back. */
const fence = (expiresInMs: number): number => (expiresInMs * 2) / 3;

function failure(thrown: Thrown): Failure {
  if (typeof thrown === "string") return { class: "transient", message: thrown };
  if (!(thrown instanceof Error)) return thrown;
  return { class: "transient", message: `${thrown.name}: ${thrown.message}`, ...(thrown.stack === undefined ? {} : { stack: thrown.stack.slice(0, 16_000) }) };
}

/**
 * Moment is a point in time by both clocks: the monotonic one, which may stand still while the machine sleeps, and the
 * wall's, which may be set. What is left is what the one that is ahead says.
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

  /** left is how many milliseconds are left until then, by the clock that is ahead. */
  left(): number {
    return Math.min(this.monotonic - performance.now(), this.wall - Date.now());
  }
}
