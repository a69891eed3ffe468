# Shared by the scripts; sourced, never run.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# State of this checkout's private services. Not inside the checkout: Postgres runs as another user when we are root, and
# that user may not be able to reach it there.
run_dir=${NCU_SERVICE_RUN_DIR:-/tmp/ncu-service.$(id -u)/$(printf %s "$root" | cksum | cut -d' ' -f1)}

# Makes run_dir, and refuses one that somebody else made under that name: names in /tmp can be foreseen.
make_run_dir() {
  if [ -z "${NCU_SERVICE_RUN_DIR:-}" ]; then own_folder "$(dirname "$run_dir")"; fi
  own_folder "$run_dir"
}
own_folder() {
  mkdir -p -m 755 "$1" 2>/dev/null || true
  [ "$(stat -c '%u %F' "$1" 2>/dev/null)" = "$(id -u) directory" ] \
    || die "$1 is no folder of this user: remove it, or let NCU_SERVICE_RUN_DIR name another"
  # Nobody else may write in it; Postgres, as another user, must pass through it.
  chmod 755 "$1"
}

say() { printf '\033[1m==> %s\033[0m\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Runs a command as root: directly, or through sudo.
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; return; fi
  command -v sudo >/dev/null || die "this needs root: install sudo and let this user use it, or run it as root"
  sudo "$@"
}

# A user who has joined the group docker has it only in a new login. with_engine COMMAND... goes on without one: it starts
# the command in the place of this script, with that group. Where the engine can be used already it does nothing.
with_engine() {
  docker info >/dev/null 2>&1 && return
  [[ " $(id -nG) " != *" docker "* ]] && [[ " $(id -nG "$(id -un)") " = *" docker "* ]] && command -v sg >/dev/null \
    || die "this user cannot use the container engine: run scripts/setup, log in anew, and try again"
  exec sg docker -c "$(printf '%q ' "$@")"
}

# Where cargo puts the programs that it builds for development.
programs_dir() {
  cargo metadata --format-version 1 --no-deps --manifest-path "$root/Cargo.toml" \
    | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"] + "/debug")'
}

# Installs the Debian packages that are missing; asks the package list only then.
need_packages() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] && return
  command -v apt-get >/dev/null || die "these packages are missing, and this is no Debian or Ubuntu: ${missing[*]}"
  say "installing ${missing[*]}"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# The same for packages whose programs are wanted here and not their services, which are neither started now nor at the next boot.
need_programs() {
  local package unit policy=/usr/sbin/policy-rc.d made='' failed='' added=()
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' || added+=("$package")
  done
  [ ${#added[@]} = 0 ] && return
  if [ ! -e "$policy" ]; then
    made=1
    printf '#!/bin/sh\nexit 101\n' | as_root install -m 755 /dev/stdin "$policy"
  fi
  (need_packages "${added[@]}") || failed=1
  [ -z "$made" ] || as_root rm "$policy"
  [ -z "$failed" ] || exit 1
  [ -d /run/systemd/system ] || return 0
  for package in "${added[@]}"; do
    for unit in $(dpkg -L "$package" | sed -n 's,.*/systemd/system/\([^/@]*\.\(service\|socket\)\)$,\1,p'); do
      as_root systemctl disable --quiet "$unit" 2>/dev/null || true
    done
  done
}
