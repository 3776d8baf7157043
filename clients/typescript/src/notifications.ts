import { accepted, answer, type Api } from "./call.js";
import { change, conditions, type ScheduleIf, type ScheduleWhy } from "./schedules.js";
import type { components } from "./schema.js";

type Schemas = components["schemas"];

/** A target of notifications with its state. */
export type NotificationTarget = Schemas["Target"];

/**
 * The address of a target of notifications (`url`, or `exchange` for an exchange of RabbitMQ), and the ends and alerts
 * that it gets.
 */
export type NotificationTargetTerms = Omit<Schemas["PutTarget"], "actor" | "reason">;

/**
 * Notifications are HTTP requests, or messages to exchanges of RabbitMQ, for targets that operators set. They report
 * ends of executions, and alerts such as a dead letter. A change needs a key with the scope operate, and put one with
 * the scope submit too; a change is carried out once, however often it is sent.
 */
export class Notifications {
  readonly #api: Api;

  constructor(api: Api) {
    this.#api = api;
  }

  /** list reads all targets in the order of their names. */
  async list(): Promise<NotificationTarget[]> {
    return (await answer(this.#api.GET("/v1/notification-targets"))).targets;
  }

  /** get reads a target. Its deliveries are the executions with the label `notification_target:NAME`. */
  get(name: string): Promise<NotificationTarget> {
    return answer(this.#api.GET("/v1/notification-targets/{name}", { params: { path: { name } } }));
  }

  /**
   * put creates a target or changes it. `url` may be or contain a reference such as `${{ secrets.SLACK_URL }}`, and
   * `secret` is one. Executions that end a second later, or after that, are reported.
   */
  put(
    name: string, terms: NotificationTargetTerms, o: ScheduleWhy & { if?: ScheduleIf } = {},
  ): Promise<NotificationTarget> {
    const { if: condition, ...why } = o;
    const params = { path: { name }, header: conditions(condition) };
    return answer(this.#api.PUT("/v1/notification-targets/{name}", { params, body: { ...terms, ...why } }));
  }

  /** pause stops a target: it gets nothing until it is resumed, and nothing of this time is sent later. */
  pause(name: string, why: ScheduleWhy = {}): Promise<NotificationTarget> {
    return answer(this.#api.POST("/v1/notification-targets/{name}/pause", { params: change(name), body: why }));
  }

  /** resume continues a target. */
  resume(name: string, why: ScheduleWhy = {}): Promise<NotificationTarget> {
    return answer(this.#api.POST("/v1/notification-targets/{name}/resume", { params: change(name), body: why }));
  }

  /** remove removes a target. Deliveries that have begun go on. */
  async remove(name: string, why: ScheduleWhy = {}): Promise<void> {
    const params = { ...change(name), query: { ...why } };
    await accepted(this.#api.DELETE("/v1/notification-targets/{name}", { params }));
  }

  /**
   * test sends a test to a target, also while it is paused, and returns the id of the delivery: an execution that
   * succeeds when the target has received the test, so that `belay.result(id)` waits for it.
   */
  async test(name: string, o: { actor?: string } = {}): Promise<string> {
    const params = change(name);
    return (await answer(this.#api.POST("/v1/notification-targets/{name}/test", { params, body: o }))).execution;
  }
}
