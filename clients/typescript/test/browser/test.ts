// The part of node:test that the tests use, for a browser.

type Body = (t: Context) => void | Promise<void>;

class Context {
  readonly #ends: (() => unknown)[] = [];
  after(fn: () => unknown): void {
    this.#ends.unshift(fn);
  }
  async end(): Promise<void> {
    for (const fn of this.#ends) await fn();
  }
}

const registered: { name: string; body: Body }[] = [];

export function test(name: string, body: Body): void {
  registered.push({ name, body });
}

/**
 * runAll runs the tests, four at a time, since most of them wait for a server. over gets the error of a failed test.
 */
export async function runAll(
  begun: (name: string) => Promise<unknown>,
  over: (name: string, error?: string) => Promise<unknown>,
): Promise<void> {
  const queue = [...registered];
  const some = async () => {
    for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
      await begun(next.name);
      await over(next.name, await run(next.body));
    }
  };
  await Promise.all([some(), some(), some(), some()]);
}

async function run(body: Body): Promise<string | undefined> {
  const t = new Context();
  try {
    await body(t);
    await t.end();
    return undefined;
  } catch (err) {
    await t.end().catch(() => undefined);
    return err instanceof Error ? `${err.message}\n${err.stack ?? ""}` : String(err);
  }
}
