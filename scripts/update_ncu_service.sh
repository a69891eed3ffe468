#!/usr/bin/env bash
# Deploys this checkout to the GPU host, without Northflank: for emergencies. The host's part is the same program that the proxy's
# deploys use.
#   scripts/update_ncu_service.sh                        build, carry, migrate, restart, check; back by itself when the check fails
#   scripts/update_ncu_service.sh --programs FOLDER      the same with programs that are built already
#   scripts/update_ncu_service.sh --rollback [RELEASE]   back to the release before, or to that one
#   scripts/update_ncu_service.sh --restart              restart the units, after a change of ~/ncu-service.env
#   scripts/update_ncu_service.sh --status               what is current, and which releases the host has
# NCU_SERVICE_DEPLOY_HOST, _USER, _SSH_KEY_FILE and _KNOWN_HOSTS_FILE say where and how: docs/update-service.md. Exit status: 0 done,
# 1 refused with nothing changed, 2 a setting is missing, 3 the release failed its check and the one before serves again, 4 nothing
# serves, 75 another deploy is under way, 255 the host cannot be reached.
source "$(dirname "$0")/lib.sh"
source "$root/scripts/deploy.d/ssh.sh"
usage() { sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 2; }
# A setting that is missing has a status of its own here.
die() { printf 'error: %s\n' "$*" >&2; exit 2; }

programs=
case ${1:-} in
  '') [ $# = 0 ] || usage ;;
  --programs) [ $# = 2 ] || usage; programs=$2 ;;
  --rollback) [ $# -le 2 ] || usage ;;
  --restart | --status) [ $# = 1 ] || usage ;;
  *) usage ;;
esac
umask 077
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
reach_host "$scratch"

current='"$HOME/ncu-service/current/deploy/host"'
case ${1:-} in
  --rollback)
    [[ ${2:-} =~ ^[A-Za-z0-9._-]*$ ]] || die "$2 is no release's name: --status lists them"
    on_host "$current rollback ${2:-}"
    exit
    ;;
  --restart) on_host "$current restart"; exit ;;
  --status) on_host "$current status"; exit ;;
esac

if [ -z "$programs" ]; then
  say "building"
  target_dir=${CARGO_TARGET_DIR:-$root/target}
  (cd "$root" && SQLX_OFFLINE=true CARGO_TARGET_DIR=$target_dir cargo build --quiet --release --locked -p ncu-api -p jobs)
  # It runs in images of any age, so it brings its own C library.
  (cd "$root" && RUSTFLAGS='-C target-feature=+crt-static' CARGO_TARGET_DIR=$target_dir \
    cargo build --quiet --release --locked -p ncu-runner --target x86_64-unknown-linux-gnu)
  programs=$scratch/programs
  mkdir "$programs"
  cp "$target_dir"/release/ncu-{api,worker} "$target_dir/x86_64-unknown-linux-gnu/release/ncu-runner" "$programs"
fi
"$root/scripts/deploy.d/assemble" "$programs" "$scratch/release" >/dev/null
deploy "$scratch/release"
