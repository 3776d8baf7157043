import { answer, type Api } from "./call.js";
import { newKey } from "./id.js";
import type { components, operations } from "./schema.js";

type Schemas = components["schemas"];
type Query<Name extends keyof operations> = NonNullable<operations[Name]["parameters"]["query"]>;

/** A gate, with the executions that have a place in it and those that wait at it. */
export type Gate = Schemas["GateDetail"];

/** The kinds of gates. */
export type GateKind = NonNullable<Query<"listGates">["kind"]>;

/** The circuit breaker of a target. */
export type CircuitBreaker = Schemas["CircuitBreaker"];

/** The person or program that changes a gate, and the reason. If requests need a key, the actor is the key's name. */
export interface GateWhy {
  actor?: string;
  reason?: string;
}

/** The terms of a resource; durations are texts such as "30s", or numbers of milliseconds in the fields with _ms. */
export type ResourceTerms = Omit<Schemas["GateResource"], "actor" | "reason" | "$schema">;

export interface GatePause extends GateWhy {
  /** When the pause ends by itself; without it, when an operator ends it. */
  until?: Date | string;
}

/** gate is the id of a gate: `gate("queue", "reports")` is "queue:reports". */
export const gate = (kind: GateKind, name: string): string => `${kind}:${name}`;

/**
 * Gates shows and changes gates: limits, rates, circuit breakers, resources and pauses, which decide when work may
 * start. The id of a gate is a kind, a colon and a name, as in "queue:reports"; a change needs a key with the scope
 * operate. Each change is carried out once, however often it is sent.
 */
export class Gates {
  readonly #api: Api;

  constructor(api: Api) {
    this.#api = api;
  }

  /**
   * list reads a page of the gates that an operator has set or executions have named; `list({ cursor: page.next })`
   * reads the next page.
   */
  list(query: Query<"listGates"> = {}): Promise<Schemas["GatePage"]> {
    return answer(this.#api.GET("/v1/gates", { params: { query } }));
  }

  /** get reads a gate. A gate that no operator has set and no execution has named is open. */
  get(id: string): Promise<Gate> {
    return answer(this.#api.GET("/v1/gates/{id}", { params: { path: { id } } }));
  }

  /** pause lets nothing new start until the pause ends. A repeated pause changes its end and its reason. */
  async pause(id: string, o: GatePause = {}): Promise<Gate> {
    const { until, ...why } = o;
    const body = until === undefined ? why : { ...why, until: until instanceof Date ? until.toISOString() : until };
    return answer(this.#api.POST("/v1/gates/{id}/pause", { params: change(id), body }));
  }

  /** resume ends the pause of a gate. */
  resume(id: string, why: GateWhy = {}): Promise<Gate> {
    return answer(this.#api.POST("/v1/gates/{id}/resume", { params: change(id), body: why }));
  }

  /** setLimit sets the limit of a limit, a queue or a workflow. It counts before the one that executions name. */
  setLimit(id: string, max: number, why: GateWhy = {}): Promise<Gate> {
    return answer(this.#api.PUT("/v1/gates/{id}/limit", { params: change(id), body: { ...why, max } }));
  }

  /** removeLimit removes the limit that an operator has set. */
  removeLimit(id: string, why: GateWhy = {}): Promise<Gate> {
    return answer(this.#api.DELETE("/v1/gates/{id}/limit", { params: { ...change(id), query: { ...why } } }));
  }

  /** setRate lets max runs of a rate, a queue or a workflow start within the time per, such as "1s". */
  setRate(id: string, max: number, per: string, why: GateWhy = {}): Promise<Gate> {
    return answer(this.#api.PUT("/v1/gates/{id}/rate", { params: change(id), body: { ...why, max, per } }));
  }

  /** removeRate removes the rate that an operator has set. */
  removeRate(id: string, why: GateWhy = {}): Promise<Gate> {
    return answer(this.#api.DELETE("/v1/gates/{id}/rate", { params: { ...change(id), query: { ...why } } }));
  }

  /**
   * setResource sets the terms of a resource, whose modes exclude each other: how long it keeps a mode at least, how
   * long other modes wait, and the workflow that changes the mode. The terms replace all earlier terms.
   */
  setResource(name: string, terms: ResourceTerms, why: GateWhy = {}): Promise<Gate> {
    const params = change(gate("resource", name));
    return answer(this.#api.PUT("/v1/gates/{id}/resource", { params, body: { ...why, ...terms } }));
  }

  /** removeResource removes the terms that an operator has set; the modes still exclude each other. */
  removeResource(name: string, why: GateWhy = {}): Promise<Gate> {
    const params = { ...change(gate("resource", name)), query: { ...why } };
    return answer(this.#api.DELETE("/v1/gates/{id}/resource", { params }));
  }

  /** resource reads a resource: its mode, the runs that use it, and the modes that wait. */
  resource(name: string): Promise<Gate> {
    return this.get(gate("resource", name));
  }

  /** breakers reads a page of the circuit breakers of targets. */
  breakers(query: Query<"listCircuitBreakers"> = {}): Promise<Schemas["CircuitBreakers"]> {
    return answer(this.#api.GET("/v1/circuit-breakers", { params: { query } }));
  }

  /** breaker reads the circuit breaker of a target, such as "payments:charge". */
  breaker(target: string): Promise<CircuitBreaker> {
    return answer(this.#api.GET("/v1/circuit-breakers/{target}", { params: { path: { target } } }));
  }

  /**
   * setBreaker forces the circuit breaker of a target open or closed; with "automatic" it works by itself again, and
   * begins closed.
   */
  setBreaker(target: string, state: "open" | "closed" | "automatic", why: GateWhy = {}): Promise<Gate> {
    const params = change(gate("target", target));
    return answer(this.#api.PUT("/v1/gates/{id}/breaker", { params, body: { ...why, state } }));
  }
}

/** change names a gate and one change of it. */
const change = (id: string) => ({ path: { id }, header: { "Idempotency-Key": newKey() } });
