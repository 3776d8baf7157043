// The part of node:assert/strict that the tests use, for a browser.

type Expected = RegExp | (new (...args: never[]) => unknown) | ((err: unknown) => boolean);

function fail(message: string | undefined, fallback: string): never {
  throw new Error(message ?? fallback);
}

const show = (value: unknown): string => JSON.stringify(value) ?? String(value);

function same(a: unknown, b: unknown): boolean {
  if (Object.is(a, b)) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Object.getPrototypeOf(a) !== Object.getPrototypeOf(b)) return false;
  const keys = Object.keys(a);
  if (keys.length !== Object.keys(b).length) return false;
  return keys.every(
    (k) => Object.hasOwn(b, k) && same((a as Record<string, unknown>)[k], (b as Record<string, unknown>)[k]),
  );
}

function check(err: unknown, expected: Expected | undefined): void {
  if (expected === undefined) return;
  if (expected instanceof RegExp) {
    if (!expected.test(String(err))) fail(undefined, `${String(err)} does not match ${expected}`);
  } else if (/^class\b/.test(Function.prototype.toString.call(expected))) {
    if (!(err instanceof (expected as new () => object))) fail(undefined, `${String(err)} is no ${expected.name}`);
  } else if (!(expected as (err: unknown) => boolean)(err)) {
    fail(undefined, `${String(err)} is another error than expected`);
  }
}

const assert = {
  ok(value: unknown, message?: string): void {
    if (!value) fail(message, "not true");
  },
  equal(a: unknown, b: unknown, message?: string): void {
    if (!Object.is(a, b)) fail(message, `${show(a)} is not ${show(b)}`);
  },
  notEqual(a: unknown, b: unknown, message?: string): void {
    if (Object.is(a, b)) fail(message, `${show(a)} is ${show(b)}`);
  },
  deepEqual(a: unknown, b: unknown, message?: string): void {
    if (!same(a, b)) fail(message, `${show(a)} is not ${show(b)}`);
  },
  match(text: string, pattern: RegExp): void {
    if (!pattern.test(text)) fail(undefined, `${text} does not match ${pattern}`);
  },
  fail(message?: string): never {
    return fail(message, "failed");
  },
  throws(fn: () => unknown, expected?: Expected): void {
    try {
      fn();
    } catch (err) {
      return check(err, expected);
    }
    fail(undefined, "nothing was thrown");
  },
  async rejects(call: Promise<unknown> | (() => Promise<unknown>), expected?: Expected): Promise<void> {
    try {
      await (typeof call === "function" ? call() : call);
    } catch (err) {
      return check(err, expected);
    }
    fail(undefined, "nothing was thrown");
  },
};

export default assert;
