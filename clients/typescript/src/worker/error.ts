import { BelayError, Kind, kind } from "../error.js";

/** RunError is an error of a workflow function that says more than its message. */
export class RunError extends Kind {
  static override readonly [kind]: string = "RunError";
  override readonly name: string = "RunError";
  /** No further attempt follows. */
  readonly permanent: boolean;
  /** The least delay before the next attempt. */
  readonly retryAfterMs: number | undefined;
  /** The output of the failed execution; any JSON. */
  readonly output: unknown;

  constructor(
    message: string,
    o: { permanent?: boolean; retryAfterMs?: number; output?: unknown; cause?: unknown } = {},
  ) {
    super(message, o.cause === undefined ? undefined : { cause: o.cause });
    this.permanent = o.permanent ?? false;
    this.retryAfterMs = o.retryAfterMs;
    this.output = o.output;
  }
}

/**
 * Yield is the error of steps and waits once the run gives its execution back: it suspends, or an operator asked for
 * it. A function that catches errors must throw it again.
 */
export class Yield extends Kind {
  static override readonly [kind]: string = "Yield";
  override readonly name: string = "Yield";

  constructor() {
    super("the run gives its execution back; throw this error again");
  }
}

/** WaitTimeout is the error of a wait for a signal that did not come in time. */
export class WaitTimeout extends Kind {
  static override readonly [kind]: string = "WaitTimeout";
  override readonly name: string = "WaitTimeout";
}

/** Cancelled is the reason of a run's AbortSignal when its execution was cancelled. */
export class Cancelled extends Kind {
  static override readonly [kind]: string = "Cancelled";
  override readonly name: string = "Cancelled";

  constructor(
    /** The time that the function has to end, in milliseconds. */
    readonly withinMs: number,
  ) {
    super(`the execution was cancelled; the function has ${withinMs} ms to end`);
  }
}

/** Stopping is the reason of a run's AbortSignal when its worker stops. */
export class Stopping extends Kind {
  static override readonly [kind]: string = "Stopping";
  override readonly name: string = "Stopping";

  constructor() {
    super("the worker stops; another worker continues the execution");
  }
}

/** TimedOut is the reason of a run's AbortSignal when the time of the run is over. */
export class TimedOut extends Kind {
  static override readonly [kind]: string = "TimedOut";
  override readonly name: string = "TimedOut";

  constructor() {
    super("the time of the run is over");
  }
}

/** permanent makes an error after which no further attempt follows. */
export const permanent = (message: string, cause?: unknown): RunError =>
  new RunError(message, { permanent: true, cause });

/** refused is the error of a refused write. It is permanent if the next run would get the same error. */
export function refused(op: string, err: unknown): unknown {
  if (!(err instanceof BelayError)) return err;
  switch (err.code) {
    case "invalid":
    case "malformed":
    case "payload_too_large":
    case "idempotency_mismatch":
    case "forbidden":
      return permanent(`${op}: ${err.message}`, err);
    default:
      return err;
  }
}
