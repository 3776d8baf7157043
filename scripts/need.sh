#!/usr/bin/env bash
# Makes sure that the commands that a test tier needs are installed.
#
#   scripts/need.sh COMMAND[:PACKAGE]...
#
# PACKAGE is the Debian package that contains COMMAND, by default the same name. Missing commands are installed with
# apt-get if that is possible (as root, on a Debian system); otherwise the script names them and fails, so that no test
# is skipped because a tool is missing.
set -euo pipefail

# Debian keeps the programs of PostgreSQL's server out of the PATH.
found() {
  command -v "$1" >/dev/null 2>&1 || compgen -G "/usr/lib/postgresql/*/bin/$1" >/dev/null
}

missing=() packages=()
for entry in "$@"; do
  command=${entry%%:*}
  if ! found "$command"; then
    missing+=("$command")
    packages+=("${entry##*:}")
  fi
done
[ "${#missing[@]}" -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
  echo "need: not found: ${missing[*]}" >&2
  echo "need: install the packages: ${packages[*]} (on Debian, as root: apt-get install ${packages[*]})" >&2
  exit 1
fi

echo "need: installing ${packages[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null

for command in "${missing[@]}"; do
  found "$command" || { echo "need: $command is still not found after installing ${packages[*]}" >&2; exit 1; }
done
