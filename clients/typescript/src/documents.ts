import { accepted, answer, type Api } from "./call.js";
import { newKey } from "./id.js";
import type { components, operations } from "./schema.js";

type Schemas = components["schemas"];
type Query<Name extends keyof operations> = NonNullable<operations[Name]["parameters"]["query"]>;

/** A version of a stored document, with its text. */
export type Document = Schemas["Document"];

/** A version of a stored document, without its text. */
export type DocumentVersion = Schemas["DocumentVersion"];

/** The person or program that changes a document, and the reason. If requests need a key, the actor is the key's name. */
export interface DocumentWhy {
  actor?: string;
  reason?: string;
}

/** Which version must be the newest; otherwise the call throws a conflict. */
export interface DocumentIf {
  /** The number of the newest version. */
  version?: number;
  /** There must be no such document. */
  none?: boolean;
}

/**
 * Documents keeps documents: workflows that are written in YAML or JSON. Versions never change, and an execution keeps
 * the version with which it was submitted. A change needs a key with the scope operate, and is carried out once,
 * however often it is sent.
 */
export class Documents {
  readonly #api: Api;

  constructor(api: Api) {
    this.#api = api;
  }

  /** list reads a page of the stored documents; `list({ cursor: page.next })` reads the next page. */
  list(query: Query<"listDocuments"> = {}): Promise<Schemas["DocumentPage"]> {
    return answer(this.#api.GET("/v1/workflows", { params: { query } }));
  }

  /** versions lists the versions of a document, the newest first. */
  versions(name: string): Promise<Schemas["DocumentVersions"]> {
    return answer(this.#api.GET("/v1/workflows/{name}/versions", { params: { path: { name } } }));
  }

  /** get reads a version, or the newest one. */
  get(name: string, version?: number): Promise<Document> {
    if (version === undefined) return answer(this.#api.GET("/v1/workflows/{name}", { params: { path: { name } } }));
    return answer(this.#api.GET("/v1/workflows/{name}/versions/{version}", { params: { path: { name, version } } }));
  }

  /** apply makes a text the newest version. `created` is false if the newest version has this text already. */
  apply(name: string, text: string, o: DocumentWhy & { if?: DocumentIf } = {}): Promise<Schemas["DocumentApplied"]> {
    const { if: condition = {}, ...why } = o;
    const header: Record<"Idempotency-Key", string> & { "If-Match"?: string; "If-None-Match"?: string } = {
      "Idempotency-Key": newKey(),
    };
    if (condition.version !== undefined) header["If-Match"] = `"${condition.version}"`;
    if (condition.none === true) header["If-None-Match"] = "*";
    return answer(this.#api.PUT("/v1/workflows/{name}", { params: { path: { name }, header }, body: { ...why, text } }));
  }

  /** diff compares two versions; by default the newest with the one before it. */
  diff(name: string, query: Query<"diffDocument"> = {}): Promise<Schemas["DocumentDiff"]> {
    return answer(this.#api.GET("/v1/workflows/{name}/diff", { params: { path: { name }, query } }));
  }

  /** graph draws the tasks of a version. */
  async graph(name: string, version: number, format: "text" | "mermaid" | "svg" = "text"): Promise<string> {
    const params = { path: { name, version }, query: { format } };
    return (await answer(this.#api.GET("/v1/workflows/{name}/versions/{version}/graph", { params }))).graph;
  }

  /** deprecate lets submissions that name no version get an older one. */
  deprecate(name: string, version: number, why: DocumentWhy = {}): Promise<DocumentVersion> {
    const params = change(name, version);
    return answer(this.#api.POST("/v1/workflows/{name}/versions/{version}/deprecate", { params, body: why }));
  }

  /** restore ends the deprecation of a version. */
  restore(name: string, version: number, why: DocumentWhy = {}): Promise<DocumentVersion> {
    const params = change(name, version);
    return answer(this.#api.POST("/v1/workflows/{name}/versions/{version}/restore", { params, body: why }));
  }

  /** remove removes a version, or all versions. Executions keep their text. */
  async remove(name: string, version?: number, why: DocumentWhy = {}): Promise<void> {
    const header = { "Idempotency-Key": newKey() };
    if (version === undefined) {
      await accepted(this.#api.DELETE("/v1/workflows/{name}", { params: { path: { name }, header, query: { ...why } } }));
      return;
    }
    const params = { path: { name, version }, header, query: { ...why } };
    await accepted(this.#api.DELETE("/v1/workflows/{name}/versions/{version}", { params }));
  }
}

/** change names a version of a document and one change of it. */
const change = (name: string, version: number) => ({
  path: { name, version },
  header: { "Idempotency-Key": newKey() },
});
