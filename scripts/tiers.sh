#!/usr/bin/env bash
# Runs make targets one after another, continues when one fails, and ends with a summary.
#
#   scripts/tiers.sh TARGET[,TARGET]...[+TARGET[,TARGET]...]...
#
# Lists joined by + run at the same time, and the targets of a list run one after another. The first list gets the
# processors when it needs them: the others have the lowest priority, and their output is printed when all have ended.
# A target that runs Go tests pipes them through tools/testreport, which writes its counts to the file that BELAY_TALLY
# names and its slowest tests to the file that BELAY_SLOWEST names; the summary shows the counts, and the ten slowest
# tests of all targets. The exit status is 0 only if every target passed.
set -uo pipefail

mkdir -p bin # in /tmp, scripts/inmemory.sh would hide the directory from some targets
work=$(mktemp -d "$PWD/bin/tiers.XXXXXX")
trap 'rm -rf "$work"' EXIT

# tier runs one target, with a command in front of make if one is given, and writes its row of the summary, and a mark
# unless the target passed.
tier() {
  local target=$1 start=$SECONDS verdict=ok
  local before=("${@:2}")
  printf '\n== %s ==\n' "$target"
  : >"$work/$target.tally"
  : >"$work/$target.failed" # until it has passed
  if BELAY_TALLY="$work/$target.tally" BELAY_SLOWEST="$work/$target.slowest" \
    "${before[@]}" "${MAKE:-make}" --no-print-directory "$target"; then
    rm "$work/$target.failed"
  else
    verdict=FAILED
  fi
  printf '  %-12s %-7s %4d s   %s\n' "$target" "$verdict" $((SECONDS - start)) \
    "$(paste -sd ';' "$work/$target.tally" | sed 's/;/; /g')" >"$work/$target.row"
}

# list runs the targets of a list, with a command in front of make if one is given.
list() {
  local targets target
  IFS=, read -ra targets <<<"$1"
  for target in "${targets[@]}"; do
    tier "$target" "${@:2}"
  done
}

targets=() failed=() began=$SECONDS
for group in "$@"; do
  IFS=+ read -ra lists <<<"$group"
  for beside in "${lists[@]:1}"; do
    list "$beside" nice -n 19 >"$work/$beside.log" 2>&1 &
  done
  list "${lists[0]}"
  wait
  for beside in "${lists[@]:1}"; do
    cat "$work/$beside.log"
  done
  IFS=+, read -ra lists <<<"$group"
  targets+=("${lists[@]}")
done

printf '\n== summary ==\n'
for target in "${targets[@]}"; do
  cat "$work/$target.row"
  [ ! -e "$work/$target.failed" ] || failed+=("$target")
done
if compgen -G "$work/*.slowest" >/dev/null; then
  printf 'slowest of all:\n'
  sort -rn "$work"/*.slowest | head -n 10
fi
total=$((SECONDS - began))
if [ "${#failed[@]}" -gt 0 ]; then
  printf 'FAILED: %s (%d of %d tiers, %d s)\n' "${failed[*]}" "${#failed[@]}" "${#targets[@]}" "$total"
  exit 1
fi
printf 'PASSED: all %d tiers in %d s\n' "${#targets[@]}" "$total"
