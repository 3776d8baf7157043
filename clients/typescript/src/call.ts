import type { Client } from "openapi-fetch";
import { refusal, unreadable } from "./error.js";
import type { paths } from "./schema.js";

/** Every route of the server, typed. */
export type Api = Client<paths>;

/** The answer of openapi-fetch. */
type Call<T> = Promise<{ data?: T; error?: unknown; response: Response }>;

/** answer is the body of a call's answer. It throws if the server refused the call. */
export async function answer<T>(call: Call<T>): Promise<NonNullable<T>> {
  const { data, response } = await accepted(call);
  if (typeof data !== "object" || data === null) throw unreadable(`status ${response.status}`);
  return data;
}

/** accepted throws if the server refused a call, or if its answer is no JSON. */
export async function accepted<T>(call: Call<T>): Call<T> {
  let reply: Awaited<Call<T>>;
  try {
    reply = await call;
  } catch (err) {
    throw err instanceof SyntaxError ? unreadable(err) : err;
  }
  if (!reply.response.ok) throw refusal(reply.response, reply.error);
  return reply;
}
