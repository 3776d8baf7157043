import type { Op, Result } from "../batch.js";
import { accepted, answer, type Api } from "../call.js";
import { BelayError, LeaseLost, unreadable } from "../error.js";
import type { components } from "../schema.js";
import { after, backoff, fence, linked, Moment, pause } from "../time.js";
import { Attempt, type Assignment, type Handler, type Owner } from "./attempt.js";
import { tellAfterMs } from "./reports.js";

type Schemas = components["schemas"];

/** Log gets messages for operators. They contain no secrets. */
export interface Log {
  warn(message: string, facts: object): void;
  error(message: string, facts: object): void;
}

/** Host is the worker of a session. */
export interface Host {
  readonly api: Api;
  readonly log: Log;
  /** How many more runs the worker can take. */
  free(): number;
  /** Waits until free may have changed, at most for ms. */
  freed(ms: number, signal: AbortSignal): Promise<void>;
  handler(a: Assignment): Handler;
  took(a: Attempt): void;
  returned(): void;
  settled(a: Attempt): void;
  saved(a: Attempt): void;
}

const claimWaitMs = 20_000;
/** How much longer than its wait the answer to a claim may take. */
const claimReplyMs = 10_000;
/** How long a full worker waits for a free slot before it sends a claim that asks only for requests of operators. */
const fullPauseMs = 50;
/** The pause after a heartbeat for which an answer to a claim asked, so that such answers do not make a busy loop. */
const attentionPauseMs = 10;
/** How many errors in a row a claim gets before its number is given up. */
const claimRefusals = 3;
/** The most executions that one claim wins. */
const mostSlots = 128;
/** How long one try of a write may take. */
const writeMs = 10_000;
/**
 * The least time between two heartbeats for the sake of current steps, and the least time for each run that the
 * heartbeat names, since the server reads the row of each.
 */
const tellPauseMs = 1_000;
const tellCostMs = 10;
/** How long the runs report no steps after a server has refused a report. */
const quietMs = 600_000;
/** How often the fence is checked at least: timers stand still while the machine sleeps. */
const fenceCheckMs = 500;

/** Session is a worker's session, with the runs that belong to it. */
export class Session implements Owner {
  readonly #host: Host;
  readonly #ttlMs: number;
  readonly #beatMs: number;
  readonly #runs = new Set<Attempt>();
  readonly #over = new AbortController(); // the session is lost, or the worker has stopped
  readonly #drained = new AbortController();
  #until: Moment; // when the fence closes
  #acked: Moment; // when the last acknowledged heartbeat was sent
  #claimSeen = 0;
  #lost: LeaseLost | undefined;
  #soon = false; // a heartbeat is asked for
  #poke = () => {};
  #waiters: (() => void)[] = [];
  #fenceTimer: ReturnType<typeof setTimeout> | undefined;
  #lookTimer: ReturnType<typeof setTimeout> | undefined; // for a look at the current steps; undefined if none is due
  #beatAt = -Infinity; // when the last heartbeat was sent
  #quietUntil = -Infinity;

  constructor(
    host: Host,
    readonly id: string,
    ttlMs: number,
    beatMs: number,
    sent: Moment,
  ) {
    this.#host = host;
    this.#ttlMs = ttlMs;
    this.#beatMs = Math.max(10, Math.min(beatMs, ttlMs / 2)); // the fence closes after two thirds of the TTL
    this.#acked = sent;
    this.#until = sent.plus(fence(ttlMs));
  }

  get api(): Api {
    return this.#host.api;
  }

