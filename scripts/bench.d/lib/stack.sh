# A stack of our own for a bench: the API, workers, a KernelBot that knows one id. Sourced by benches, never run.
# shellcheck shell=bash disable=SC2034,SC2154
#   SIMULATED=1   the dev image's stand-in for ncu, without a GPU: for trying a bench, not for measuring
#   REFERENCE_KERNELS, BIN, PORT, NCU_SERVICE_*: as scripts/gpu-e2e takes them
source "$(dirname "${BASH_SOURCE[0]}")/../../lib.sh"
source "$root/scripts/gpu/stack.sh"
bench_lib=$root/scripts/bench.d/lib

# begin ARGUMENT...: the bench's own, in case it has to be started anew.
begin() {
  with_engine "$0" "$@"
  if [ -n "${SIMULATED:-}" ]; then
    unset REFERENCE_KERNELS
    export NCU_SERVICE_WORKER_IMAGE=${NCU_SERVICE_WORKER_IMAGE:-ncu-service-dev:latest} NCU_SERVICE_GPUS=none
  fi
  out=$(realpath "${OUT:-$(mktemp -d)}")
  mkdir -p "$out"
  if [ -z "${BIN:-}" ]; then
    (cd "$root" && SQLX_OFFLINE=true cargo build --quiet --release --locked -p ncu-api -p jobs)
    BIN=$(dirname "$(programs_dir)")/release
  fi
  [ -n "${REFERENCE_KERNELS:-}${SIMULATED:-}" ] || die "REFERENCE_KERNELS must name a checkout of reference-kernels"
  start_stack
}
