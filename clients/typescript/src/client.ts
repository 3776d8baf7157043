import createClient from "openapi-fetch";
import { awaitMany, type Ended } from "./await.js";
import { named, submitMany, type Op, type Result, type Submission, type Submitted } from "./batch.js";
import { Bulk } from "./bulk.js";
import { accepted, answer, type Api } from "./call.js";
import { chat, chatStream, type ChatOptions, type ChatRequest, type Completion } from "./chat.js";
import { unreadable } from "./error.js";
import { patient, type Fetch } from "./fetch.js";
import { DeadLetters } from "./dead.js";
import { Documents } from "./documents.js";
import { Schedules } from "./schedules.js";
import { Webhooks } from "./webhooks.js";
import { Notifications } from "./notifications.js";
import { Gates } from "./gates.js";
import { newExecutionId, newKey } from "./id.js";
import { Jobs } from "./jobs.js";
import { Lock, type Owner } from "./lock.js";
import { baseOf, fill, header } from "./path.js";
import type { components, operations, paths } from "./schema.js";
import type { Source, StreamOptions } from "./stream.js";
import { Moment } from "./time.js";
import { followStates, type StateNews, type StateQuery } from "./states.js";
import { watch, type End, type Event, type Execution, type ExecutionDetail, type WatchOptions } from "./watch.js";

type Schemas = components["schemas"];

export interface Options {
  /** The address of the server, such as http://127.0.0.1:7420. */
  url: string;
  /** The key, bly_…, if the server requires one. */
  key?: string | undefined;
  /**
   * For how long, in milliseconds, a call that is safe to repeat is repeated while the server is away; 30 s by default.
   */
  patienceMs?: number;
  /** The largest size of an answer that the client reads, in bytes; 256 MiB by default. */
  maxAnswerBytes?: number;
  /** Carries requests out instead of the global fetch. */
  fetch?: Fetch;
}

export type Submit = Omit<Schemas["Submit"], "workflow">;

export interface LockOptions {
  /** The name of the owner, for people. */
  owner: string;
  /** How long the lock is valid after a heartbeat, as in "30s". */
  ttl?: string;
  /** Opens a failed or cancelled execution again in the same commit. */
  reopen?: boolean;
}

/** The person or program that acts on an execution, and the reason. */
export interface Why {
  actor?: string;
  reason?: string;
}

/** A task of an execution of a document, or an item of a foreach. */
export type Task = Schemas["Task"];

/** Selects tasks of an execution. */
export type TaskQuery = NonNullable<operations["listTasks"]["parameters"]["query"]>;

/** The tasks of a document that run again, and those that do not run. */
export interface RepairOptions extends Why {
  /** Tasks that run again, with all tasks that depend on them. */
  from?: string[];
  /** Tasks, or items such as build[7], that do not run and count as succeeded with the output. */
  skip?: { task: string; output?: unknown }[];
  /** The generation whose failure the caller has seen. */
  generation?: number;
}

/** The longest that one request may wait for an end, in seconds, and how long a try of such a request may take. */
const longestWait = 60;
const longestTryMs = 90_000;

/**
 * Belay is a client of one server. Each method sends one request, and sends it again while the server is away if that
 * is safe. It throws BelayError. The property api has all routes, with the types of the server's own contract.
 */
export class Belay {
  /** Every route, typed: `belay.api.GET("/v1/workers")`. A refusal is the `error` of the result there. */
  readonly api: Api;
  /** Actions on many dead letters or executions at once. */
  readonly bulk: Bulk;
  /** The dead letters: executions that failed for good. */
  readonly dead: DeadLetters;
  /** The stored documents: workflows that are written in YAML or JSON. */
  readonly documents: Documents;

  /** The schedules, which start executions at regular times. */
  readonly schedules: Schedules;
  /** The webhooks, which start executions for signed requests, CloudEvents and messages of queues. */
  readonly webhooks: Webhooks;
  /** The targets of notifications, which get HTTP requests about ends of executions and alerts. */
  readonly notifications: Notifications;
  /** The gates: limits, rates, circuit breakers and pauses. */
  readonly gates: Gates;
  /** The jobs of the agent service. */
  readonly jobs: Jobs;
  readonly #source: Source;
  readonly #patienceMs: number;
  /** Repeats a POST too; for requests that name themselves in their body. */
  readonly #repeating: Fetch;
  /** Waits for an answer without a limit. */
  readonly #unhurried: Fetch;

