import type { Op, Result } from "../batch.js";
import { answer, type Api } from "../call.js";
import { BelayError, LeaseLost, ofProblem } from "../error.js";
import { newOpId } from "../id.js";
import type { components } from "../schema.js";
import { after, backoff, milliseconds, pause } from "../time.js";
import { sumOf, tokensOf, unitsOf } from "./cost.js";
import { Cancelled, permanent, refused, RunError, Stopping, TimedOut, WaitTimeout, Yield } from "./error.js";
import { copy, mostText, outcomeOf, type Returned, type Settle } from "./outcome.js";
import { type Doing, Reports, type StepReport } from "./reports.js";
import { parserOf, type Run, type SignalOptions, type StepOptions } from "./run.js";
import { blame, type Circuit, circuitOf } from "./target.js";
import { clip, Waits, type Wait } from "./waits.js";

type Schemas = components["schemas"];
export type Assignment = Schemas["Assignment"];
/** Handler is a workflow function whose input and output are JSON. */
export type Handler = (input: never, run: Run) => unknown;

/** Owner has the calls of a session that its runs use. */
export interface Owner {
  readonly api: Api;
  /** Throws if the session is lost, or may be. */
  guard(): void;
  /** Carries out one operation, once. */
  carry(op: Op, signal: AbortSignal): Promise<Result>;
  /** Asks before the call of a target, or reports its end, once. */
  callTarget(a: Assignment, call: Schemas["TargetCall"], signal: AbortSignal): Promise<Schemas["TargetAnswer"]>;
  /** Is called after each checkpoint that a run has saved. */
  saved(a: Attempt): void;
  /** Whether runs report their steps now. */
  readonly reporting: boolean;
  /** Is called when a step or wait has begun, or one has ended that a heartbeat has named. */
  report(): void;
  /** Makes the runs report no steps for some time, because a server refuses reports. */
  quiet(): void;
}

/** Name is the state of one key: its checkpoint, and whether this run has used it. */
interface Name {
  kind: "step" | "wait" | undefined;
  data: unknown;
  /** How long ago the checkpoint was saved when the run began, in milliseconds. */
  ageMs: number;
  used: boolean;
}

/** Waited is the data of a wait's checkpoint. The workers of the Go SDK write the same. */
interface Waited {
  sleep?: string;
  timeout?: string;
  /** The wait has consumed a signal with a wrong payload; the next run waits anew, for the whole timeout. */
  refused?: boolean;
  ended?: "signal" | "timeout";
  payload?: unknown;
}

/** The longest duration of a wait, in milliseconds. */
const longestWaitMs = 100 * 365 * 86400e3;

/** Attempt is one run of an execution, from its claim until its end is saved. */
export class Attempt implements Run {
  readonly #owner: Owner;
  readonly #a: Assignment;
  readonly #began = performance.now();
  readonly #names = new Map<string, Name>();
  readonly #ended = new AbortController(); // the function must end
  readonly #life = new AbortController(); // the lease is lost; until then a function that must end can still save
  readonly #steps = new Set<Promise<unknown>>();
  readonly #waits = new Waits((until, text) => this.#suspend(until, text));
  readonly #reports = new Reports(() => this.#owner.report());
  #signals: Schemas["Signal"][] = [];
  #seen = 0;
  #announced = 0;
  #reading: Promise<boolean> | undefined;
  #state: unknown;
  #cost = 0; // in ten-thousandths of a token
  #progressAt = this.#began;
  #timer: ReturnType<typeof setTimeout> | undefined;

  #lost: unknown;
  #stop: "suspend" | "give" | undefined;
  #asked: "released" | "preempted" | "circuit_open" | undefined;
  #circuit: Circuit | undefined;
  #until: number | undefined;
  #waitText = "";
  #cancelled = false;
  #stopped = false;
  #timedOut = false;
  #returned = false;
  #result: Returned = { failed: false, output: undefined };

  constructor(owner: Owner, a: Assignment) {
    this.#owner = owner;
    this.#a = a;
    this.#ended.signal.addEventListener("abort", () => this.#waits.wake());
    this.#announced = a.signal_seq ?? 0;
    this.#take(a.checkpoints, a.signals);
    this.#seen = Math.max(this.#seen, this.#announced);
    const limits = [a.remaining_ms ?? 0, milliseconds(a.policy?.run_timeout ?? "0") ?? 0].filter((ms) => ms > 0);
    if (limits.length > 0) this.#timer = after(Math.min(...limits), () => this.#timeOut());
  }

