import type { components } from "../schema.js";
import { RunError } from "./error.js";

/** Retry configures how often and after which delay a step is tried again within its run. */
export interface Retry {
  /** The number of tries in all; 1 by default. */
  attempts: number;
  /** The delay after the first failure, which doubles up to capMs. */
  baseMs: number;
  capMs?: number;
}

/** SignalOptions configures a wait for a signal. */
export interface SignalOptions<T> {
  /** The key of the wait; without it, the name of the signal. */
  key?: string;
  timeoutMs?: number;
  /**
   * Checks the payload of the signal and returns the result of the wait. If parse throws, the signal is consumed and
   * waitSignal throws a permanent RunError. Its result is not saved: the next call for this wait, in the same run or
   * after a retry by an operator, waits for another signal, with the whole timeout.
   */
  parse?: (payload: unknown) => T;
}

/** parserOf returns the function that checks the payload of a signal. Its errors are permanent. */
export function parserOf<T>(signal: string, o: SignalOptions<T>): (payload: unknown) => T {
  return (payload) => {
    if (o.parse === undefined) return payload as T;
    try {
      return o.parse(payload);
    } catch (cause) {
      const why = cause instanceof Error ? cause.message : String(cause);
      const text = `signal ${JSON.stringify(signal)}: the payload has the wrong type: ${why}`;
      throw new RunError(`${text}; a retry waits for another signal`, { permanent: true, cause });
    }
  };
}

/** StepOptions configures a step. */
export interface StepOptions extends Partial<Retry> {
  /**
   * The name of the external service that the step calls, such as "payments:charge". All executions that name a target
   * share its circuit breaker, over all servers: after five failures within a minute it is open for 30 seconds, and then
   * lets two calls through, to find out whether the service is available again. Errors of permanent() are no failures
   * of the target. While the breaker is open, or an operator has paused the target, the step throws Yield instead of
   * calling fn: the run gives its execution back, without an attempt being counted, and a later run continues here. The
   * worker asks for the breaker with one request before each try.
   */
  target?: string;
}

/**
 * Run is one attempt at an execution. If its worker crashes, another worker calls the function again from its
 * beginning: steps that were saved return their saved results, and the code between steps runs again. There is no
 * replay of anything else.
 *
 * Steps and waits have keys, which are unique within an execution and stay the same when the program changes. Do not
 * use time or randomness for keys.
 */
export interface Run {
  /** The id of the execution. */
  readonly execution: string;
  readonly workflow: string;
  readonly version: string | undefined;
  readonly queue: string;
  /** The number of the attempt, from 1. */
  readonly attempt: number;
  /** The fencing token: send it to systems that can refuse a stale owner. */
  readonly token: number;
  /** The lease, such as for operations of a batch. It contains a secret: never log it. */
  readonly lease: components["schemas"]["Lease"];
  /**
   * Aborted when the function must end. Its reason is LeaseLost, Cancelled, TimedOut or Stopping. Pass it to all
   * requests of the function.
   */
  readonly signal: AbortSignal;
  /** The state that saveState saved last, in this run or an earlier one; undefined if there is none. */
  readonly state: unknown;

  /**
   * step calls fn and saves its result, or returns the result that an earlier run saved under the key. It returns a
   * copy of the result as JSON represents it. If the worker crashes between fn and its saved result, another worker
   * calls fn again.
   */
  step<T>(key: string, fn: (signal: AbortSignal) => T | Promise<T>, options?: StepOptions): Promise<T>;

  /** saveState saves any JSON in place of the state saved before. */
  saveState(state: unknown): Promise<void>;

  /**
   * sleep waits until ms have passed since the first run of the execution called it, by the clock of the server. A wait
   * of more than a second frees the worker: the function is called again when the time is over.
   */
  sleep(key: string, ms: number): Promise<void>;

  /**
   * waitSignal waits for a signal, consumes it and returns its payload. A wait of more than a second frees the worker:
   * the function is called again when the signal comes. With timeoutMs it throws WaitTimeout once this time has passed
   * since the first run of the execution called it. The key is the name of the signal, unless o has another one.
   */
  waitSignal<T = unknown>(name: string, o?: SignalOptions<T>): Promise<T>;

  /**
   * guard throws if the lease is lost, or if no heartbeat was answered for so long that another worker may get the
   * execution soon. Call it right before effects on other systems; step and saveState do so.
   */
  guard(): void;

  /** progress shows that the function makes progress, for executions with an idle timeout. */
  progress(): void;

  /**
   * addCost adds tokens to the cost of the execution. They are saved with the next step or the end. A number of tokens
   * may have up to four decimals, which are added exactly; addCost refuses any other number, so round it first.
   */
  addCost(tokens: number): void;
}
