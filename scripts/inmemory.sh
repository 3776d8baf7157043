#!/usr/bin/env bash
# Runs a command with a /tmp in memory, because tests make and remove very many files.
#
#   scripts/inmemory.sh COMMAND [ARGUMENT]...
#
# The command runs in a mount namespace of its own, in which a tmpfs is mounted on /tmp; both disappear with the last
# process of the command. The command runs with the /tmp of the machine instead if the script has no right to mount, if
# the machine has less than 12 GiB of free memory, or if the repository or a directory of Go lies below /tmp.
set -euo pipefail

memory=$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo 2>/dev/null || true)
hidden=
for dir in "$PWD" "${HOME:-/}" "${TMPDIR:-}" $(go env GOROOT GOCACHE GOMODCACHE GOTMPDIR); do
  [[ $dir/ != /tmp/* ]] || hidden=$dir
done
mount='mount -t tmpfs -o mode=1777,size=10g tmpfs /tmp'
if [ "${memory:-0}" -ge $((12 << 20)) ] && [ -z "$hidden" ] && unshare --mount sh -c "$mount" 2>/dev/null; then
  exec unshare --mount sh -c "$mount && exec \"\$@\"" inmemory "$@"
fi
exec "$@"
