# The stack of scripts/gpu-e2e: API, workers, a KernelBot that knows one id, and a client. Sourced after lib.sh; never run.
# shellcheck shell=bash disable=SC2154
# Expects `out` and `BIN`; sets `problems`, the checkout that the service reads.

api_url=http://127.0.0.1:${PORT:-8765}
kernelbot_url=http://127.0.0.1:$((${PORT:-8765} + 1))
service_pids=() worker_pids=() workers_started=0

start_stack() {
  work=$(mktemp -d)
  trap stop_stack EXIT
  trap 'exit 130' INT TERM
  problems=$work/problems
  python3 "$root/scripts/gpu/problems.py" "$REFERENCE_KERNELS/problems" "$root/docker/dev/problems" "$problems"
  if [ -z "${NCU_SERVICE_DATABASE_URL:-}" ]; then
    NCU_SERVICE_DATABASE_URL=$("$root/scripts/postgres" start)
  fi
  export NCU_SERVICE_DATABASE_URL
  export NCU_SERVICE_REFERENCE_PROBLEMS_DIR=$problems NCU_SERVICE_JOBS_DIR=$work/jobs
  export NCU_SERVICE_GPU_LOCK_DIR=${NCU_SERVICE_GPU_LOCK_DIR:-$work/gpu-locks}
  export NCU_SERVICE_ARTIFACTS_URL=file://$work/artifacts NCU_SERVICE_LISTEN=${api_url#http://}
  export KERNELBOT_API_URL=$kernelbot_url
  export POPCORN_CLI_ID=gpu-e2e-$RANDOM$RANDOM POPCORN_BREV_PROFILER_URL=$api_url
  start_kernelbot
  "$BIN/ncu-api" serve >"$out/api.log" 2>&1 & service_pids+=($!)
  for _ in $(seq 100); do
    (exec 3<>"/dev/tcp/${NCU_SERVICE_LISTEN/://}") 2>/dev/null && return
    sleep 0.1
  done
  tail -n 5 "$out/api.log" >&2
  die "the API did not start"
}

# KernelBot, as far as the service asks it: this one id is good.
start_kernelbot() {
  python3 - "$POPCORN_CLI_ID" "${kernelbot_url##*:}" >/dev/null 2>&1 <<'P' &
import http.server, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        good = self.headers.get("X-Popcorn-Cli-Id") == sys.argv[1]
        self.send_response(200 if good else 401); self.end_headers()
        self.wfile.write(b"[]" if good else b'{"detail":"Invalid or unauthorized auth header"}')
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Answer).serve_forever()
P
  service_pids+=($!)
}

# start_workers [GPU...]: one worker for each number; without one, a single worker with NCU_SERVICE_GPUS as it is. The names of
# their logs tell which GPU was whose.
start_workers() {
  local gpu access pid
  for gpu in "${@:-}"; do
    case $gpu in
      '') access=${NCU_SERVICE_GPUS:-} ;;
      *[!0-9]*) access=$gpu ;;
      *) access=cdi:nvidia.com/gpu=$gpu ;;
    esac
    workers_started=$((workers_started + 1))
    env ${access:+NCU_SERVICE_GPUS="$access"} "$BIN/ncu-worker" run >"$out/worker-$workers_started-gpu${gpu:-0}.log" 2>&1 &
    worker_pids+=($!)
  done
  sleep 1
  for pid in "${worker_pids[@]}"; do
    kill -0 "$pid" 2>/dev/null || { tail -n 5 "$out/worker-$workers_started"-*.log >&2; die "a worker did not start"; }
  done
}

# A worker ends its shape in progress first; there is none unless a part failed.
stop_workers() {
  if [ ${#worker_pids[@]} != 0 ]; then
    kill "${worker_pids[@]}" 2>/dev/null || true
    wait "${worker_pids[@]}" 2>/dev/null || true
  fi
  worker_pids=()
}

stop_stack() {
  kill "${service_pids[@]}" "${worker_pids[@]}" 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$work"
}

# submit FOLDER FILE LEADERBOARD [INDEX]: as a user would, with the reports in FOLDER of OUT.
submit() {
  local folder=$out/$1 file=$2 leaderboard=$3 index=${4:-}
  mkdir -p "$folder"
  if [ -n "${POPCORN:-}" ]; then
    mkdir -p "$work/home"
    echo "cli_id: $POPCORN_CLI_ID" >"$work/home/.popcorn.yaml"
    (cd "$folder" && HOME=$work/home POPCORN_API_URL=$kernelbot_url \
      "$POPCORN" submit "$file" --leaderboard "$leaderboard" --profile-brev --no-tui ${index:+--benchmark-index "$index"}) \
      >"$folder/client.log" 2>&1
  else
    "$root/scripts/ncu-client" submit "$file" --leaderboard "$leaderboard" ${index:+--benchmark-index "$index"} \
      --into "$folder" >"$folder/client.log" 2>&1
  fi && return
  tail -n 20 "$folder/client.log" "$out"/worker-"$workers_started"-*.log >&2
  say "$leaderboard: the client did not get its profiles"
  return 1
}
