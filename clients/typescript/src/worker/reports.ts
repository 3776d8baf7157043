import type { components } from "../schema.js";
import { Yield } from "./error.js";
import { clip } from "./waits.js";

export type StepReport = components["schemas"]["StepReport"];

/**
 * How long a step or wait lasts before a heartbeat names it. So steps that take less time cost no heartbeat, and a
 * longer step appears about a second after its begin.
 */
export const tellAfterMs = 500;
/** The most steps that one write reports, and the most current steps of a run. */
const most = 8;
/** The largest size of the error of a step, in bytes. */
const mostError = 200;

/** Doing is a try of a step, or a wait, while it is under way. */
export interface Doing {
  readonly kind: "step" | "wait";
  readonly name: string;
  /** The number of the try; undefined for a step without tries. */
  readonly attempt: number | undefined;
  readonly began: number;
  /** How long it took, once it has ended. */
  tookMs: number | undefined;
  error: string | undefined;
  /** A heartbeat has named it. */
  told: boolean;
}

/**
 * Reports has what a run reports of its steps and waits: in heartbeats those that are under way, and with the next
 * checkpoint or settlement those that have ended without a checkpoint of their own, such as failed tries and sleeps.
 */
export class Reports {
  readonly #doing = new Set<Doing>();
  readonly #report: () => void;
  #ended: Doing[] = [];
  #stale = false; // a step or wait has ended that a heartbeat has named

  /** report is called when there may be something for a heartbeat. */
  constructor(report: () => void) {
    this.#report = report;
  }

  begin(kind: Doing["kind"], name: string, attempt?: number): Doing {
    const d: Doing = {
      kind,
      name,
      attempt,
      began: performance.now(),
      tookMs: undefined,
      error: undefined,
      told: false,
    };
    this.#doing.add(d);
    this.#report();
    return d;
  }

  /** end notes that a try of a step has ended. A try that gave the execution back does not count as failed. */
  end(d: Doing, failed: boolean, error?: unknown): void {
    d.tookMs = performance.now() - d.began;
    if (!failed || error instanceof Yield) return;
    d.error = brief(error);
    this.#add(d);
  }

  /** drop forgets a step or wait that is not under way any more. */
  drop(d: Doing | undefined): void {
    if (d === undefined || !this.#doing.delete(d) || !d.told) return;
    this.#stale = true;
    this.#report();
  }

  /** endWait notes that a wait has ended; a sleep saves no checkpoint at its end. */
  endWait(d: Doing | undefined, sleeps: boolean, failed: boolean, error?: unknown): void {
    if (d === undefined) return;
    this.drop(d);
    if (failed && error instanceof Yield) return this.#add(d); // the wait goes on without the run
    if (!failed && !sleeps) return;
    this.end(d, failed, error);
    if (!failed) this.#add(d);
  }

  #add(d: Doing): void {
    this.#ended = [...this.#ended, d].slice(-most);
  }

  /** take returns the steps and waits that no write has reported yet, and forgets them. */
  take(): StepReport[] {
    const all = this.#ended.map(reportOf);
    this.#ended = [];
    return all;
  }

  /** current returns the steps and waits that a heartbeat should name, and marks them as told. */
  current(): StepReport[] {
    this.#stale = false;
    const old = [...this.#doing].filter((d) => performance.now() - d.began >= tellAfterMs).slice(0, most);
    for (const d of old) d.told = true;
    return old.map(reportOf);
  }

  /**
   * untold reports whether a heartbeat would name other steps than the last one. nextMs is the time until a step that
   * is under way is old enough for a heartbeat; undefined if there is none.
   */
  untold(): { due: boolean; nextMs: number | undefined } {
    let due = this.#stale;
    let nextMs: number | undefined;
    for (const d of [...this.#doing].slice(0, most)) {
      if (d.told) continue;
      const left = tellAfterMs - (performance.now() - d.began);
      if (left <= 0) due = true;
      else nextMs = Math.min(nextMs ?? left, left);
    }
    return { due, nextMs };
  }
}

function reportOf(d: Doing): StepReport {
  return {
    kind: d.kind,
    name: d.name,
    ago_ms: Math.round(performance.now() - d.began),
    ...(d.attempt === undefined ? {} : { attempt: d.attempt }),
    ...(d.tookMs === undefined ? {} : { over: true, duration_ms: Math.ceil(d.tookMs) }),
    ...(d.error === undefined ? {} : { error: d.error }),
  };
}

/** brief is the text of an error for a report, without control characters: a server refuses a NUL. */
function brief(error: unknown): string {
  const text = (error instanceof Error ? error.message : String(error)).slice(0, 4 * mostError);
  const whole = new TextDecoder().decode(new TextEncoder().encode(text)); // without halves of characters
  return clip(whole.replace(/[\u0000-\u001f\u007f-\u009f]+/g, " "), mostError);
}
