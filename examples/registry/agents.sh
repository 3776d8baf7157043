#!/usr/bin/env bash
# An agent that shares a GPU with agents of other models.
#
#   GPU=http://… agents.sh NAME MODEL PIECES
#
# The agent works in turns. A turn begins with a swap to its model: the command of the swap loads the model, and starts the
# agent's work under `belay registry exec`. So the work is registered before the swap ends, and no other swap can come in
# between. The work yields when another agent's swap asks for the GPU, but does three pieces at least.
set -euo pipefail
name=${1:-} model=${2:-} pieces=${3:-}
self=$(realpath "$0")
count() { cat "$name.done" 2>/dev/null || echo 0; }

case ${STEP:-} in
work) # runs under belay registry exec
  for ((turn = 0; $(count) < pieces; turn++)); do
    if [ "$turn" -ge 3 ] && [ -e "$BELAY_PREEMPT_SIGNAL" ]; then
      echo "$name yields after $(count) pieces"
      belay registry yield
      exit 0
    fi
    curl -fsS -X POST "$GPU/generate/$model" >/dev/null
    echo $(($(count) + 1)) >"$name.done"
  done
  ;;
turn) # runs as the command of belay swap
  curl -fsS -X POST "$GPU/load/$model" >/dev/null
  STEP=work belay registry exec --name "$name" --recipe "$model" --preemptible -- "$self" "$@" &
  until belay registry ls -o json | grep -q "\"name\": \"$name\"" || ! kill -0 $! 2>/dev/null; do sleep 0.05; done
  ;;
*)
  while [ "$(count)" -lt "$pieces" ]; do
    STEP=turn belay swap --to "$model" --wait 5m -- "$self" "$@"
    while belay registry ls -o json | grep -q "\"name\": \"$name\""; do sleep 0.05; done
  done
  echo "$name has done $(count) pieces"
  ;;
esac
