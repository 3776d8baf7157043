import type { components } from "./schema.js";

/** The body of every refusal (RFC 9457). */
export type Problem = components["schemas"]["Problem"];

/** What kind of refusal an error is: a closed list to switch on. */
export type Code = Problem["code"];

/** Why a lease is lost. */
export type LostBecause = NonNullable<Problem["cause"]>;

/** Who owns an execution that cannot be had. */
export type Holder = components["schemas"]["Holder"];

/** What Belay refuses with. */
export class BelayError extends Error {
  override readonly name: string = "BelayError";
  readonly code: Code;
  /** The HTTP status; 0 if no answer came. */
  readonly status: number;
  /** How long to wait before asking again; undefined if asking again is no use. */
  readonly retryAfterMs: number | undefined;
  /** The refusal as it came; undefined if none did. */
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

/** The lease is lost: this owner can write nothing more. */
export class LeaseLost extends BelayError {
  override readonly name = "LeaseLost";
  /** Why; "expired" also when the owner itself counted the time down. */
  get because(): LostBecause {
    return this.problem?.cause ?? "expired";
  }
}

/** Somebody else owns the execution. */
export class LeaseHeld extends BelayError {
  override readonly name = "LeaseHeld";
  get holder(): Holder | undefined {
    return this.problem?.holder;
  }
}

/** refusal is the error that a response stands for; body is what it held. */
export function refusal(response: Response, body: unknown): BelayError {
  const retryAfterMs = retryAfter(response);
  if (!isProblem(body)) {
    const code = response.status === 503 || response.status === 502 || response.status === 504 ? "unavailable" : "internal";
    return new BelayError(code, `the server answered ${response.status} without saying why`, { status: response.status, retryAfterMs });
  }
  const details = (body.errors ?? []).map((d) => `; ${d.location}: ${d.message}`).join("");
  const message = (body.op ? `${body.op}: ` : "") + (body.detail ?? body.title) + details + (body.cause ? ` (${body.cause})` : "");
  const about = { status: response.status, retryAfterMs: body.retry_after_ms ?? retryAfterMs, problem: body };
  switch (body.code) {
    case "lease_lost":
      return new LeaseLost(body.code, message, about);
    case "lease_held":
      return new LeaseHeld(body.code, message, about);
    default:
      return new BelayError(body.code, message, about);
  }
}

/** retryAfter is what the header Retry-After asks for, in milliseconds. */
export function retryAfter(response: Response): number | undefined {
  const value = response.headers.get("Retry-After");
  if (value === null) return undefined;
  const seconds = Number(value);
  if (Number.isFinite(seconds)) return Math.max(0, seconds * 1000);
  const at = Date.parse(value);
  return Number.isNaN(at) ? undefined : Math.max(0, at - Date.now());
}

function isProblem(body: unknown): body is Problem {
  return typeof body === "object" && body !== null && "code" in body && "title" in body;
}
