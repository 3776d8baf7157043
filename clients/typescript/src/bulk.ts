import { answer, type Api } from "./call.js";
import { newKey } from "./id.js";
import type { components } from "./schema.js";

type Schemas = components["schemas"];

/** Selects the dead letters or executions of a bulk. */
export type BulkFilter = Schemas["BulkFilter"];

/** The answer to a dry run: the size of the selection, and its first ten. */
export type BulkPreview = Schemas["BulkPreview"];

/** The state of a bulk, and the output of its execution. */
export interface BulkProgress {
  stage: "canary" | "all" | "done" | "stopped";
  /** The number of executions that the bulk has reached. */
  selected: number;
  /** The executions that the bulk has reopened and that have not ended. */
  running: number;
  succeeded: number;
  failed: number;
  /** The executions that another caller had changed or deleted before. */
  conflicts: number;
  /** More executions are selected than one bulk may act on. */
  more?: boolean;
  /** The first failures, ten at most. */
  failures?: { execution: string; message: string }[];
  /** Why the bulk has stopped by itself. */
  stopped?: string;
}

export interface BulkOptions extends Omit<Schemas["Bulk"], "action" | "filter" | "input" | "input_patch" | "dry_run"> {
  /** For requeue: another input for each execution; then all steps run again. */
  input?: unknown;
  /** For requeue: a JSON Merge Patch (RFC 7396) of the input of each execution; then all steps run again. */
  patch?: unknown;
}

/**
 * Bulk acts on many dead letters or executions at once. An execution of the server carries the bulk out, first on the
 * stages of a canary, and stops by itself if too many fail; its newest state and its output are a BulkProgress. It needs
 * a key with the scope operate, and a preview also needs the scope read.
 */
export class Bulk {
  readonly #api: Api;

  constructor(api: Api) {
    this.#api = api;
  }

  /** start begins a bulk once, however often the request is sent, and returns its execution. Cancel it to stop the bulk. */
  async start(action: Schemas["Bulk"]["action"], filter: BulkFilter, o: BulkOptions = {}): Promise<Schemas["Execution"]> {
    const { execution } = await this.#send(body(action, filter, o));
    if (execution === undefined) throw new Error("the server has started no execution for the bulk");
    return execution;
  }

  /** preview counts what a bulk selects and shows the first ten. It changes nothing. */
  async preview(action: Schemas["Bulk"]["action"], filter: BulkFilter, o: BulkOptions = {}): Promise<BulkPreview> {
    const { preview } = await this.#send({ ...body(action, filter, o), dry_run: true });
    if (preview === undefined) throw new Error("the server has sent no preview of the bulk");
    return preview;
  }

  #send(request: Schemas["Bulk"]): Promise<Schemas["BulkReply"]> {
    return answer(this.#api.POST("/v1/bulk", { params: { header: { "Idempotency-Key": newKey() } }, body: request }));
  }
}

const body = (action: Schemas["Bulk"]["action"], filter: BulkFilter, o: BulkOptions): Schemas["Bulk"] => {
  const { input, patch, ...rest } = o;
  return {
    action,
    filter,
    ...rest,
    ...(input === undefined ? {} : { input }),
    ...(patch === undefined ? {} : { input_patch: patch }),
  };
};
