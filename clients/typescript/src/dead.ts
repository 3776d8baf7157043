import { answer, type Api } from "./call.js";
import { newKey } from "./id.js";
import type { components, operations } from "./schema.js";

type Schemas = components["schemas"];
type Query<Name extends keyof operations> = NonNullable<operations[Name]["parameters"]["query"]>;

/** The record of an execution that failed for good. */
export type DeadLetter = Schemas["DeadLetter"];

/** A dead letter with its input, policy, error, stack trace, failed tasks and notes. */
export type DeadLetterDetail = Schemas["DeadLetterDetail"];

/** Dead letters of one workflow with the same error. */
export type DeadLetterGroup = Schemas["DeadLetterGroup"];

/** The person or program that resolves a dead letter, and the reason. If requests need a key, the actor is its name. */
export interface DeadLetterWhy {
  actor?: string;
  notes?: string;
  /** The generation that failed; without it, the newest dead letter of the execution. */
  generation?: number;
}

export interface RequeueOptions extends DeadLetterWhy {
  /** Another input; then all steps run again. */
  input?: unknown;
  /** A JSON Merge Patch (RFC 7396) of the present input; then all steps run again. */
  patch?: unknown;
}

/**
 * DeadLetters shows and resolves dead letters: the records of executions that failed for good. A dead letter is resolved
 * once; a second resolution fails with the code "conflict" and names the first. Each change is carried out once, however
 * often it is sent, and needs a key with the scope operate.
 */
export class DeadLetters {
  readonly #api: Api;

  constructor(api: Api) {
    this.#api = api;
  }

  /**
   * list reads a page of dead letters, the newest first: the open ones, unless resolution says otherwise.
   * `list({ cursor: page.next })` reads the next page. A page may be empty although next is set.
   */
  list(query: Query<"listDeadLetters"> = {}): Promise<Schemas["DeadLetterPage"]> {
    return answer(this.#api.GET("/v1/dead-letters", { params: { query } }));
  }

  /** groups counts dead letters by the fingerprint of their errors, the largest group first. */
  groups(query: Query<"groupDeadLetters"> = {}): Promise<Schemas["DeadLetterGroups"]> {
    return answer(this.#api.GET("/v1/dead-letter-groups", { params: { query } }));
  }

  /** get reads the newest dead letter of an execution, or the one of a generation. */
  get(id: string, generation?: number): Promise<DeadLetterDetail> {
    const query = generation === undefined ? {} : { generation };
    return answer(this.#api.GET("/v1/dead-letters/{id}", { params: { path: { id }, query } }));
  }

  /** requeue runs the execution again. Without an input and a patch, finished steps keep their results. */
  requeue(id: string, o: RequeueOptions = {}): Promise<Schemas["Requeued"]> {
    const { input, patch, ...why } = o;
    const body = { ...why, ...(input === undefined ? {} : { input }), ...(patch === undefined ? {} : { input_patch: patch }) };
    return answer(this.#api.POST("/v1/dead-letters/{id}/requeue", { params: change(id), body }));
  }

  /** discard resolves the dead letter: the work is not needed. */
  discard(id: string, why: DeadLetterWhy = {}): Promise<DeadLetter> {
    return answer(this.#api.POST("/v1/dead-letters/{id}/discard", { params: change(id), body: why }));
  }

  /** fix resolves the dead letter: a person has repaired the consequences. */
  fix(id: string, why: DeadLetterWhy = {}): Promise<DeadLetter> {
    return answer(this.#api.POST("/v1/dead-letters/{id}/fix", { params: change(id), body: why }));
  }

  /** note adds a note to the dead letter, open or resolved. */
  note(id: string, notes: string, why: Omit<DeadLetterWhy, "notes"> = {}): Promise<DeadLetter> {
    return answer(this.#api.POST("/v1/dead-letters/{id}/note", { params: change(id), body: { ...why, notes } }));
  }
}

/** change names an execution and one change of its dead letter. */
const change = (id: string) => ({ path: { id }, header: { "Idempotency-Key": newKey() } });
