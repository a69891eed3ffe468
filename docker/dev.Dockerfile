# CPU image for development and tests: Python, the runner, and stand-ins: an ncu that makes simulated reports, a GPU, and as
# much of PyTorch as an evaluator needs around a call.
# Built by scripts/build-images, which puts the prebuilt static runner into the build context.
ARG BASE=debian:bookworm-slim
FROM ${BASE}

RUN command -v python3 >/dev/null \
    || (apt-get update && apt-get install -y --no-install-recommends python3 && rm -rf /var/lib/apt/lists/*)

COPY standin_gpu.py torch.py /tmp/standin/
RUN packages=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
    && install -D -m 644 -t "$packages" /tmp/standin/*.py \
    && rm -r /tmp/standin \
    && python3 -m compileall -q "$packages/standin_gpu.py" "$packages/torch.py"

COPY ncu ncu-runner /usr/local/bin/

LABEL ncu-service.simulated="true"
CMD ["ncu-runner"]
