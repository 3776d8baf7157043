import { answer, type Api } from "./call.js";
import { BelayError, isChatError, refusal, unreadable } from "./error.js";
import { isStream, readJSON, send, type Fetch } from "./fetch.js";
import { header } from "./path.js";
import type { components } from "./schema.js";
import { messages } from "./sse.js";
import { parse, type Source } from "./stream.js";
import { linked } from "./time.js";

type Schemas = components["schemas"];

/** A request of a chat in the format of OpenAI's API. */
export type ChatRequest = Schemas["ChatRequest"];

/** The answer to a chat, or one piece of it in a stream. */
export type Completion = Schemas["Completion"];

export interface ChatOptions {
  /**
   * Names the job of the chat: a repeated call with the same key finds the first job. With a key the job continues if
   * the caller leaves; without one it is cancelled then.
   */
  idempotencyKey?: string;
  /** Ends the call. */
  signal?: AbortSignal;
}

/** spoken is the text of an answer, or of one piece of it. */
export function spoken(c: Completion): string {
  const choice = c.choices[0];
  return choice?.message?.content ?? choice?.delta?.content ?? "";
}

/** chat sends a request, and waits for the whole answer. */
export async function chat(api: Api, fetch: Fetch, request: ChatRequest | string, o: ChatOptions): Promise<Completion> {
  const call = api.POST("/v1/chat/completions", {
    params: { header: named(o) },
    body: bodyOf(request, false),
    fetch,
    ...(o.signal ? { signal: o.signal } : {}),
  });
  const reply: unknown = await answer(call);
  if (typeof reply !== "object" || reply === null || !("choices" in reply)) throw unreadable();
  return reply as Completion;
}

/** How long a stream may be silent, in milliseconds. The server gives a sign of life every 15 s. */
const silenceMs = 45_000;

/** chatStream sends a request, and yields the pieces of the answer. It sends the request once. */
export async function* chatStream(
  source: Source,
  request: ChatRequest | string,
  o: ChatOptions,
): AsyncGenerator<Completion, void, undefined> {
  const headers = new Headers(source.headers);
  headers.set("Content-Type", "application/json");
  for (const [name, value] of Object.entries(named(o))) headers.set(name, value);
  const time = linked(o.signal, silenceMs);
  try {
    const body = JSON.stringify(bodyOf(request, true));
    const init = { method: "POST", headers, body, signal: time.signal, redirect: "manual" } as const;
    const response = await send(source.fetch, new Request(`${source.url}/v1/chat/completions`, init));
    if (!response.ok) throw refusal(response, await readJSON(response, source.maxAnswerBytes));
    if (!isStream(response) || response.body === null) throw unreadable();
    for await (const m of messages(response.body, time.restart)) {
      if (m.data === "[DONE]") return;
      const piece = parse<Completion>(m);
      if (isChatError(piece)) throw refusal(new Response(null, { status: 500 }), piece);
      time.stop(); // the caller may take its time
      yield piece;
      time.restart();
    }
    throw new Error("the stream ended before its last message");
  } catch (cause) {
    o.signal?.throwIfAborted();
    throw cause instanceof BelayError
      ? cause
      : new BelayError("unavailable", "the answer to the chat was cut off", { cause });
  } finally {
    time.release();
    time.abort();
  }
}

function bodyOf(request: ChatRequest | string, stream: boolean): ChatRequest {
  const chat: ChatRequest = typeof request === "string" ? { messages: [{ role: "user", content: request }] } : request;
  return { ...chat, stream };
}

/** named is the header that names the job of a chat. */
function named(o: ChatOptions): { "Idempotency-Key"?: string } {
  return o.idempotencyKey === undefined ? {} : { "Idempotency-Key": header("the idempotency key", o.idempotencyKey) };
}