  /** serve claims and runs executions until stop is aborted, an operator drains the worker, or the session is lost. */
  async serve(stop: AbortSignal): Promise<{ lost: boolean }> {
    this.#watchFence();
    void this.#heartbeats();
    const claiming = linked(stop, Infinity);
    for (const end of [this.#over.signal, this.#drained.signal]) {
      end.addEventListener("abort", () => claiming.abort(), { once: true });
    }
    try {
      await this.#claims(claiming.signal);
    } finally {
      claiming.release();
    }
    return { lost: this.#lost !== undefined };
  }

  /** stopRuns asks all runs to give their executions back. */
  stopRuns(): void {
    for (const a of this.#runs) a.stop();
  }

  /** drainRuns makes all runs suspend that only wait. */
  drainRuns(): void {
    for (const a of this.#runs) a.drain();
  }

  /** leave ends the session. Its remaining runs write nothing more, and their leases expire by time. */
  leave(): void {
    for (const a of this.#runs) {
      const facts = { worker: this.id, execution: a.execution, workflow: a.workflow };
      this.#host.log.error("a function has not returned; its execution is released when its lease expires", facts);
      a.lose(lost("the function did not return when the worker stopped"));
    }
    this.#end();
  }

  #end(): void {
    clearTimeout(this.#fenceTimer);
    clearTimeout(this.#lookTimer);
    this.#over.abort();
    for (const resolve of this.#waiters.splice(0)) resolve();
  }

  /** lose ends the session and all its runs. */
  #lose(why: LeaseLost): void {
    if (this.#lost !== undefined || this.#over.signal.aborted) return;
    this.#lost = why;
    this.#host.log.warn("the worker's session is lost", {
      worker: this.id,
      runs: this.#runs.size,
      reason: why.message,
    });
    for (const a of this.#runs) a.lose(why);
    this.#runs.clear();
    this.#end();
  }

  // The fence.

  guard(): void {
    if (this.#lost !== undefined) throw this.#lost;
    if (this.#until.left() <= 0) throw this.#cutOff();
  }

  #watchFence(): void {
    if (this.#over.signal.aborted) return;
    const left = this.#until.left();
    if (left <= 0 && this.#runs.size > 0) this.#cutOff();
    this.#fenceTimer = after(Math.min(Math.max(left, 10), fenceCheckMs), () => this.#watchFence());
  }

  /**
   * cutOff ends the runs but not the session: the server may have given their executions to other workers, or will do
   * so soon. If a later heartbeat gets through, it does not name the runs any more, and the server releases them at
   * once.
   */
  #cutOff(): LeaseLost {
    const why = lost("no heartbeat of the worker was answered for two thirds of its TTL");
    this.#host.log.warn("runs ended, because no heartbeat was answered", { worker: this.id, runs: this.#runs.size });
    for (const a of this.#runs) a.lose(why);
    this.#runs.clear();
    return why;
  }

  // Heartbeats.

  async #heartbeats(): Promise<void> {
    let delay = this.#beatMs;
    for (let failures = 0; ;) {
      await this.#sleep(delay);
      if (this.#over.signal.aborted) return;
      this.#soon = false;
      const waiters = this.#waiters.splice(0);
      try {
        await this.#heartbeat();
        failures = 0;
        delay = this.#beatMs;
      } catch {
        delay = Math.min(this.#beatMs, backoff(failures++));
      }
      for (const resolve of waiters) resolve();
    }
  }

  /** sleep waits for ms, or until poke is called or the session is over. */
  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const wake = () => {
        clearTimeout(timer);
        this.#over.signal.removeEventListener("abort", wake);
        this.#poke = () => {};
        resolve();
      };
      const timer = after(this.#soon ? 0 : ms, wake);
      this.#soon = false;
      this.#poke = wake;
      this.#over.signal.addEventListener("abort", wake, { once: true });
      if (this.#over.signal.aborted) wake();
    });
  }

  /** heartbeatNow sends a heartbeat, and waits until it has ended. */
  async #heartbeatNow(): Promise<void> {
    if (this.#over.signal.aborted) return;
    await new Promise<void>((resolve) => {
      this.#waiters.push(resolve);
      this.#heartbeatSoon();
    });
  }

  #heartbeatSoon(): void {
    this.#soon = true;
    this.#poke();
  }

  // Reports of steps.

  get reporting(): boolean {
    return performance.now() >= this.#quietUntil;
  }

  quiet(): void {
    this.#quietUntil = performance.now() + quietMs;
  }

  report(): void {
    if (this.#lookTimer === undefined && !this.#over.signal.aborted) this.#lookIn(tellAfterMs);
  }

  #lookIn(ms: number): void {
    this.#lookTimer = after(ms, () => this.#lookAtSteps());
  }

  /** lookAtSteps sends a heartbeat before the next one is due, if the last one did not name the current steps. */
  #lookAtSteps(): void {
    this.#lookTimer = undefined;
    if (this.#over.signal.aborted) return;
    const all = [...this.#runs].map((a) => a.untold());
    if (!all.some((u) => u.due)) {
      const next = Math.min(...all.map((u) => u.nextMs ?? Infinity));
      if (next !== Infinity) this.#lookIn(Math.max(next, tellAfterMs / 2));
      return;
    }
    const pauseMs = Math.max(tellPauseMs, tellCostMs * all.length);
    const left = pauseMs - (performance.now() - this.#beatAt);
    if (left <= 0) this.#heartbeatSoon();
    this.#lookIn(left <= 0 ? pauseMs : left); // the heartbeat does not name the steps that have just begun
  }

  async #heartbeat(): Promise<void> {
    try {
      await this.#beat();
    } catch (err) {
      if (!(err instanceof BelayError && err.code === "invalid") || !this.reporting) throw err;
      this.quiet(); // a server of an older version refuses fields that it does not know
      await this.#beat();
    }
  }

  async #beat(): Promise<void> {
    this.#beatAt = performance.now();
    const body = { claim_seen: this.#claimSeen, holds: [...this.#runs].map((a) => a.held()) };
    const sent = Moment.now();
    const time = linked(this.#over.signal, this.#ttlMs / 2);
    try {
      const params = { path: { id: this.id } };
      const reply = await answer(this.api.POST("/v1/workers/{id}/heartbeat", { params, body, signal: time.signal }));
      this.#acked = sent;
      this.#carryOut(reply);
      this.#until = sent.plus(fence(reply.expires_in_ms > 0 ? reply.expires_in_ms : this.#ttlMs));
    } catch (err) {
      if (err instanceof LeaseLost) this.#lose(err);
      else if (!isUnknown(err) && this.#acked.left() <= -this.#ttlMs) {
        // The server does not say whether the session is over. An attempt to open another one shows the error.
        this.#lose(lost("the server refused every heartbeat for the whole TTL"));
      }
      throw err;
    } finally {
      time.release();
    }
  }

  /** carryOut passes the requests of a heartbeat's answer to the runs, those about lost leases first. */
  #carryOut(reply: Schemas["HeartbeatReply"]): void {
    const find = (h: { execution: string; token: number }) =>
      [...this.#runs].find((a) => a.execution === h.execution && a.token === h.token);
    for (const h of reply.revoked ?? []) {
      const a = find(h);
      a?.lose(lost(`${h.execution} does not belong to this worker any more`));
      if (a !== undefined) this.#runs.delete(a);
    }
    for (const h of reply.cancel ?? []) find(h)?.cancel(h.within_ms);
    for (const h of reply.pause ?? []) find(h)?.ask("released");
    for (const h of reply.preempt ?? []) find(h)?.ask("preempted");
    for (const h of reply.signals ?? []) find(h)?.signalsUpTo(h.signal_seq);
    if (reply.drain === true) this.#drained.abort();
  }

  // Claims.

  /**
   * claims sends claims until stop is aborted. A claim whose answer was lost is sent again with its number, and gets
   * the executions that it won. An empty answer to it does not end the number, because the first request may still be
   * under way in the server and win executions: the number is given up, so that these are released. After too many
   * errors the number is given up too, and the next claim asks for one execution, so that an execution that makes the
   * answer fail does not keep the others from running.
   */
  async #claims(stop: AbortSignal): Promise<void> {
    let number = 1;
    let slots = 0;
    let repeat = false;
    let refused = 0;
    let most = mostSlots;
    let failures = 0;
    const giveUp = () => {
      this.#claimSeen = number++;
      this.#heartbeatSoon(); // it names no runs of this claim, so that the server releases them
      repeat = false;
      refused = 0;
    };
    while (!stop.aborted) {
      if (!repeat) slots = Math.min(await this.#slots(stop), most);
      try {
        const reply = await this.#claim({ number, slots, repeat, wait_ms: claimWaitMs }, stop);
        failures = refused = 0;
        const won = reply.assignments ?? [];
        const repeated = repeat;
        repeat = stop.aborted && (won.length > 0 || repeat); // the worker stops: it gives the number up
        if (stop.aborted) break;
        if (won.length > 0) {
          this.#won(number++, won);
          most = Math.min(2 * most, mostSlots);
        } else if (repeated) {
          giveUp();
        }
        if (reply.attention === true) {
          await this.#heartbeatNow();
          await pause(attentionPauseMs);
        }
      } catch (err) {
        if (err instanceof LeaseLost) return this.#lose(err);
        if (slots === 0 && this.#host.free() > 0) continue; // aborted because a slot is free; it won nothing
        if (slots > 0) {
          const conflict = err instanceof BelayError && err.code === "conflict";
          repeat = true;
          if (conflict || (!mayPass(err) && ++refused >= claimRefusals)) {
            const facts = { worker: this.id, number, error: String(err) };
            this.#host.log.error("the server refused a claim; the worker gives up its number", facts);
            giveUp();
            if (!conflict) most = 1;
          }
        }
        await pause(backoff(failures++), stop).catch(() => undefined);
      }
    }
    if (repeat) giveUp();
  }

  /** slots is the number of free slots. A full worker waits a moment for a free one. */
  async #slots(stop: AbortSignal): Promise<number> {
    const end = performance.now() + fullPauseMs;
    for (;;) {
      const left = end - performance.now();
      if (this.#host.free() > 0 || left <= 0 || stop.aborted) return this.#host.free();
      await this.#host.freed(left, stop);
    }
  }

  /** claim sends one claim. A claim without slots is aborted as soon as a slot is free. */
  async #claim(body: Schemas["Claim"], stop: AbortSignal): Promise<Schemas["ClaimReply"]> {
    const time = linked(stop, claimWaitMs + claimReplyMs);
    const done = new AbortController();
    if (body.slots === 0) void this.#abortWhenFree(time.abort, done.signal);
    try {
      const params = { path: { id: this.id } };
      const { data } = await accepted(this.api.POST("/v1/workers/{id}/claim", { params, body, signal: time.signal }));
      if (!isReply(data ?? {})) throw unreadable();
      return data ?? {};
    } finally {
      done.abort();
      time.release();
    }
  }

  async #abortWhenFree(abort: () => void, done: AbortSignal): Promise<void> {
    while (!done.aborted && this.#host.free() === 0) await this.#host.freed(claimWaitMs, done);
    if (!done.aborted) abort();
  }

  /** won starts the runs that a claim won. */
  #won(number: number, assignments: Assignment[]): void {
    this.#claimSeen = number;
    for (const assignment of assignments) {
      const a = new Attempt(this, assignment);
      this.#runs.add(a);
      this.#host.took(a);
      if (this.#lost !== undefined) a.lose(this.#lost);
      void this.#execute(a);
    }
  }

  /** execute carries out one run until the server has acknowledged its end. */
  async #execute(a: Attempt): Promise<void> {
    if (!a.isLost) await a.execute(this.#host.handler({ workflow: a.workflow, version: a.version } as Assignment));
    this.#host.returned();
    try {
      await a.settle();
    } catch (err) {
      if (!(err instanceof LeaseLost)) {
        const facts = { worker: this.id, execution: a.execution, error: String(err) };
        this.#host.log.error("the end of a run could not be saved; the server will release the execution", facts);
      }
    }
    this.#runs.delete(a);
    this.#host.settled(a);
  }

  async carry(op: Op, signal: AbortSignal): Promise<Result> {
    const time = linked(signal, writeMs);
    try {
      const { results } = await answer(this.api.POST("/v1/batch", { body: { ops: [op] }, signal: time.signal }));
      const r = Array.isArray(results) ? results[0] : undefined;
      if (r === undefined) throw unreadable();
      return r;
    } finally {
      time.release();
    }
  }

  async callTarget(
    { run, lease }: Assignment,
    body: Schemas["TargetCall"],
    signal: AbortSignal,
  ): Promise<Schemas["TargetAnswer"]> {
    const time = linked(signal, writeMs);
    const header = { "Lease-Id": lease.lease_id, "Lease-Token": lease.token };
    try {
      const params = { path: { id: run }, header };
      return await answer(this.api.POST("/v1/runs/{id}/target", { params, body, signal: time.signal }));
    } finally {
      time.release();
    }
  }

  saved(a: Attempt): void {
    this.#host.saved(a);
  }
}

const lost = (message: string): LeaseLost => new LeaseLost("lease_lost", message);

/** mayPass reports whether the same request may succeed later. */
function mayPass(err: unknown): boolean {
  if (!(err instanceof BelayError)) return true;
  return ["unavailable", "rate_limited", "unauthorized", "forbidden"].includes(err.code);
}

/** isUnknown reports whether a call that got the error may have been carried out, or may be repeated. */
export function isUnknown(err: unknown): boolean {
  return !(err instanceof BelayError) || ["unavailable", "rate_limited", "internal"].includes(err.code);
}

/** isReply reports whether an answer to a claim has the form of one. */
function isReply(reply: unknown): boolean {
  const { assignments = [] } = reply as { assignments?: unknown };
  return (
    Array.isArray(assignments) &&
    assignments.every((a: Partial<Assignment> | null) => typeof a?.lease === "object" && a.lease !== null)
  );
}
