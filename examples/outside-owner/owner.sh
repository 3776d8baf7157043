#!/bin/sh
# Owns an execution with curl alone: lock, heartbeat, checkpoints, release. Needs curl and jq.
#   owner.sh SERVER KEY OWNER
set -eu
server=${1:-${BELAY_SERVER:-http://127.0.0.1:7420}}/v1 key=${2:-shell} owner=${3:-shell-$$} lock='' token=''
call() { # METHOD PATH [BODY]: prints the answer or a refusal; passes secrets by standard input, so that ps does not show them
  printf '%s = "%s"\n' url "$server$2" header "Lease-Id: $lock" header "Lease-Token: $token" \
    ${BELAY_KEY:+header "Authorization: Bearer $BELAY_KEY"} |
    curl -sS --fail-with-body --max-time 5 -X "$1" -K - ${3:+-H "Content-Type: application/json" -d "$3"}
}
id=$(call POST /executions "{\"workflow\": \"count\", \"dispatch\": \"external\", \"on_lost\": \"requeue\", \"idempotency_key\": \"$key\"}") ||
  { echo "$id" >&2; exit 1; }
id=$(echo "$id" | jq -r .id)
got=$(call POST "/executions/$id/lock" "{\"owner\": \"$owner\", \"ttl\": \"3s\"}") || { echo "$got" >&2; exit 4; }
lock=$(echo "$got" | jq -r .lease.lock_id) token=$(echo "$got" | jq -r .lease.token)
n=$(echo "$got" | jq -r '.checkpoint.data // 0')
echo "$owner owns $id with token $token, from $n"
( while sleep 1; do call PUT "/executions/$id/lock/$lock" >/dev/null || kill $$; done ) & beat=$!
trap 'kill $beat 2>/dev/null' EXIT # if the lock is lost, the server refuses the heartbeat, which ends the script
while [ "$n" -lt 5 ]; do
  n=$((n + 1))
  sleep "${PACE:-1}"
  call PUT "/executions/$id/checkpoint" "{\"data\": $n}" >/dev/null
  echo "$owner saved $n"
done
call POST "/executions/$id/lock/$lock/release" "{\"outcome\": \"complete\", \"output\": $n}" >/dev/null
echo "$owner completed $id"
