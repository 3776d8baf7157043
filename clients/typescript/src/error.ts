import type { components } from "./schema.js";

/** The body of every refusal (RFC 9457). */
export type Problem = components["schemas"]["Problem"];

/** The kind of an error: a closed list to switch on. "agent_failed" is the code of a chat whose agent failed. */
export type Code = Problem["code"] | "agent_failed";

/** Why a lease is lost. */
export type LostBecause = NonNullable<Problem["cause"]>;

/** The owner of an execution that another caller wants. */
export type Holder = components["schemas"]["Holder"];

/** kind is the property of a class of errors that names it for all copies of this package. */
export const kind: unique symbol = Symbol.for("belay-client.kind");

/**
 * Kind is an Error that instanceof also recognizes if another copy of this package has made it. A program can load two
 * copies: import gets the ES modules, and require gets the CommonJS modules.
 */
export class Kind extends Error {
  static readonly [kind]: string = "Kind";

  static override [Symbol.hasInstance](value: unknown): boolean {
    if (!Object.hasOwn(this, kind)) return Function.prototype[Symbol.hasInstance].call(this, value);
    if (typeof value !== "object" || value === null) return false;
    for (let p: unknown = Object.getPrototypeOf(value); p !== null && p !== undefined; p = Object.getPrototypeOf(p)) {
      const type = (p as { constructor?: unknown }).constructor;
      if (typeof type !== "function" || !Object.hasOwn(type, kind)) continue;
      if ((type as typeof Kind)[kind] === this[kind]) return true;
    }
    return false;
  }
}

/** BelayError is the error of every call that the server refused or that got no answer. */
export class BelayError extends Kind {
  static override readonly [kind]: string = "BelayError";
  override readonly name: string = "BelayError";
  readonly code: Code;
  /** The HTTP status; 0 if no answer came. */
  readonly status: number;
  /** How long to wait before the next try; undefined if the server gave no time. */
  readonly retryAfterMs: number | undefined;
  /** The refusal as the server sent it; undefined if the answer was no refusal of Belay. */
  readonly problem: Problem | undefined;

  constructor(
    code: Code,
    message: string,
    about: { status?: number; retryAfterMs?: number | undefined; problem?: Problem; cause?: unknown } = {},
  ) {
    super(message, about.cause === undefined ? undefined : { cause: about.cause });
    this.code = code;
    this.status = about.status ?? 0;
    this.retryAfterMs = about.retryAfterMs;
    this.problem = about.problem;
  }
}

/** LeaseLost says that the lease is lost: its former owner can write nothing more. */
export class LeaseLost extends BelayError {
  static override readonly [kind]: string = "LeaseLost";
  override readonly name = "LeaseLost";
  /** Why the lease is lost. It is "expired" too if the owner itself counted the time down. */
  get because(): LostBecause {
    return this.problem?.cause ?? "expired";
  }
}

/** LeaseHeld says that another owner has the execution. */
export class LeaseHeld extends BelayError {
  static override readonly [kind]: string = "LeaseHeld";
  override readonly name = "LeaseHeld";
  get holder(): Holder | undefined {
    return this.problem?.holder;
  }
}

/** invalid is the error of a call that the client refuses before it sends anything. */
export const invalid = (message: string): BelayError => new BelayError("invalid", message);

const foreign = "does not come from a Belay server: check the address and any proxy";

/** unreadable is the error of an answer that is no JSON, or not the JSON of a Belay server. */
export const unreadable = (cause?: unknown): BelayError =>
  new BelayError("internal", `the answer ${foreign}`, { cause });

/** refusal makes the error of an answer whose status is no success; body is the content of the answer. */
export function refusal(response: Response, body: unknown): BelayError {
  const about = { status: response.status, retryAfterMs: retryAfter(response) };
  if (isProblem(body)) return ofProblem(body, about);
  if (isChatError(body)) {
    const { code, message } = body.error;
    return new BelayError((code || "internal") as Code, message, about);
  }
  return new BelayError(foreignCode(response.status), `the answer with status ${response.status} ${foreign}`, about);
}

/** ofProblem makes the error of a problem. */
export function ofProblem(p: Problem, about: { status?: number; retryAfterMs?: number | undefined } = {}): BelayError {
  const details = (p.errors ?? []).map((d) => `; ${d.location}: ${d.message}`).join("");
  const cause = p.cause ? ` (${p.cause})` : "";
  const message = (p.op ? `${p.op}: ` : "") + (p.detail ?? p.title) + details + cause;
  const all = { status: about.status ?? p.status, retryAfterMs: p.retry_after_ms ?? about.retryAfterMs, problem: p };
  switch (p.code) {
    case "lease_lost":
      return new LeaseLost(p.code, message, all);
    case "lease_held":
      return new LeaseHeld(p.code, message, all);
    default:
      return new BelayError(p.code, message, all);
  }
}

/** foreignCode is the code of an answer that no Belay server gave, usually the answer of a proxy. */
function foreignCode(status: number): Code {
  switch (status) {
    case 401:
      return "unauthorized";
    case 413:
      return "payload_too_large";
    case 429:
      return "rate_limited";
    case 502:
    case 503:
    case 504:
      return "unavailable";
    default:
      return "internal";
  }
}

/** retryAfter is the time in the header Retry-After, in milliseconds. */
export function retryAfter(response: Response): number | undefined {
  const value = response.headers.get("Retry-After");
  if (value === null || value.trim() === "") return undefined;
  const seconds = Number(value);
  if (Number.isFinite(seconds)) return Math.max(0, seconds * 1000);
  const at = Date.parse(value);
  return Number.isNaN(at) ? undefined : Math.max(0, at - Date.now());
}

function isProblem(body: unknown): body is Problem {
  return (
    typeof body === "object" && body !== null && "title" in body && "code" in body && typeof body.code === "string"
  );
}

/** isChatError recognizes an error in the format of OpenAI's API, which the chat routes use. */
export function isChatError(body: unknown): body is components["schemas"]["ChatError"] {
  if (typeof body !== "object" || body === null || !("error" in body)) return false;
  const e = body.error;
  return typeof e === "object" && e !== null && "message" in e && typeof e.message === "string" && "code" in e;
}
