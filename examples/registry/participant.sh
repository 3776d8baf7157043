#!/usr/bin/env bash
# Takes part in Belay's registry without Belay: with flock (util-linux), jq and sync.
#
#   participant.sh DIRECTORY NAME RECIPE PIECES
#
# Registers this script as a preemptible workflow, works piece by piece, renews its entry, and leaves when a swap asks it
# to yield. Exits with 75 if a swap to another recipe is in progress or if the entry is lost. The script leaves the marker
# of a dead swap to others: it is refused until somebody has called `belay registry ls`.
set -euo pipefail
mkdir -p -m 700 "$1"
dir=$(realpath "$1") name=$2 recipe=$3 pieces=$4
state=$dir/workflows.json
read -r line <"/proc/$$/stat"
fields=(${line##*) })
start=$((fields[19] * (1000000000 / $(getconf CLK_TCK))))
signal=$dir/signals/$name-$$-$start.preempt

# times prints the fields of a renewal.
times() {
  read -r uptime _ </proc/uptime
  jq -n --arg at "$(date -u +%FT%TZ)" --arg up "$uptime" \
    '{last_renewed_at: $at, last_renewed_boot_ns: ($up | tonumber * 1e9 | floor)}'
}

# change FILTER replaces the state by the output of a jq filter, under the lock, atomically and durably. If the filter
# fails, nothing changes and the script exits with 75.
change() {
  (
    flock 9
    rm -f "$dir/.workflows.json.new"
    if [ -e "$state" ]; then cat "$state"; else echo '{"version": 1, "workflows": []}'; fi |
      jq -e --arg name "$name" --arg recipe "$recipe" --argjson pid $$ --argjson start "$start" --arg signal "$signal" \
      --arg boot "$(cat /proc/sys/kernel/random/boot_id)" --argjson ns "$(stat -L -c %i /proc/self/ns/pid)" \
      --argjson times "$(times)" --argjson free "$(flock -n "$dir/.swap.lock" echo true || echo false)" "
        def mine: .name == \$name and .owner_pid == \$pid and .owner_start_ns == \$start;
        if (.version // 1) > 1 then error(\"a newer Belay has written the file\") else . end | $1
      " >"$dir/.workflows.json.new" || exit 75
    sync "$dir/.workflows.json.new"
    mv "$dir/.workflows.json.new" "$state"
    sync "$dir"
  ) 9>>"$dir/.workflows.lock"
}

umask 077
case $(stat -c %A "$dir") in ?????w*) umask 007 ;; esac # the group shares the directory; chmod g+s gives files to it
change 'if .swap_in_progress and .swap_in_progress.target_recipe != $recipe then
    error("a swap to \(.swap_in_progress.target_recipe) is in progress since \(.swap_in_progress.started_at)") else . end
  | if .swap_in_progress or $free then . else error("a swap is in progress whose marker was lost") end
  | if any(.workflows[]; .name == $name) then error("the name is taken") else . end
  | .workflows += [{name: $name, recipe: $recipe, owner_pid: $pid, owner_start_ns: $start, owner_boot_id: $boot,
      owner_pid_namespace: $ns, started_at: $times.last_renewed_at, ttl_seconds: 60, preemptible: true,
      preempt_signal_path: $signal} + $times]'
echo registered
for ((piece = 0; piece < pieces; piece++)); do
  if [ -e "$signal" ]; then
    echo yields
    break
  fi
  sleep 0.1 # the work
  echo "piece $piece"
  change 'if any(.workflows[]; mine) then .workflows |= map(if mine then . + $times else . end) else error("lost") end'
done
change '.workflows |= map(select(mine | not))'
rm -f "$signal"
