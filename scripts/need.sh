#!/usr/bin/env bash
# Makes sure that the commands that a test tier needs are installed.
#
#   scripts/need.sh COMMAND[:PACKAGE]... [DIRECTORY/COMMAND:PACKAGE]...
#
# PACKAGE is the Debian package that contains COMMAND, by default the same name. Missing commands are installed with
# apt-get if that is possible (as root, on a Debian system); otherwise the script names them and fails, so that no test
# is skipped because a tool is missing.
#
# With DIRECTORY/COMMAND the script does not install the package. Unless the command is installed, the script downloads
# the package and unpacks only the program /usr/bin/COMMAND into the directory, which needs no root. This is for a
# command whose package would also start a server on the machine, now and after each boot, as the package prometheus
# does; the program must need no other package than the C library.
#
# The services of installed packages are not started, because tests start their own servers. RabbitMQ, with its epmd,
# does not start after a boot either, unless the machine had it before.
set -euo pipefail

# Debian keeps the programs of PostgreSQL's server out of the PATH, and RabbitMQ's in /usr/sbin, which only root's PATH
# has.
found() {
  [[ $1 == */* && -x $1 ]] || command -v "${1##*/}" >/dev/null 2>&1 ||
    compgen -G "/usr/lib/postgresql/*/bin/$1" >/dev/null || [[ -x /usr/lib/rabbitmq/bin/$1 ]]
}

# unpack puts the program FILE of a package into place, complete or not at all.
unpack() {
  local file=$1 package=$2
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  echo "need: unpacking ${file##*/} from the package $package to $file"
  [ "$(id -u)" -ne 0 ] || apt-get update -qq
  if ! (cd "$work" && apt-get download -qq -o APT::Sandbox::User=root "$package" >/dev/null); then
    echo "need: cannot download the package $package (apt-get update, as root, may help); it has ${file##*/}" >&2
    exit 1
  fi
  mkdir -p "${file%/*}"
  dpkg-deb --fsys-tarfile "$work"/*.deb | tar -x -O "./usr/bin/${file##*/}" >"$file.part"
  chmod 755 "$file.part"
  mv "$file.part" "$file"
  rm -rf "$work"
}

missing=() packages=()
for entry in "$@"; do
  command=${entry%%:*}
  if ! found "$command"; then
    if [[ $command == */* ]] && command -v apt-get >/dev/null 2>&1; then
      unpack "$command" "${entry##*:}"
      continue
    fi
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
policy=/usr/sbin/policy-rc.d # Debian runs it before it starts a service of a package that it installs
if [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101 # forbidden by scripts/need.sh while it installs packages for tests\n' >"$policy"
  chmod 755 "$policy"
fi
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
if [[ " ${packages[*]} " == *" rabbitmq-server "* ]]; then
  update-rc.d rabbitmq-server disable >/dev/null
  if command -v systemctl >/dev/null 2>&1; then
    systemctl --quiet disable rabbitmq-server.service epmd.service epmd.socket 2>/dev/null || true
  fi
fi

for command in "${missing[@]}"; do
  found "$command" || { echo "need: $command is still not found after installing ${packages[*]}" >&2; exit 1; }
done
