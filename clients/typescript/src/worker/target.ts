import type { components } from "../schema.js";
import { RunError, TimedOut, Yield } from "./error.js";
import type { Settle } from "./outcome.js";

/** Circuit is the reason for which a run ends before a call of a target: the circuit breaker has refused the call. */
export interface Circuit {
  target: string;
  why: string;
  /** When the breaker lets calls through by itself, if that is known. */
  retryAfterMs: number | undefined;
}

/** circuitOf is the circuit breaker that has refused a call with an answer of the server. */
export function circuitOf(target: string, answer: components["schemas"]["TargetAnswer"]): Circuit {
  const { why, retry_after_ms } = answer as { why?: unknown; retry_after_ms?: unknown };
  return {
    target,
    why: typeof why === "string" ? why : `the target ${target} is not called`,
    retryAfterMs: Number.isSafeInteger(retry_after_ms) ? Math.max(0, retry_after_ms as number) : undefined,
  };
}

/** unavailable is the end of a run that waits for the circuit breaker. It counts as no attempt. */
export function unavailable({ target, why, retryAfterMs }: Circuit): Settle {
  const retry_after_ms = retryAfterMs === undefined ? {} : { retry_after_ms: retryAfterMs };
  return { outcome: "failed", failure: { class: "circuit_open", message: why, target }, ...retry_after_ms };
}

/** blame says whether the target is to blame for the error of a call. */
export function blame(err: unknown, signal: AbortSignal): "failed" | "released" {
  if (err instanceof Yield || (err instanceof RunError && err.permanent)) return "released";
  // The run was cancelled, or has lost its lease.
  return signal.aborted && !(signal.reason instanceof TimedOut) ? "released" : "failed";
}
