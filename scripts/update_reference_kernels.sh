#!/usr/bin/env bash
# Serves another revision of reference-kernels on the GPU host. No deploy does this by itself.
#   scripts/update_reference_kernels.sh --branch B [--dry-run] [--keep-local] [--first-time]
# Prints the old and the new revision. Jobs in flight keep the revision that they started with. Refuses where the checkout on the
# host is dirty, and where it serves commits that origin does not have: --keep-local keeps those in a branch and goes on.
# --first-time is for a checkout that is served in place until now. --dry-run changes nothing.
# NCU_SERVICE_DEPLOY_HOST, _USER, _SSH_KEY_FILE and _KNOWN_HOSTS_FILE say where and how: docs/update-service.md.
source "$(dirname "$0")/lib.sh"
source "$root/scripts/deploy.d/ssh.sh"
usage() { sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2; }

branch=
options=()
while [ $# -gt 0 ]; do
  case $1 in
    --branch) [ $# -ge 2 ] || usage; branch=$2; shift ;;
    --dry-run | --keep-local | --first-time) options+=("$1") ;;
    *) usage ;;
  esac
  shift
done
[ -n "$branch" ] || usage
[[ $branch =~ ^[A-Za-z0-9][A-Za-z0-9._/-]*$ ]] || die "$branch is no name of a branch"
umask 077
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
reach_host "$scratch"
# Read to its end before it runs: nothing that it starts may read the rest of it.
on_host "script=\$(cat); exec bash -c \"\$script\" kernels $branch ${options[*]}" < "$root/scripts/deploy.d/kernels"