  get execution(): string {
    return this.#a.lease.execution;
  }
  get workflow(): string {
    return this.#a.workflow;
  }
  get version(): string | undefined {
    return this.#a.version;
  }
  get queue(): string {
    return this.#a.queue;
  }
  get attempt(): number {
    return this.#a.attempt;
  }
  get token(): number {
    return this.#a.lease.token;
  }
  get lease(): Schemas["Lease"] {
    return this.#a.lease;
  }
  get signal(): AbortSignal {
    return this.#ended.signal;
  }
  get state(): unknown {
    return this.#state;
  }
  get alone(): boolean {
    return this.#a.alone ?? false;
  }
  get isLost(): boolean {
    return this.#lost !== undefined;
  }

  /** held is the entry of the run in a heartbeat. */
  held(): Schemas["Held"] {
    const idle =
      this.#a.policy?.idle_timeout === undefined ? {} : { idle_ms: Math.round(performance.now() - this.#progressAt) };
    const steps = this.#owner.reporting ? this.#reports.current() : [];
    return { execution: this.execution, token: this.token, ...idle, ...(steps.length > 0 ? { steps } : {}) };
  }

  /** untold reports whether a heartbeat would name other steps than the last one; see Reports. */
  untold(): { due: boolean; nextMs: number | undefined } {
    return this.#owner.reporting ? this.#reports.untold() : { due: false, nextMs: undefined };
  }

