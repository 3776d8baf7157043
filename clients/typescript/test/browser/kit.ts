// The servers of the tests in a browser: the program that serves the page starts them.
import type { Answer, Seen, Server, Stub } from "../answers.js";
import type { Test } from "../kit.js";

/** ask sends a request to the program that serves the page. */
export async function ask<T>(body: object): Promise<T> {
  const response = await fetch("/control", { method: "POST", body: JSON.stringify(body) });
  if (!response.ok) throw new Error(await response.text());
  return (await response.json()) as T;
}

export async function stub(t: Test, ...answers: Answer[]): Promise<Stub> {
  const { id, url } = await ask<{ id: number; url: string }>({ op: "stub", answers });
  t.after(() => ask({ op: "stop", id }));
  return {
    url,
    seen: () => ask<Seen[]>({ op: "seen", id }),
    closed: (n) => ask({ op: "closed", id, n }),
  };
}

export async function start(t: Test): Promise<Server> {
  const { id, url } = await ask<{ id: number; url: string }>({ op: "start" });
  t.after(() => ask({ op: "stop", id }));
  return { url, kill: () => ask({ op: "kill", id }), up: () => ask({ op: "up", id }) };
}

export async function shared(): Promise<string> {
  return (await ask<{ url: string }>({ op: "shared" })).url;
}
