import { accepted, answer, type Api } from "./call.js";
import type { Fetch } from "./fetch.js";
import { newKey } from "./id.js";
import { change, conditions, type ScheduleIf, type ScheduleWhy } from "./schedules.js";
import type { components, operations } from "./schema.js";

type Schemas = components["schemas"];
type Query<Name extends keyof operations> = NonNullable<operations[Name]["parameters"]["query"]>;

/** A webhook with its state. */
export type Webhook = Schemas["Webhook"];

/** The signatures and the executions of a webhook. */
export type WebhookTerms = Omit<Schemas["PutWebhook"], "actor" | "reason">;

/** A delivery that was accepted, and what it has led to. */
export type WebhookDelivery = Schemas["WebhookDelivery"];

/** A delivery with its headers and its data. */
export type WebhookDeliveryData = Schemas["WebhookDeliveryData"];

/** A delivery without a signature, as a test. */
export type TestDelivery = Schemas["TestDelivery"];

/** An event in the structured mode of CloudEvents 1.0. It may have further attributes. */
export type CloudEvent = Schemas["CloudEvent"];

/** The outcomes of an event at the webhooks whose filter was true. */
export type CloudEventResult = Schemas["CloudEventResult"];

/**
 * Webhooks start executions for signed HTTP requests, which senders post to `/hooks/NAME`, and for CloudEvents. A
 * delivery starts one execution, however often it is sent. A change needs a key with the scope operate, and put and test
 * one with the scope submit too; a change is carried out once, however often it is sent.
 */
export class Webhooks {
  readonly #api: Api;
  /** Repeats a request whose answer was lost: the ids of deliveries and events let it start nothing twice. */
  readonly #repeating: Fetch;

  constructor(api: Api, repeating: Fetch) {
    this.#api = api;
    this.#repeating = repeating;
  }

  /** list reads a page of the webhooks; `list({ cursor: page.next })` reads the next page. */
  list(query: Query<"listWebhooks"> = {}): Promise<Schemas["Webhooks"]> {
    return answer(this.#api.GET("/v1/webhooks", { params: { query } }));
  }

  /** get reads a webhook with its newest deliveries. */
  get(name: string): Promise<Webhook> {
    return answer(this.#api.GET("/v1/webhooks/{name}", { params: { path: { name } } }));
  }

  /** put creates a webhook or changes it. `secrets` are references such as `${{ secrets.GITHUB_HOOK }}`. */
  put(name: string, terms: WebhookTerms, o: ScheduleWhy & { if?: ScheduleIf } = {}): Promise<Webhook> {
    const { if: condition, ...why } = o;
    const params = { path: { name }, header: conditions(condition) };
    return answer(this.#api.PUT("/v1/webhooks/{name}", { params, body: { ...terms, ...why } }));
  }

  /** pause stops a webhook: its deliveries are refused with 503, so that senders repeat them later. */
  pause(name: string, why: ScheduleWhy = {}): Promise<Webhook> {
    return answer(this.#api.POST("/v1/webhooks/{name}/pause", { params: change(name), body: why }));
  }

  /** resume continues a webhook. */
  resume(name: string, why: ScheduleWhy = {}): Promise<Webhook> {
    return answer(this.#api.POST("/v1/webhooks/{name}/resume", { params: change(name), body: why }));
  }

  /** remove removes a webhook. Executions that it has started go on. */
  async remove(name: string, why: ScheduleWhy = {}): Promise<void> {
    const params = { ...change(name), query: { ...why } };
    await accepted(this.#api.DELETE("/v1/webhooks/{name}", { params }));
  }

  /**
   * test makes a delivery without a signature, also while the webhook is paused. If the first answer is lost, the
   * outcome may be `duplicate`.
   */
  test(name: string, delivery: TestDelivery): Promise<WebhookDelivery> {
    return answer(this.#api.POST("/v1/webhooks/{name}/deliveries", {
      params: { path: { name } }, body: delivery, fetch: this.#repeating,
    }));
  }

  /** delivery reads one of the newest deliveries with its headers and its data. */
  delivery(name: string, id: string): Promise<WebhookDeliveryData> {
    return answer(this.#api.GET("/v1/webhooks/{name}/deliveries/{id}", { params: { path: { name, id } } }));
  }

  /** replay starts another execution of one of the newest deliveries, by the terms of now and without the filter. */
  replay(name: string, id: string, o: { actor?: string } = {}): Promise<WebhookDelivery> {
    const params = { path: { name, id }, header: { "Idempotency-Key": newKey() } };
    return answer(this.#api.POST("/v1/webhooks/{name}/deliveries/{id}/replay", { params, body: o }));
  }

  /**
   * publish sends CloudEvents, 100 at most, to the webhooks of the scheme cloudevents. Each event starts an execution at
   * each webhook whose filter is true, once for its source and id. `specversion` is `"1.0"` unless said otherwise.
   */
  async publish(...events: PublishedEvent[]): Promise<CloudEventResult[]> {
    const body = events.map((e): CloudEvent => ({ specversion: "1.0", ...e }));
    const { events: results } = await answer(this.#api.POST("/v1/cloudevents", {
      headers: { "Content-Type": "application/cloudevents-batch+json" }, body: body as never,
      bodySerializer: (b: unknown) => JSON.stringify(b), fetch: this.#repeating,
    }));
    return results;
  }
}

/** An event that publish completes. Further attributes are its extensions. */
export interface PublishedEvent {
  id: string;
  source: string;
  type: string;
  specversion?: "1.0";
  subject?: string;
  time?: string;
  datacontenttype?: string;
  dataschema?: string;
  data?: unknown;
  data_base64?: string;
  [extension: string]: unknown;
}
