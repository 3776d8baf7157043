import createClient, { type Client } from "openapi-fetch";
import { refusal } from "./error.js";
import { patient, type Fetch } from "./fetch.js";
import { newExecutionId } from "./id.js";
import { Lock, Moment, type Owner } from "./lock.js";
import type { components, operations, paths } from "./schema.js";
import { watch, type End, type Event, type Execution, type WatchOptions } from "./watch.js";

type Schemas = components["schemas"];

export interface Options {
  /** Where the server is, as in http://127.0.0.1:7420. */
  url: string;
  /** The key, bly_…, if the server wants one. */
  key?: string | undefined;
  /** For how long, in milliseconds, a call that is safe to repeat is repeated while the server is away; 30 s by default. */
  patienceMs?: number;
  /** What carries requests out instead of the global fetch. */
  fetch?: Fetch;
}

export type Submit = Omit<Schemas["Submit"], "workflow">;

export interface LockOptions {
  /** Says to people who the owner is. */
  owner: string;
  /** How long the lock lives after a heartbeat, as in "30s". */
  ttl?: string;
  /** Opens a failed or cancelled execution again in the same commit. */
  reopen?: boolean;
}

/** What an operator says about an action. */
export interface Why {
  actor?: string;
  reason?: string;
}

/** The longest that one request may wait for an end, and how long a try may take that does. */
const longestWait = 60;
const longestTryMs = 90_000;

/**
 * Belay speaks to a server. Each method is one request, made again while the server is away if that is safe, and throws
 * BelayError. What has no method here is reached through api, with the types of the server's own contract.
 */
export class Belay {
  /** Every route, typed: `belay.api.GET("/v1/workers")`. Refusals come back as `error` there. */
  readonly api: Client<paths>;
  readonly #url: string;
  readonly #headers: Headers;
  readonly #fetch: Fetch;
  readonly #repeating: Fetch;

