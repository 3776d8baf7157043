/**
 * A run counts costs in whole ten-thousandths of a token, because sums of binary fractions are not exact. Numbers of up
 * to 15 decimal digits keep all digits when they become a number of JavaScript and JSON again.
 */
const perToken = 10_000;
const most = 999_999_999_999_999;

/** unitsOf converts a number of tokens, or returns undefined if it is negative, too large or has more than 4 decimals. */
export function unitsOf(tokens: number): number | undefined {
  const units = Math.round(tokens * perToken);
  return units >= 0 && units <= most && tokensOf(units) === tokens ? units : undefined;
}

/** tokensOf converts ten-thousandths of a token into tokens. */
export const tokensOf = (units: number): number => units / perToken;

/** sumOf adds two costs, or returns undefined if the sum is too large. */
export function sumOf(a: number, b: number): number | undefined {
  return a + b <= most ? a + b : undefined;
}