  #takeReports(): { steps?: StepReport[] } {
    const steps = this.#reports.take();
    return steps.length > 0 && this.#owner.reporting ? { steps } : {};
  }

  // The requests of the session.

  /** lose ends the run because its lease is lost. The run writes nothing more. */
  lose(why: LeaseLost): void {
    if (this.#lost !== undefined) return;
    this.#lost = why;
    this.#life.abort(why);
    this.#ended.abort(why);
  }

  /** cancel ends the function because the execution was cancelled. */
  cancel(withinMs: number): void {
    this.#cancelled = true;
    this.#ended.abort(new Cancelled(withinMs));
  }

  /** ask makes the run give its execution back at its next step or wait. */
  ask(outcome: "released" | "preempted" | "circuit_open"): void {
    this.#asked ??= outcome;
    this.#waits.wake();
  }

  /** drain makes the run suspend as soon as its function only waits. */
  drain(): void {
    this.#waits.drain();
  }

  /** stop ends the function because its worker stops. */
  stop(): void {
    this.#stopped = true;
    this.#ended.abort(new Stopping());
  }

  /** signalsUpTo notes that signals up to a seq were delivered. */
  signalsUpTo(seq: number): void {
    this.#announced = Math.max(this.#announced, seq);
    this.#waits.wake();
  }

  #timeOut(): void {
    this.#timedOut = true;
    this.#ended.abort(new TimedOut());
  }

  #suspend(until: number | undefined, text: string): void {
    this.#stop = "suspend";
    this.#until = until;
    this.#waitText = text;
  }

  // The function and its end.

  /** execute calls the function, and waits until it and its steps have ended. settle must follow. */
  async execute(fn: Handler): Promise<void> {
    try {
      const input = await this.#resume();
      this.#result = { failed: false, output: await fn(input as never, this) };
    } catch (error) {
      this.#result = { failed: true, error };
      if (this.#stop === undefined && this.#asked !== undefined && error instanceof Yield) this.#stop = "give";
    }
    this.#returned = true;
    if (this.#steps.size > 0 && this.#stop === undefined)
      this.#ended.abort(new Error("the workflow function has returned"));
    this.#waits.wake();
    while (this.#steps.size > 0) await Promise.allSettled(this.#steps);
    this.#waits.close();
    clearTimeout(this.#timer);
  }

  /** resume reads the input, checkpoints and signals for which the answer to the claim had no room. */
  async #resume(): Promise<unknown> {
    let input = this.#a.input;
    let last = this.#last(this.#a);
    for (let more = this.#a.more ?? false; more;) {
      const header = { "Lease-Id": this.lease.lease_id, "Lease-Token": this.token };
      const params = { path: { id: this.execution }, header, query: { after: last } };
      const signal = this.#life.signal;
      const part = await answer(this.#owner.api.GET("/v1/executions/{id}/checkpoints", { params, signal }));
      if (last === 0) input = part.input;
      this.#take(part.checkpoints, part.signals);
      last = Math.max(last, this.#last(part));
      more = part.more ?? false;
    }
    return input;
  }

  #last(part: Pick<Assignment, "checkpoints" | "signals">): number {
    return Math.max(0, ...[...(part.checkpoints ?? []), ...(part.signals ?? [])].map((x) => x.seq));
  }

  #take(checkpoints: Schemas["Checkpoint"][] = [], signals: Schemas["Signal"][] = []): void {
    const late = performance.now() - this.#began; // the ages were measured before the run began
    for (const { kind, key, data, age_ms } of checkpoints) {
      if (kind === "state") this.#state = data;
      else this.#names.set(key, { kind, data, ageMs: (age_ms ?? 0) - late, used: false });
    }
    this.#signals.push(...signals);
    this.#seen = Math.max(this.#seen, ...signals.map((s) => s.seq));
  }

  /** settle saves the end of the run, unless its lease is lost. It throws if the server did not accept the end. */
  async settle(): Promise<void> {
    let s = this.#settlement();
    for (;;) {
      try {
        await this.#write("settle", (repeat) => ({ settle: { ...s.settle, lease: this.lease, op: s.op, repeat } }));
        return;
      } catch (err) {
        if (s.settle.steps !== undefined && isInvalid(err)) {
          const { steps: _, ...rest } = s.settle;
          s = { op: s.op, settle: rest };
          continue;
        }
        if (s.settle.output === undefined || !(err instanceof RunError && err.permanent)) throw err;
        const { output: _, ...rest } = s.settle; // the server refuses this output for good
        s = { op: newOpId(), settle: rest };
        if (rest.outcome !== "succeeded") continue;
        s.settle = {
          ...rest,
          outcome: "failed",
          failure: { class: "permanent", message: clip(err.message, mostText) },
        };
      }
    }
  }

  #settlement(): { op: string; settle: Settle } {
    const outcome = outcomeOf({
      result: this.#result,
      stop: this.#stop,
      asked: this.#asked,
      circuit: this.#circuit,
      wait: { until: this.#until, text: this.#waitText, seen: this.#seen },
      cancelled: this.#cancelled,
      stopped: this.#stopped,
      timedOut: this.#timedOut,
    });
    return { op: newOpId(), settle: { ...outcome, cost_tokens: tokensOf(this.#takeCost()), ...this.#takeReports() } };
  }

  // The calls of the function.

  guard(): void {
    if (this.#lost !== undefined) throw this.#lost;
    this.#owner.guard();
  }

  progress(): void {
    this.#progressAt = performance.now();
  }

  addCost(tokens: number): void {
    const units = unitsOf(tokens);
    if (units === undefined) {
      throw permanent(`addCost: ${tokens} is not a number of tokens with at most four decimals, below a hundred billion`);
    }
    const sum = sumOf(this.#cost, units);
    if (sum === undefined) throw permanent("addCost: the costs of one step are a hundred billion tokens or more");
    this.#cost = sum;
  }

  #takeCost(): number {
    const cost = this.#cost;
    this.#cost = 0;
    return cost;
  }

  step<T>(key: string, fn: (signal: AbortSignal) => T | Promise<T>, options: StepOptions = {}): Promise<T> {
    const { target } = options;
    const call = target === undefined ? fn : () => this.#called(target, key, fn);
    return this.#begun(async () => {
      const name = this.#use("step", key);
      if (name.kind !== undefined) return name.data as T;
      this.#waits.busy(1);
      let doing: Doing | undefined;
      try {
        const result = await this.#tried(call, options, (n) => {
          this.#reports.drop(doing);
          return (doing = this.#reports.begin("step", key, (options.attempts ?? 1) > 1 ? n : undefined));
        });
        const value = copy(result, `the result of step ${JSON.stringify(key)}`);
        await this.#save(`save step ${JSON.stringify(key)}`, "step", key, value, 0, doing);
        return value;
      } catch (err) {
        name.used = false;
        throw err;
      } finally {
        this.#reports.drop(doing);
        this.#waits.busy(-1);
      }
    });
  }

  async #tried<T>(
    fn: (signal: AbortSignal) => T | Promise<T>,
    options: StepOptions,
    begin: (n: number) => Doing,
  ): Promise<T> {
    const { attempts = 1, baseMs = 0, capMs = Infinity } = options;
    for (let n = 1, delay = baseMs; ; n++, delay = Math.min(delay * 2, capMs)) {
      this.#pass();
      const doing = begin(n);
      try {
        const result = await fn(this.signal);
        this.#reports.end(doing, false);
        return result;
      } catch (err) {
        this.#reports.end(doing, true, err);
        this.progress();
        const last = n >= attempts || this.signal.aborted || err instanceof Yield;
        if (last || (err instanceof RunError && err.permanent)) throw err;
        const least = err instanceof RunError ? (err.retryAfterMs ?? 0) : 0;
        await pause(Math.max(delay * (0.5 + Math.random() / 2), least), this.signal);
      }
    }
  }

  /**
   * called calls fn if the circuit breaker of the target lets the call through, and reports how the call ended. Else
   * the run gives its execution back.
   */
  async #called<T>(target: string, step: string, fn: (signal: AbortSignal) => T | Promise<T>): Promise<T> {
    const send = (call: Schemas["TargetCall"]) => this.#owner.callTarget(this.#a, call, this.#life.signal);
    const answer = await this.#answered(`ask for the target ${target}`, () => send({ target, step }));
    if (answer.open !== true) {
      this.#circuit ??= circuitOf(target, answer);
      this.ask("circuit_open");
    }
    let outcome = "succeeded" as "succeeded" | "failed" | "released";
    try {
      this.#pass();
      return await fn(this.signal);
    } catch (err) {
      outcome = blame(err, this.signal);
      throw err;
    } finally {
      const report = () => send({ target, step, outcome });
      // A repeated report of another call than a probe could count twice. A lost one does not change the step.
      if (answer.probe === true) await this.#answered("report a probe", report).catch(() => undefined);
      else if (outcome === "failed") await report().catch(() => undefined);
    }
  }

  saveState(state: unknown): Promise<void> {
    return this.#begun(async () => {
      const value = copy(state, "the state");
      await this.#save("save the state", "state", "state", value);
      this.#state = value;
    });
  }

  sleep(key: string, ms: number): Promise<void> {
    return this.#begun(async () => {
      checkTime("sleep", ms);
      const name = this.#use("wait", key);
      const saved = name.data as Waited | undefined;
      const before = milliseconds(saved?.sleep ?? "");
      if (name.kind !== undefined && before === undefined)
        throw permanent(`sleep: ${JSON.stringify(key)} was another wait`);
      let until = this.#began + (before ?? 0) - name.ageMs;
      if (name.kind === undefined) {
        this.#pass();
        await this.#saveWait(key, { sleep: `${Math.ceil(ms)}ms` });
        until = performance.now() + ms;
      }
      await this.#await({ key, text: `sleep ${JSON.stringify(key)}`, until, wants: undefined });
    });
  }

  waitSignal<T>(signal: string, o: SignalOptions<T> = {}): Promise<T> {
    const key = o.key ?? signal;
    const timeout = new WaitTimeout(`the signal ${JSON.stringify(signal)} did not come in time`);
    return this.#begun(async () => {
      if (o.timeoutMs !== undefined) checkTime("waitSignal", o.timeoutMs);
      const name = this.#use("wait", key);
      const saved = name.data as Waited | undefined;
      const parse = parserOf(signal, o);
      if (saved?.ended === "signal") return parse(saved.payload);
      if (saved?.ended === "timeout") throw timeout;
      this.#pass();
      // An earlier run may have saved the begin of the wait.
      let began: number | undefined =
        saved === undefined || saved.refused === true ? performance.now() : this.#began - name.ageMs;
      const wants = (s: Schemas["Signal"]) => s.name === signal && s.child === undefined;
      let taken = this.#takeSignal(wants);
      // An earlier run may have waited for this signal, but has not saved when it began to.
      if (taken !== undefined && saved === undefined) began = undefined;
      if (taken === undefined) {
        const until = await this.#signalUntil(key, name, saved, o.timeoutMs);
        taken = await this.#await({ key, text: `signal ${JSON.stringify(signal)}`, until, wants });
      }
      if (taken === undefined) {
        await this.#saveWait(key, { timeout: `${Math.ceil(o.timeoutMs ?? 0)}ms`, ended: "timeout" }, 0, began);
        throw timeout;
      }
      let value: T;
      try {
        value = parse(taken.payload);
      } catch (wrong) {
        // A worker of an older version does not know refused, and counts the timeout from now on.
        const timeout = o.timeoutMs === undefined ? {} : { timeout: `${Math.ceil(o.timeoutMs)}ms` };
        await this.#saveWait(key, { refused: true, ...timeout }, taken.seq, began);
        this.#names.set(key, { kind: "wait", data: { refused: true } satisfies Waited, ageMs: 0, used: false });
        throw wrong;
      }
      const payload = taken.payload === undefined ? {} : { payload: taken.payload };
      await this.#saveWait(key, { ended: "signal", ...payload }, taken.seq, began);
      return value;
    });
  }

  /**
   * signalUntil is when a wait for a signal times out. It saves the beginning of the wait, from which later runs count.
   */
  async #signalUntil(
    key: string,
    name: Name,
    saved: Waited | undefined,
    timeoutMs?: number,
  ): Promise<number | undefined> {
    if (timeoutMs === undefined) return undefined;
    const before = saved?.refused === true ? undefined : milliseconds(saved?.timeout ?? "");
    if (before !== undefined) return this.#began + before - name.ageMs;
    await this.#saveWait(key, { timeout: `${Math.ceil(timeoutMs)}ms` });
    return performance.now() + timeoutMs;
  }

  /** await blocks until a signal that w wants has come, and takes it, or until the time of the wait is over. */
  async #await(w: Wait & { key: string }): Promise<Schemas["Signal"] | undefined> {
    let doing: Doing | undefined;
    const begin = () => (doing ??= this.#reports.begin("wait", w.key));
    try {
      const taken = await this.#awaited(w, begin);
      this.#reports.endWait(doing, w.wants === undefined, false);
      return taken;
    } catch (err) {
      this.#reports.endWait(doing, false, true, err);
      throw err;
    }
  }

  /** awaited is await; it calls begin before it blocks. */
  async #awaited(w: Wait, begin: () => void): Promise<Schemas["Signal"] | undefined> {
    for (let looked = false; ;) {
      this.#checkStop();
      const taken = w.wants && this.#takeSignal(w.wants);
      if (taken !== undefined) return taken;
      const over = w.until !== undefined && performance.now() >= w.until;
      if (over && (w.wants === undefined || looked)) return undefined;
      if (over || (w.wants !== undefined && this.#announced > this.#seen)) {
        const some = await this.#read(); // when the time is over too: a signal that was accepted before then counts
        looked = over && !some;
        continue;
      }
      begin();
      await this.#waits.block(w);
    }
  }

  #takeSignal(wants: (s: Schemas["Signal"]) => boolean): Schemas["Signal"] | undefined {
    const i = this.#signals.findIndex(wants);
    return i < 0 ? undefined : this.#signals.splice(i, 1)[0];
  }

  /** read reads the signals that came since the claim, and reports whether there were any. */
  #read(): Promise<boolean> {
    this.#reading ??= (async () => {
      const announced = this.#announced;
      const params = { path: { id: this.execution }, query: { after: this.#seen } };
      const call = this.#owner.api.GET("/v1/executions/{id}/signals", { params, signal: this.#life.signal });
      const { signals } = await answer(call);
      this.#take([], signals);
      if (signals.length === 0) this.#seen = Math.max(this.#seen, announced); // this run has consumed them
      return signals.length > 0;
    })().finally(() => {
      this.#reading = undefined;
      this.#waits.wake();
    });
    return this.#reading;
  }

  /** begun runs a call of the function. The run ends after its calls. */
  #begun<T>(call: () => Promise<T>): Promise<T> {
    const p = (async () => {
      this.#checkStop();
      return call();
    })();
    this.#steps.add(p);
    // A function that ignores a step must not end the process.
    void p.catch(() => undefined).then(() => this.#steps.delete(p));
    return p;
  }

  /**
   * use marks a key as used by this run, and refuses one that was used already: it would get the result of another
   * call.
   */
  #use(kind: "step" | "wait", key: string): Name {
    const old = this.#names.get(key);
    const quoted = JSON.stringify(key);
    if (old?.used)
      throw permanent(`${kind}: the key ${quoted} is used twice in this run; give each call a key of its own`);
    if (old?.kind !== undefined && old.kind !== kind) {
      throw permanent(`${kind}: ${quoted} was saved as a ${old.kind} by an earlier run; give the ${kind} another key`);
    }
    const name = old ?? { kind: undefined, data: undefined, ageMs: 0, used: true };
    name.used = true;
    this.#names.set(key, name);
    return name;
  }

  /** checkStop throws if no step or wait may begin. */
  #checkStop(): void {
    if (this.#lost !== undefined) throw this.#lost;
    if (this.#stop !== undefined) throw new Yield();
    if (this.#returned) throw new Error("the workflow function has returned");
    if (this.#asked !== undefined) {
      this.#stop = "give";
      this.#waits.wake();
      throw new Yield();
    }
    this.signal.throwIfAborted();
  }

  /** pass is the safe point before a new effect. */
  #pass(): void {
    this.#checkStop();
    this.guard();
  }

  /** saveWait saves a checkpoint of a wait. began is when the wait began, for the checkpoint of its end. */
  #saveWait(key: string, data: Waited, consumes = 0, began?: number): Promise<void> {
    const took = began === undefined ? undefined : { tookMs: performance.now() - began, attempt: undefined };
    return this.#save(`save wait ${JSON.stringify(key)}`, "wait", key, data, consumes, took);
  }

  /** save writes a checkpoint. It works also when the function must end, as long as the lease is valid. */
  async #save(
    what: string,
    kind: "step" | "wait" | "state",
    key: string,
    data: unknown,
    consumes = 0,
    took?: Pick<Doing, "tookMs" | "attempt">,
  ): Promise<void> {
    const cost = this.#takeCost();
    const all = {
      lease: this.lease,
      op: newOpId(),
      kind,
      key,
      data,
      cost_tokens: tokensOf(cost),
      ...(consumes > 0 ? { consumes } : {}),
    };
    const report = { ...this.#took(took), ...this.#takeReports() };
    try {
      await this.#write(what, (repeat) => ({ save: { ...all, ...report, repeat } })).catch(async (err: unknown) => {
        if (Object.keys(report).length === 0 || !isInvalid(err)) throw err;
        // A server of an older version refuses fields that it does not know.
        await this.#write(what, (repeat) => ({ save: { ...all, repeat } }));
        this.#owner.quiet();
      });
    } catch (err) {
      if (!(err instanceof BelayError && err.code === "internal")) this.#cost += cost; // else it may be charged
      throw err;
    }
    this.progress();
    this.#owner.saved(this);
  }

  #took(took?: Pick<Doing, "tookMs" | "attempt">): { duration_ms?: number; attempt?: number } {
    if (took?.tookMs === undefined || !this.#owner.reporting) return {};
    const attempt = took.attempt === undefined ? {} : { attempt: took.attempt };
    return { duration_ms: Math.max(1, Math.ceil(took.tookMs)), ...attempt };
  }

  /** write carries out an operation under the lease, and repeats it until it has an answer or the lease is lost. */
  #write(what: string, op: (repeat: boolean) => Op): Promise<void> {
    return this.#answered(what, async (repeat) => {
      const r = await this.#owner.carry(op(repeat), this.#life.signal);
      if (r.error !== undefined) throw ofProblem(r.error);
    });
  }

  /** answered makes a call under the lease, and repeats it until it has an answer or the lease is lost. */
  async #answered<T>(what: string, call: (repeat: boolean) => Promise<T>): Promise<T> {
    let internal = 0;
    for (let tries = 0; ; tries++) {
      this.guard();
      let wait = backoff(tries);
      try {
        return await call(tries > 0);
      } catch (err) {
        if (this.#lost !== undefined) throw this.#lost;
        if (err instanceof LeaseLost) this.lose(err);
        if (!(err instanceof BelayError) && !(err instanceof DOMException)) throw err; // it was never sent
        const code = err instanceof BelayError ? err.code : "unavailable";
        const again = code === "unavailable" || code === "rate_limited" || code === "queue_full";
        if (!again && !(code === "internal" && ++internal <= 3)) throw refused(what, err);
        if (err instanceof BelayError) wait = Math.max(wait, err.retryAfterMs ?? 0);
      }
      await pause(wait, this.#life.signal);
    }
  }
}

/** isInvalid reports whether a server has refused the content of a request. */
function isInvalid(err: unknown): boolean {
  const cause = err instanceof RunError ? err.cause : err;
  return cause instanceof BelayError && cause.code === "invalid";
}

function checkTime(call: string, ms: number): void {
  if (!(ms >= 0 && ms <= longestWaitMs)) throw permanent(`${call}: ${ms} is not a time in milliseconds`);
}