  constructor(o: Options) {
    this.#url = o.url.replace(/\/+$/, "");
    this.#headers = new Headers(o.key === undefined ? {} : { Authorization: `Bearer ${o.key}` });
    this.#fetch = o.fetch ?? ((request) => globalThis.fetch(request));
    const patience = { patienceMs: o.patienceMs ?? 30_000, tryMs: longestTryMs };
    this.#repeating = patient(this.#fetch, patience, () => true);
    this.api = createClient<paths>({
      baseUrl: this.#url,
      headers: Object.fromEntries(this.#headers),
      fetch: patient(this.#fetch, patience),
    });
  }

  /**
   * submit asks for an execution, and answers when it is on disk. Sent again after a lost answer it finds the same one;
   * with an idempotency_key so does every later submit of the same workflow and key.
   */
  submit(workflow: string, s: Submit = {}): Promise<Execution> {
    const known = s.id !== undefined || s.idempotency_key !== undefined;
    const body = { workflow, ...s, ...(known ? {} : { id: newExecutionId() }) };
    return answer(this.api.POST("/v1/executions", { body, fetch: this.#repeating }));
  }

  /** get reads one execution. */
  get(id: string): Promise<Execution> {
    return answer(this.api.GET("/v1/executions/{id}", { params: { path: { id } } }));
  }

  /** list reads executions, newest first; next continues. */
  list(query: NonNullable<operations["listExecutions"]["parameters"]["query"]> = {}): Promise<Schemas["Page"]> {
    return answer(this.api.GET("/v1/executions", { params: { query } }));
  }

  /** result waits for the end of an execution, however long that takes, and answers with it. */
  async result(id: string, signal?: AbortSignal): Promise<Execution> {
    for (;;) {
      signal?.throwIfAborted();
      const header = { Prefer: `wait=${longestWait}` };
      const x = await answer(this.api.GET("/v1/executions/{id}", { params: { path: { id }, header }, ...(signal ? { signal } : {}) }));
      if (x.state === "succeeded" || x.state === "failed" || x.state === "cancelled") return this.get(id);
    }
  }

  /** watch yields the events of an execution until it ends, across broken connections. */
  watch(id: string, o?: WatchOptions): AsyncGenerator<Event, End, undefined> {
    return watch({ url: this.#url, headers: this.#headers, fetch: this.#fetch }, id, o);
  }

  /** explain says in sentences why an execution is where it is. */
  explain(id: string): Promise<Schemas["Explanation"]> {
    return answer(this.api.GET("/v1/executions/{id}/explain", { params: { path: { id } } }));
  }

  /** signal delivers a signal; it is kept if nobody waits for it yet. */
  async signal(id: string, name: string, payload?: unknown): Promise<void> {
    await accepted(
      this.api.POST("/v1/executions/{id}/signal", {
        params: { path: { id }, header: once() },
        body: payload === undefined ? { name } : { name, payload },
      }),
    );
  }

  /** cancel ends an execution for good. */
  cancel(id: string, why: Why = {}): Promise<Execution> {
    return answer(this.api.POST("/v1/executions/{id}/cancel", { params: { path: { id }, header: once() }, body: why }));
  }

  /** pause holds an execution at its next safe point. */
  pause(id: string, why: Why = {}): Promise<Execution> {
    return answer(this.api.POST("/v1/executions/{id}/pause", { params: { path: { id }, header: once() }, body: why }));
  }

  /** resume lets a paused execution go on. */
  resume(id: string, why: Why = {}): Promise<Execution> {
    return answer(this.api.POST("/v1/executions/{id}/resume", { params: { path: { id }, header: once() }, body: why }));
  }

  /** retry reopens a failed or cancelled execution; finished steps count. */
  retry(id: string, why: Why = {}): Promise<Execution> {
    return answer(this.api.POST("/v1/executions/{id}/retry", { params: { path: { id }, header: once() }, body: why }));
  }

  /** lock makes the caller the owner of an execution. LeaseHeld says who is, if somebody else is. */
  async lock(id: string, o: LockOptions): Promise<Lock> {
    const asked = Moment.now();
    const reply = await answer(this.api.POST("/v1/executions/{id}/lock", { params: { path: { id }, header: once() }, body: o }));
    return new Lock(this.#owner, await this.#rest(reply), asked);
  }

  /** rest reads the checkpoints and signals that a lock's answer had no room for. */
  async #rest(reply: components["schemas"]["LockReply"]): Promise<components["schemas"]["LockReply"]> {
    if (reply.more !== true) return reply;
    const checkpoints = [...(reply.checkpoints ?? [])];
    const signals = [...(reply.signals ?? [])];
    const path = { id: reply.execution.id };
    const header = { "Lease-Id": reply.lease.lock_id, "Lease-Token": reply.lease.token };
    for (let more: boolean | undefined = true; more === true; ) {
      const after = Math.max(0, checkpoints.at(-1)?.seq ?? 0, signals.at(-1)?.seq ?? 0);
      const part = await answer(this.api.GET("/v1/executions/{id}/checkpoints", { params: { path, header, query: { after } } }));
      checkpoints.push(...(part.checkpoints ?? []));
      signals.push(...(part.signals ?? []));
      more = part.more;
    }
    return { ...reply, checkpoint: checkpoints.at(-1) ?? null, checkpoints, signals };
  }

  readonly #owner: Owner = {
    renew: (id, lock_id) => answer(this.api.PUT("/v1/executions/{id}/lock/{lock_id}", { params: { path: { id, lock_id } } })),
    checkpoint: async (id, lock, token, body) => {
      const header = { ...once(), "Lease-Id": lock, "Lease-Token": token };
      const saved = await answer(this.api.PUT("/v1/executions/{id}/checkpoint", { params: { path: { id }, header }, body }));
      return saved.seq;
    },
    release: (id, lock_id, token, body) => {
      const header = { ...once(), "Lease-Token": token };
      return answer(this.api.POST("/v1/executions/{id}/lock/{lock_id}/release", { params: { path: { id, lock_id }, header }, body }));
    },
  };
}

/** once names a write, so that it is done once however often it is sent. */
const once = (): { "Idempotency-Key": string } => ({ "Idempotency-Key": crypto.randomUUID() });

/** Call is what openapi-fetch answers with. */
type Call<T> = Promise<{ data?: T; error?: unknown; response: Response }>;

/** answer is the body of a call's answer, or its refusal thrown. */
async function answer<T>(call: Call<T>): Promise<NonNullable<T>> {
  const { data, error, response } = await call;
  if (!response.ok || data === undefined || data === null) throw refusal(response, error);
  return data;
}

/** accepted throws if a call was refused. */
async function accepted(call: Call<unknown>): Promise<void> {
  const { error, response } = await call;
  if (!response.ok) throw refusal(response, error);
}
