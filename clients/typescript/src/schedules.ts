import { accepted, answer, type Api } from "./call.js";
import { newKey } from "./id.js";
import type { components, operations } from "./schema.js";

type Schemas = components["schemas"];
type Query<Name extends keyof operations> = NonNullable<operations[Name]["parameters"]["query"]>;

/** A schedule with its state. */
export type Schedule = Schemas["Schedule"];

/** The times and the executions of a schedule. */
export type ScheduleTerms = Omit<Schemas["PutSchedule"], "actor" | "reason">;

/** A slot of a schedule whose time has come, and what happened then. */
export type ScheduleSlot = Schemas["ScheduleSlot"];

/**
 * The person or program that changes a schedule, a webhook or a target of notifications, and the reason. If requests need
 * a key, the actor is the key's name.
 */
export interface ScheduleWhy {
  actor?: string;
  reason?: string;
}

/** Which version the schedule, webhook or target must have; otherwise the call throws a conflict. */
export interface ScheduleIf {
  version?: number;
  /** There must be none of this name. */
  none?: boolean;
}

/** How the executions of a run or a backfill get along with others; `allow_all` unless said otherwise. */
export type Overlap = NonNullable<ScheduleTerms["overlap"]>;

/**
 * Schedules start executions at regular times. Each slot (time of a schedule) starts once, however many servers run. A
 * change needs a key with the scope operate, and put one with the scope submit too; a change is carried out once, however
 * often it is sent.
 */
export class Schedules {
  readonly #api: Api;

  constructor(api: Api) {
    this.#api = api;
  }

  /** list reads a page of the schedules; `list({ cursor: page.next })` reads the next page. */
  list(query: Query<"listSchedules"> = {}): Promise<Schemas["Schedules"]> {
    return answer(this.#api.GET("/v1/schedules", { params: { query } }));
  }

  /** get reads a schedule with its next ten slots and its newest ones. */
  get(name: string): Promise<Schedule> {
    return answer(this.#api.GET("/v1/schedules/{name}", { params: { path: { name } } }));
  }

  /** put creates a schedule or changes it. Its next slot is the first one after now. */
  put(name: string, terms: ScheduleTerms, o: ScheduleWhy & { if?: ScheduleIf } = {}): Promise<Schedule> {
    const { if: condition, ...why } = o;
    const params = { path: { name }, header: conditions(condition) };
    return answer(this.#api.PUT("/v1/schedules/{name}", { params, body: { ...terms, ...why } }));
  }

  /** pause stops a schedule: slots whose times come are not started, also not later. */
  pause(name: string, why: ScheduleWhy = {}): Promise<Schedule> {
    return answer(this.#api.POST("/v1/schedules/{name}/pause", { params: change(name), body: why }));
  }

  /** resume continues a schedule with the first slot after now. */
  resume(name: string, why: ScheduleWhy = {}): Promise<Schedule> {
    return answer(this.#api.POST("/v1/schedules/{name}/resume", { params: change(name), body: why }));
  }

  /** run starts one execution now, whether or not the schedule is paused. */
  async run(name: string, o: ScheduleWhy & { overlap?: Overlap } = {}): Promise<ScheduleSlot> {
    const { slots } = await answer(this.#api.POST("/v1/schedules/{name}/run", { params: change(name), body: o }));
    return slots[0]!;
  }

  /** backfill starts the slots of the past that were not started, 1,000 at most. */
  async backfill(
    name: string, from: Date, to: Date, o: ScheduleWhy & { overlap?: Overlap } = {},
  ): Promise<ScheduleSlot[]> {
    const body = { ...o, from: from.toISOString(), to: to.toISOString() };
    return (await answer(this.#api.POST("/v1/schedules/{name}/backfill", { params: change(name), body }))).slots;
  }

  /** remove removes a schedule. Executions that it has started go on. */
  async remove(name: string, why: ScheduleWhy = {}): Promise<void> {
    const params = { ...change(name), query: { ...why } };
    await accepted(this.#api.DELETE("/v1/schedules/{name}", { params }));
  }
}

/** conditions are the headers of one change of a schedule, webhook or target. */
export const conditions = (condition: ScheduleIf = {}) => {
  const header: Record<"Idempotency-Key", string> & { "If-Match"?: string; "If-None-Match"?: string } = {
    "Idempotency-Key": newKey(),
  };
  if (condition.version !== undefined) header["If-Match"] = `"${condition.version}"`;
  if (condition.none === true) header["If-None-Match"] = "*";
  return header;
};

/** change names a schedule, webhook or target, and one change of it. */
export const change = (name: string) => ({ path: { name }, header: { "Idempotency-Key": newKey() } });