  constructor(o: Options) {
    const url = baseOf(o.url);
    const headers = new Headers();
    if (o.key !== undefined) headers.set("Authorization", `Bearer ${header("the key", o.key.trim())}`);
    const fetch: Fetch = o.fetch ?? ((request) => globalThis.fetch(request));
    const maxAnswerBytes = o.maxAnswerBytes ?? 256 * 2 ** 20;
    this.#patienceMs = o.patienceMs ?? 30_000;
    this.#source = { url, headers, fetch, maxAnswerBytes };
    const patience = { patienceMs: this.#patienceMs, tryMs: longestTryMs, maxAnswerBytes };
    this.#repeating = patient(fetch, patience, () => true);
    this.#unhurried = patient(fetch, { ...patience, tryMs: Infinity });
    this.api = createClient<paths>({
      baseUrl: url,
      headers: Object.fromEntries(headers),
      pathSerializer: fill,
      fetch: patient(fetch, patience),
    });
    this.bulk = new Bulk(this.api);
    this.dead = new DeadLetters(this.api);
    this.documents = new Documents(this.api);
    this.schedules = new Schedules(this.api);
    this.webhooks = new Webhooks(this.api, this.#repeating);
    this.notifications = new Notifications(this.api);
    this.gates = new Gates(this.api);
    this.jobs = new Jobs(this.api, this.#source);
  }

  /**
   * submit submits an execution, and returns it when it is on disk. If the answer is lost, the repeated request finds
   * the same execution. Every later submit with the same workflow and idempotency_key finds it too. With
   * `idempotency: "content"` every later submit of the same workflow, version, input and policy finds it, as long as it
   * has not failed and was not cancelled.
   */
  submit(workflow: string, s: Submit = {}): Promise<Execution> {
    return this.#submit({ workflow, ...s });
  }

  /**
   * submitDocument submits an execution of a stored document: `nightly` for the newest version that is not deprecated,
   * or `nightly@3`. The execution keeps its version.
   */
  submitDocument(document: string, s: Omit<Submit, "document"> = {}): Promise<Execution> {
    return this.#submit({ document, ...s });
  }

  #submit(s: Submission): Promise<Execution> {
    const known = s.id !== undefined || s.idempotency_key !== undefined;
    const body = { ...s, ...(known ? {} : { id: newExecutionId() }) };
    return answer(this.api.POST("/v1/executions", { body, fetch: this.#repeating }));
  }

  /**
   * submitMany submits executions in few requests. The answers have the order of the submissions; one refused
   * submission does not make the others fail.
   */
  submitMany(list: readonly Submission[]): Promise<Submitted[]> {
    return submitMany((ops, roots) => this.#batch(ops, roots), list, this.#patienceMs);
  }

  /**
   * batch carries out at most 1000 operations in one request. Each succeeds or fails alone, and has its own answer, in
   * the order of the operations. The client gives ids to operations that have none, so that the request is safe to
   * repeat.
   */
  batch(ops: readonly Op[]): Promise<Result[]> {
    return this.#batch(ops.map(named), false);
  }

  async #batch(ops: Op[], roots: boolean): Promise<Result[]> {
    const params = roots ? { header: { "Belay-Only": "submit" as const } } : {};
    const { results } = await answer(this.api.POST("/v1/batch", { params, body: { ops }, fetch: this.#repeating }));
    if (!Array.isArray(results) || results.length !== ops.length) throw unreadable();
    return results;
  }

  /** get reads one execution, with its trigger payload, its newest action, and the metrics of its runs and children. */
  get(id: string, signal?: AbortSignal): Promise<ExecutionDetail> {
    return answer(this.api.GET("/v1/executions/{id}", { params: { path: { id } }, ...(signal ? { signal } : {}) }));
  }

  /** list reads a page of executions, newest first; `list({ cursor: page.next })` reads the next page. */
  list(query: NonNullable<operations["listExecutions"]["parameters"]["query"]> = {}): Promise<Schemas["Page"]> {
    return answer(this.api.GET("/v1/executions", { params: { query } }));
  }

  /**
   * runs reads a page of the runs of all executions, the run that started last first; `runs({ cursor: page.next })` reads
   * the next page. A page may be empty although next is set.
   */
  runs(query: NonNullable<operations["listRuns"]["parameters"]["query"]> = {}): Promise<Schemas["RunPage"]> {
    return answer(this.api.GET("/v1/runs", { params: { query } }));
  }

  /** result waits for the end of an execution, however long that takes, and returns the execution. */
  async result(id: string, signal?: AbortSignal): Promise<Execution> {
    for (;;) {
      signal?.throwIfAborted();
      const params = { path: { id }, header: { Prefer: `wait=${longestWait}` } };
      const x = await answer(this.api.GET("/v1/executions/{id}", { params, ...(signal ? { signal } : {}) }));
      if (x.state === "succeeded" || x.state === "failed" || x.state === "cancelled") return this.get(id, signal);
    }
  }

  /**
   * awaitMany yields the end of each execution once, in the order in which they end, whatever the number of executions.
   * A request waits for a thousand of them. An execution that the server cannot find has an error instead.
   */
  awaitMany(ids: Iterable<string>, o?: StreamOptions): AsyncGenerator<Ended, void, undefined> {
    return awaitMany(this.#source, ids, o);
  }

  /** results waits for the ends of executions, and returns them in the order of the ids. */
  async results(ids: readonly string[], o?: StreamOptions): Promise<Execution[]> {
    const ended = new Map<string, Execution>();
    for await (const e of this.awaitMany(ids, o)) {
      if (e.error) throw e.error;
      ended.set(e.id, e.execution);
    }
    return ids.map((id) => ended.get(id)!);
  }

  /** watch yields the events of an execution until it ends, across broken connections. */
  watch(id: string, o?: WatchOptions): AsyncGenerator<Event, End, undefined> {
    return watch(this.#source, id, (signal) => this.get(id, signal), o);
  }

  /**
   * follow yields the states of the executions that match a query: a snapshot, and then every change of state, across
   * broken connections. Another snapshot, with its cause, follows if changes may be missing.
   */
  follow(query?: StateQuery, o?: StreamOptions): AsyncGenerator<StateNews, void, undefined> {
    return followStates(this.#source, query, o);
  }

  /** usage sums up the tokens and the money that language models cost. */
  usage(query: NonNullable<operations["reportUsage"]["parameters"]["query"]> = {}): Promise<Schemas["UsageReport"]> {
    return answer(this.api.GET("/v1/usage", { params: { query } }));
  }

  /** explain gives the reason for the state of an execution in sentences. */
  explain(id: string): Promise<Schemas["Explanation"]> {
    return answer(this.api.GET("/v1/executions/{id}/explain", { params: { path: { id } } }));
  }

  /** signal delivers a signal. The server keeps it until the execution waits for it. */
  async signal(id: string, name: string, payload?: unknown, o: Pick<Why, "actor"> = {}): Promise<void> {
    await accepted(
      this.api.POST("/v1/executions/{id}/signal", {
        params: { path: { id }, header: once() },
        body: payload === undefined ? { ...o, name } : { ...o, name, payload },
      }),
    );
  }

  /** cancel ends an execution for good. */
  cancel(id: string, why: Why = {}): Promise<Execution> {
    return answer(this.api.POST("/v1/executions/{id}/cancel", { params: { path: { id }, header: once() }, body: why }));
  }

  /** pause stops an execution at its next safe point. */
  pause(id: string, why: Why = {}): Promise<Execution> {
    return answer(this.api.POST("/v1/executions/{id}/pause", { params: { path: { id }, header: once() }, body: why }));
  }

  /** resume continues a paused execution. */
  resume(id: string, why: Why = {}): Promise<Execution> {
    return answer(this.api.POST("/v1/executions/{id}/resume", { params: { path: { id }, header: once() }, body: why }));
  }

  /**
   * setBudget gives an execution another budget, in tokens with at most four decimals. If the cost of the execution and
   * its descendants is below it, those that a spent budget paused continue.
   */
  setBudget(id: string, cost: number, why: Why = {}): Promise<Execution> {
    const params = { path: { id }, header: once() };
    return answer(this.api.POST("/v1/executions/{id}/budget", { params, body: { ...why, budget: { cost } } }));
  }

  /**
   * retry runs a failed or cancelled execution again; it keeps the finished steps. With from it discards the results of
   * the named step or wait and all results that were saved after it. A wait that is discarded waits for another signal.
   */
  retry(id: string, why: Why & { from?: string } = {}): Promise<Execution> {
    return answer(this.api.POST("/v1/executions/{id}/retry", { params: { path: { id }, header: once() }, body: why }));
  }

  /**
   * tasks reads a page of the tasks of an execution of a document, in the order of the document; with task, the items of
   * a foreach. `tasks(id, { cursor: page.next })` reads the next page. A page may be empty although next is set. It fails
   * with the code "invalid" if the execution does not run a document.
   */
  tasks(id: string, query: TaskQuery = {}): Promise<Schemas["TaskPage"]> {
    return answer(this.api.GET("/v1/executions/{id}/tasks", { params: { path: { id }, query } }));
  }

  /**
   * repair runs a failed or cancelled execution of a document again. Tasks that have succeeded do not run again, apart
   * from the tasks of from and those that depend on them. A task of skip does not run; it counts as succeeded with the
   * given output. It fails with the code "conflict" if the execution is in another state, or was reopened since the
   * generation, and with the code "invalid" if the repair does not fit the document.
   */
  repair(id: string, o: RepairOptions): Promise<Execution> {
    return answer(this.api.POST("/v1/executions/{id}/repair", { params: { path: { id }, header: once() }, body: o }));
  }

  /**
   * fork begins a new execution with the results of another one: all of them, or with at those that were saved before
   * the named step or wait, or with up_to those up to an event. The new execution has no signals.
   */
  fork(id: string, o: Why & { at?: string; up_to?: number; input?: unknown } = {}): Promise<Execution> {
    return answer(this.api.POST("/v1/executions/{id}/fork", { params: { path: { id }, header: once() }, body: o }));
  }

  /**
   * delete deletes an ended execution with its children, and returns it as it was. It fails with the code "conflict" while
   * the execution has not ended, for a child, and while the dead letter is open.
   */
  delete(id: string, why: Why = {}): Promise<Execution> {
    return answer(this.api.DELETE("/v1/executions/{id}", { params: { path: { id }, header: once(), query: why } }));
  }

  /**
   * chat sends a text or messages to the agent, and returns its answer when the agent has ended. Node ends a request
   * after five minutes without an answer; chatStream has no such limit.
   */
  chat(request: ChatRequest | string, o: ChatOptions = {}): Promise<Completion> {
    return chat(this.api, this.#unhurried, request, o);
  }

  /** chatStream sends a text or messages to the agent, and yields the pieces of its answer while the agent works. */
  chatStream(request: ChatRequest | string, o: ChatOptions = {}): AsyncGenerator<Completion, void, undefined> {
    return chatStream(this.#source, request, o);
  }

  /** lock makes the caller the owner of an execution. If it has another owner, the error is LeaseHeld. */
  async lock(id: string, o: LockOptions): Promise<Lock> {
    const sent = Moment.now();
    const params = { path: { id }, header: once() };
    const reply = await answer(this.api.POST("/v1/executions/{id}/lock", { params, body: o }));
    if (typeof reply.lease !== "object" || typeof reply.execution !== "object") throw unreadable();
    return new Lock(this.#owner, await this.#rest(reply), sent);
  }

  /** rest reads the checkpoints and signals for which the answer to a lock had no room. */
  async #rest(reply: Schemas["LockReply"]): Promise<Schemas["LockReply"]> {
    if (reply.more !== true) return reply;
    const checkpoints = [...(reply.checkpoints ?? [])];
    const signals = [...(reply.signals ?? [])];
    const path = { id: reply.execution.id };
    const header = { "Lease-Id": reply.lease.lock_id, "Lease-Token": reply.lease.token };
    for (let more: boolean | undefined = true; more === true;) {
      const after = Math.max(0, checkpoints.at(-1)?.seq ?? 0, signals.at(-1)?.seq ?? 0);
      const params = { path, header, query: { after } };
      const part = await answer(this.api.GET("/v1/executions/{id}/checkpoints", { params }));
      checkpoints.push(...(part.checkpoints ?? []));
      signals.push(...(part.signals ?? []));
      more = part.more;
    }
    return { ...reply, checkpoint: checkpoints.at(-1) ?? null, checkpoints, signals };
  }

  readonly #owner: Owner = {
    renew: (id, lock_id, signal) => {
      const params = { path: { id, lock_id } };
      return answer(this.api.PUT("/v1/executions/{id}/lock/{lock_id}", { params, signal }));
    },
    checkpoint: async (id, lock, token, body) => {
      const header = { ...once(), "Lease-Id": lock, "Lease-Token": token };
      const params = { path: { id }, header };
      const saved = await answer(this.api.PUT("/v1/executions/{id}/checkpoint", { params, body }));
      return saved.seq;
    },
    release: (id, lock_id, token, body) => {
      const params = { path: { id, lock_id }, header: { ...once(), "Lease-Token": token } };
      return answer(this.api.POST("/v1/executions/{id}/lock/{lock_id}/release", { params, body }));
    },
  };
}

/** once names a write, so that it is done once however often it is sent. */
const once = (): { "Idempotency-Key": string } => ({ "Idempotency-Key": newKey() });
