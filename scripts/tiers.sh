#!/usr/bin/env bash
# Runs make targets one after another, all of them even when one fails, and ends with a summary.
#
#   scripts/tiers.sh TARGET...
#
# A target that runs Go tests pipes them through tools/testreport, which leaves its counts in the file named by
# BELAY_TALLY; the summary shows them. The exit status is 0 only if every target passed.
set -uo pipefail

BELAY_TALLY=$(mktemp)
export BELAY_TALLY
trap 'rm -f "$BELAY_TALLY"' EXIT

rows=() failed=() began=$SECONDS
for target in "$@"; do
  printf '\n== %s ==\n' "$target"
  : >"$BELAY_TALLY"
  start=$SECONDS
  if "${MAKE:-make}" --no-print-directory "$target"; then
    verdict=ok
  else
    verdict=FAILED
    failed+=("$target")
  fi
  rows+=("$(printf '  %-12s %-7s %4d s   %s' "$target" "$verdict" $((SECONDS - start)) "$(paste -sd ';' "$BELAY_TALLY" | sed 's/;/; /g')")")
done

printf '\n== summary ==\n'
printf '%s\n' "${rows[@]}"
total=$((SECONDS - began))
if [ "${#failed[@]}" -gt 0 ]; then
  printf 'FAILED: %s (%d of %d tiers, %d s)\n' "${failed[*]}" "${#failed[@]}" "$#" "$total"
  exit 1
fi
printf 'PASSED: all %d tiers in %d s\n' "$#" "$total"
