import { BelayError } from "./error.js";

/** Message is a message of a stream of server-sent events. */
export interface Message {
  event: string;
  data: string;
  /** The id of the message; undefined if it has none. */
  id: string | undefined;
}

/** The largest size of one message, in characters. */
export const maxMessage = 32 * 2 ** 20;

/**
 * messages reads a stream of server-sent events as the HTML standard describes it. If the stream ends within a message,
 * the message does not count. Comments are not messages, but show that the stream is alive: alive is called for each
 * piece of the stream. A message with more than most characters is an error.
 */
export async function* messages(
  body: ReadableStream<Uint8Array>,
  alive: () => void = () => {},
  most = maxMessage,
): AsyncGenerator<Message, void, undefined> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let draft = new Draft();
  let line: string[] = []; // the pieces of a line whose end has not come
  let size = 0; // of the draft and the line
  let cr = false; // the last piece ended with CR, which a LF may follow
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      alive();
      let text = decoder.decode(value, { stream: true });
      if (text === "") continue;
      if (cr && text[0] === "\n") text = text.slice(1);
      cr = text.endsWith("\r");
      const lines = text.split(/\r\n|\n|\r/);
      for (const [i, part] of lines.entries()) {
        line.push(part);
        size += part.length + 1;
        if (size > most) {
          throw new BelayError("payload_too_large", `a message of the stream has more than ${most} characters`);
        }
        if (i === lines.length - 1) break;
        const whole = line.length === 1 ? part : line.join("");
        line = [];
        if (whole !== "") {
          draft.take(whole);
          continue;
        }
        const message = draft.message();
        draft = new Draft();
        size = 0;
        if (message !== undefined) yield message;
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined); // the stream may have broken
  }
}

/** Draft is a message of which not all lines have come. */
class Draft {
  #event = "message";
  #id: string | undefined;
  readonly #lines: string[] = [];

  /** take reads one line. */
  take(line: string): void {
    const colon = line.indexOf(":");
    if (colon === 0) return; // a comment
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    switch (field) {
      case "event":
        this.#event = value;
        break;
      case "data":
        this.#lines.push(value);
        break;
      case "id":
        if (!value.includes("\0")) this.#id = value;
        break;
    }
  }

  /** message is the message; undefined if it has no data. */
  message(): Message | undefined {
    if (this.#lines.length === 0) return undefined;
    return { event: this.#event, data: this.#lines.join("\n"), id: this.#id };
  }
}
