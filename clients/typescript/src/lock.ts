import { LeaseLost } from "./error.js";
import type { components } from "./schema.js";
import { fence, Moment, pause } from "./time.js";

type LockReply = components["schemas"]["LockReply"];
type Renewal = components["schemas"]["Renewal"];
type Release = components["schemas"]["Release"];
type Failure = components["schemas"]["Failure"];
type Execution = components["schemas"]["Execution"];

/** Owner has the calls of the client that a lock uses. */
export interface Owner {
  renew(execution: string, lock: string, signal: AbortSignal): Promise<Renewal>;
  checkpoint(execution: string, lock: string, token: number, body: components["schemas"]["Progress"]): Promise<number>;
  release(execution: string, lock: string, token: number, body: Release): Promise<Execution>;
}

/** A failure, or the value that was thrown. */
export type Thrown = Failure | Error | string;

/**
 * Lock is the exclusive right to be the owner of one execution, which expires without heartbeats. Once the lock is
 * lost, nothing can be written under it: every call throws LeaseLost, and signal is aborted with that error as its
 * reason.
 */
export class Lock {
  readonly #owner: Owner;
  readonly #lost = new AbortController();
  readonly #over = new AbortController(); // aborted when the lock was released, or is lost
  #until: Moment;

  /** The execution as it was when the lock was won, with its input. */
  readonly execution: Execution;
  /** The secret with which the owner proves that it is the owner. Never log it. */
  readonly id: string;
  /** The fencing token: send it to systems that can refuse a stale owner. */
  readonly token: number;
  /** The newest checkpoint of the last owner; undefined if there is none. */
  readonly checkpoint: unknown;
  /** The newest checkpoint of each key. */
  readonly checkpoints: readonly components["schemas"]["Checkpoint"][];
  /** The signals that no checkpoint has consumed. */
  readonly signals: readonly components["schemas"]["Signal"][];
  /** The interval between heartbeats, in milliseconds. */
  readonly heartbeatMs: number;

  /** sent is when the request for the lock was sent. */
  constructor(owner: Owner, reply: LockReply, sent: Moment) {
    this.#owner = owner;
    this.execution = reply.execution;
    this.id = reply.lease.lock_id;
    this.token = reply.lease.token;
    this.checkpoint = reply.checkpoint?.data;
    this.checkpoints = reply.checkpoints ?? [];
    this.signals = reply.signals ?? [];
    this.heartbeatMs = Math.max(reply.lease.heartbeat_interval_ms, 10);
    this.#until = sent.plus(fence(reply.lease.expires_in_ms));
  }

  /**
   * Aborted as soon as the lock is known to be lost, with LeaseLost as the reason. Pass it to all work under the lock.
   */
  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  /**
   * guard throws if the lock is lost, or if no heartbeat was answered for so long that another owner may get the
   * execution soon. Call it right before every effect on other systems.
   */
  guard(): void {
    this.#lost.signal.throwIfAborted();
    if (this.#until.left() <= 0) {
      throw this.#lose(this.#late());
    }
  }

  /** heartbeat renews the lock. The answer has the requests of operators, such as cancel and pause. */
  async heartbeat(): Promise<Renewal> {
    this.#lost.signal.throwIfAborted();
    const sent = Moment.now();
    const renewal = await this.#fenced(() => this.#owner.renew(this.execution.id, this.id, this.#over.signal));
    this.#until = sent.plus(fence(renewal.expires_in_ms));
    return renewal;
  }

  /**
   * keepAlive sends heartbeats until the lock is released or lost, and resolves then; signal is aborted only if the
   * lock is lost. onRenewal gets the answer to each heartbeat.
   */
  async keepAlive(onRenewal: (r: Renewal) => void = () => {}): Promise<void> {
    let wait = this.heartbeatMs;
    while (!this.#over.signal.aborted) {
      await pause(wait, this.#over.signal).catch(() => undefined);
      if (this.#over.signal.aborted) return;
      const late = pause(this.#until.left() + 1, this.#over.signal).then(
        () => undefined,
        () => undefined,
      );
      const renewal = await Promise.race([this.heartbeat().catch(() => undefined), late]);
      wait = renewal === undefined ? this.heartbeatMs / 5 : this.heartbeatMs; // a failed heartbeat is tried again soon
      if (renewal !== undefined) onRenewal(renewal);
      else if (this.#until.left() <= 0) this.#lose(this.#late());
    }
  }

  /**
   * save writes a checkpoint and returns its seq. Without a key the checkpoint is the state of the execution, and
   * replaces the state saved before. With a key it replaces only the checkpoint with that key.
   */
  async save(data: unknown, key?: string): Promise<number> {
    this.guard();
    const body = key === undefined ? { data } : { data, key };
    return this.#fenced(() => this.#owner.checkpoint(this.execution.id, this.id, this.token, body));
  }

  /** complete ends the execution as succeeded. */
  complete(output?: unknown): Promise<Execution> {
    return this.#release({ outcome: "complete", ...(output === undefined ? {} : { output }) });
  }

  /** fail ends this attempt as failed; the execution's policy decides whether another attempt follows. */
  fail(error: Thrown, output?: unknown): Promise<Execution> {
    return this.#release({ outcome: "fail", error: failure(error), ...(output === undefined ? {} : { output }) });
  }

  /** suspend releases the lock; the execution waits for its next owner, or for the time wait, such as "15m". */
  suspend(o: { wait?: string; waitText?: string } = {}): Promise<Execution> {
    return this.#release({
      outcome: "suspend",
      ...(o.wait === undefined ? {} : { wait: o.wait }),
      ...(o.waitText === undefined ? {} : { wait_text: o.waitText }),
    });
  }

  /** requeue releases the lock, so that the next owner can have the execution at once. */
  requeue(): Promise<Execution> {
    return this.#release({ outcome: "requeue" });
  }

  async #release(body: Release): Promise<Execution> {
    this.#lost.signal.throwIfAborted();
    const execution = await this.#fenced(() => this.#owner.release(this.execution.id, this.id, this.token, body));
    this.#over.abort();
    return execution;
  }

  /** fenced makes a call under the lock, and ends the lock if the server answers that it is lost. */
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

function failure(thrown: Thrown): Failure {
  if (typeof thrown === "string") return { class: "transient", message: thrown };
  if (!(thrown instanceof Error)) return thrown;
  return {
    class: "transient",
    message: `${thrown.name}: ${thrown.message}`,
    ...(thrown.stack === undefined ? {} : { stack: thrown.stack.slice(0, 16_000) }),
  };
}
