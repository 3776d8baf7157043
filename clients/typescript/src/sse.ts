/** One message of a stream of server-sent events. */
export interface Message {
  event: string;
  data: string;
  /** The id of the message; undefined if it has none. */
  id: string | undefined;
}

/**
 * messages reads a stream of server-sent events as the HTML standard has it. A message that the stream breaks off in is not
 * one. Comments are passed over, but count as a sign of life: alive is called for every piece that comes.
 */
export async function* messages(body: ReadableStream<Uint8Array>, alive: () => void = () => {}): AsyncGenerator<Message, void, undefined> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let message = empty();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      alive();
      const lines = split(rest + decoder.decode(value, { stream: true }));
      rest = lines.pop() ?? "";
      for (const line of lines) {
        if (line !== "") {
          take(message, line);
          continue;
        }
        if (message.lines.length > 0) yield { event: message.event, data: message.lines.join("\n"), id: message.id };
        message = empty();
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined); // it may have broken
  }
}

interface Draft {
  event: string;
  lines: string[];
  id: string | undefined;
}

const empty = (): Draft => ({ event: "message", lines: [], id: undefined });

/** split ends lines at LF, CR LF and CR. A CR at the very end waits for what follows it. */
function split(text: string): string[] {
  const held = text.endsWith("\r");
  const lines = (held ? text.slice(0, -1) : text).split(/\r\n|\n|\r/);
  if (held) lines[lines.length - 1] += "\r";
  return lines;
}

/** take reads one line of a message. */
function take(message: Draft, line: string): void {
  const colon = line.indexOf(":");
  if (colon === 0) return; // a comment
  const field = colon < 0 ? line : line.slice(0, colon);
  const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
  switch (field) {
    case "event":
      message.event = value;
      break;
    case "data":
      message.lines.push(value);
      break;
    case "id":
      if (!value.includes("\0")) message.id = value;
      break;
  }
}
