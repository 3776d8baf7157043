import { BelayError, ofProblem, unreadable } from "./error.js";
import { newExecutionId, newOpId } from "./id.js";
import type { components } from "./schema.js";
import { backoff, pause } from "./time.js";

type Schemas = components["schemas"];

/** Op is an operation of a batch: exactly one of its fields is set. */
export type Op = Schemas["Op"];

/** The answer to one operation of a batch. */
export type Result = Schemas["Result"];

/** Submission is an execution to submit, one of several. */
export type Submission = Schemas["Submit"];

/** The answer to one of several submissions. */
export interface Submitted {
  /** The id of the execution. */
  readonly id: string;
  /** An earlier submission had the same id or idempotency_key. */
  readonly replayed: boolean;
  /** Why the server refused this submission; undefined if it accepted it. */
  readonly error: BelayError | undefined;
}

/** Post sends a batch, and repeats it while the server is away; roots says that all operations submit roots. */
export type Post = (ops: Op[], roots: boolean) => Promise<Result[]>;

/** The most operations of one request. */
const mostOps = 1000;
/** The size at which a request is full, in bytes. The server accepts 16 MiB; a smaller request delays others less. */
const fullBytes = 2 * 2 ** 20;

/** named gives each operation that has no id of its own one, so that it is done once however often it is sent. */
export function named(op: Op): Op {
  const { submit, signal, save, settle } = op;
  if (submit !== undefined)
    return submit.id || submit.idempotency_key ? op : { submit: { ...submit, id: newExecutionId() } };
  if (signal !== undefined) return signal.op ? op : { signal: { ...signal, op: newOpId() } };
  if (save !== undefined) return save.op ? op : { save: { ...save, op: newOpId() } };
  if (settle !== undefined) return settle.op ? op : { settle: { ...settle, op: newOpId() } };
  return op;
}

/** submitMany submits executions in few requests. The answers have the order of the submissions. */
export async function submitMany(post: Post, list: readonly Submission[], patienceMs: number): Promise<Submitted[]> {
  const ops = list.map((submit) => named({ submit }));
  const answers = new Array<Submitted | undefined>(list.length);
  const until = performance.now() + patienceMs;
  let open = ops.map((_, i) => i);
  for (let tries = 0; ; tries++) {
    for (const some of portions(ops, open)) {
      const results = await carry(
        post,
        some.map((i) => ops[i]!),
      );
      some.forEach((i, n) => (answers[i] = answerOf(ops[i]!, results[n]!)));
    }
    open = open.filter((i) => passing(answers[i]?.error));
    const wait = Math.max(backoff(tries), ...open.map((i) => answers[i]?.error?.retryAfterMs ?? 0));
    if (open.length === 0 || performance.now() + wait > until) return answers as Submitted[];
    await pause(wait);
  }
}

const passing = (e: BelayError | undefined): boolean => e?.code === "unavailable" || e?.code === "rate_limited";

function answerOf(op: Op, r: Result | BelayError): Submitted {
  const named = op.submit?.id ?? "";
  if (r instanceof BelayError) return { id: named, replayed: false, error: r };
  if (r.error !== undefined) return { id: named, replayed: false, error: ofProblem(r.error) };
  if (r.submitted === undefined) return { id: named, replayed: false, error: unreadable() };
  return { id: r.submitted.id, replayed: r.submitted.replayed ?? false, error: undefined };
}

/** portions are the operations in groups that one request has room for. Roots and children are not mixed. */
function* portions(ops: readonly Op[], open: readonly number[]): Generator<number[]> {
  for (const roots of [true, false]) {
    let some: number[] = [];
    let size = 0;
    for (const i of open.filter((i) => (ops[i]!.submit?.parent === undefined) === roots)) {
      const bytes = new TextEncoder().encode(JSON.stringify(ops[i])).length;
      if (some.length === mostOps || (some.length > 0 && size + bytes > fullBytes)) {
        yield some;
        [some, size] = [[], 0];
      }
      some.push(i);
      size += bytes;
    }
    if (some.length > 0) yield some;
  }
}

/**
 * carry sends operations. If the server refuses the whole request because of its content, it has done nothing; then
 * carry sends the two halves, so that one wrong operation does not make the others fail.
 */
async function carry(post: Post, ops: Op[]): Promise<(Result | BelayError)[]> {
  try {
    return await post(ops, ops[0]?.submit !== undefined && ops[0].submit.parent === undefined);
  } catch (err) {
    if (!(err instanceof BelayError)) throw err;
    const content = err.code === "malformed" || err.code === "invalid" || err.code === "payload_too_large";
    if (!content || ops.length === 1) return ops.map(() => err);
    const half = ops.length >> 1;
    return [...(await carry(post, ops.slice(0, half))), ...(await carry(post, ops.slice(half)))];
  }
}
