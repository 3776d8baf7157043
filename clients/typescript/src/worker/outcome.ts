import { BelayError } from "../error.js";
import type { components } from "../schema.js";
import { permanent, RunError } from "./error.js";
import { type Circuit, unavailable } from "./target.js";
import { clip } from "./waits.js";

/** Settle is the end of a run, as the server reads it. */
export type Settle = Omit<components["schemas"]["Settle"], "lease" | "op">;

/** Returned is the result of a workflow function. */
export type Returned = { failed: false; output: unknown } | { failed: true; error: unknown };

/** Ending has all that decides how a run ends. */
export interface Ending {
  result: Returned;
  /** The run ends before its function is done: it waits, or an operator asked for the execution. */
  stop: "suspend" | "give" | undefined;
  /** The outcome with which an operator wants the execution back, or circuit_open if a target must not be called. */
  asked: "released" | "preempted" | "circuit_open" | undefined;
  /** The circuit breaker that has refused a call. */
  circuit: Circuit | undefined;
  /** The end of the first wait, the text of all waits, and the seq of the newest signal that the run has read. */
  wait: { until: number | undefined; text: string; seen: number };
  cancelled: boolean;
  /** The worker stops. */
  stopped: boolean;
  timedOut: boolean;
}

/** The largest size of the message and of the stack of a failure, in bytes. */
export const mostText = 16_000;

/** outcomeOf decides how a run ends. */
export function outcomeOf(e: Ending): Settle {
  const r = e.result;
  if (e.stop !== undefined && e.cancelled) return { outcome: "cancelled" };
  if (e.stop === "suspend") {
    const wait =
      e.wait.until === undefined ? {} : { wait_ms: Math.max(1, Math.ceil(e.wait.until - performance.now())) };
    return { outcome: "suspended", wait_text: e.wait.text, signal_seen: e.wait.seen, ...wait };
  }
  if (e.stop === "give") return e.asked === "circuit_open" ? unavailable(e.circuit!) : { outcome: e.asked! };
  if (!r.failed) return succeeded(e, r.output);
  const more = r.error instanceof RunError ? outputOf(r.error) : {};
  const isPermanent = r.error instanceof RunError && r.error.permanent;
  if (e.cancelled) return { outcome: "cancelled", ...more };
  if (e.stopped && !isPermanent) return { outcome: "released", ...more };
  return { ...failed(e, r.error), ...more };
}

function succeeded(e: Ending, output: unknown): Settle {
  try {
    const json = copy(output, "the output");
    return json === undefined ? { outcome: "succeeded" } : { outcome: "succeeded", output: json };
  } catch (err) {
    return failed(e, err);
  }
}

function failed(e: Ending, error: unknown): Settle {
  const retry =
    error instanceof RunError ? error.retryAfterMs : error instanceof BelayError ? error.retryAfterMs : undefined;
  const retry_after_ms = retry === undefined ? {} : { retry_after_ms: Math.max(0, Math.ceil(retry)) };
  const stack = error instanceof Error && error.stack !== undefined ? { stack: clip(error.stack, mostText) } : {};
  const name = error instanceof Error && !(error instanceof RunError) ? `${error.name}: ` : "";
  const message = clip(error instanceof Error ? name + error.message : String(error), mostText);
  if (e.timedOut) return { outcome: "timed_out", failure: { class: "timeout", message }, ...retry_after_ms };
  const isPermanent = error instanceof RunError && error.permanent;
  return {
    outcome: "failed",
    failure: { class: isPermanent ? "permanent" : "transient", message, ...stack },
    ...retry_after_ms,
  };
}

/** outputOf is the output of a failed run; none if it cannot be written as JSON. */
function outputOf(err: RunError): { output?: unknown } {
  try {
    const output = copy(err.output, "the output");
    return output === undefined ? {} : { output };
  } catch {
    return {};
  }
}

/** copy is a value as JSON represents it, so that a function sees the same value now and after a crash. */
export function copy<T>(value: T, what: string): T {
  try {
    const json = JSON.stringify(value) as string | undefined;
    return (json === undefined ? undefined : JSON.parse(json)) as T;
  } catch (cause) {
    throw permanent(
      `${what} cannot be written as JSON: ${cause instanceof Error ? cause.message : String(cause)}`,
      cause,
    );
  }
}
