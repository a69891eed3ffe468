# The image that captures run in on a GPU host: CUDA 13.0 with its compilers, PyTorch and Triton, ncu, and the runner.
# The host's driver must support CUDA 13.0 (580 or newer). Built by scripts/build-images.
# A release names both by digest: docs/release.md.
ARG RUST=rust:1.95-slim-bookworm
ARG BASE=nvidia/cuda:13.0.2-devel-ubuntu24.04

FROM ${RUST} AS runner
WORKDIR /source
# cargo reads every member's manifest, though it compiles only the runner.
COPY Cargo.toml Cargo.lock ./
COPY api api
COPY jobs jobs
COPY docker/runner docker/runner
RUN RUSTFLAGS='-C target-feature=+crt-static' \
    cargo build --release --locked -p ncu-runner --target x86_64-unknown-linux-gnu

# The launch tracer: CUPTI's headers come with CUDA's devel image.
FROM ${BASE} AS tracer
COPY docker/worker/overview/launches.c /source/
RUN gcc -O2 -std=gnu11 -Wall -Wextra -Werror -shared -fPIC -fvisibility=hidden -pthread \
        -isystem /usr/local/cuda/include -isystem /usr/local/cuda/extras/CUPTI/include \
        -o /liblaunches.so /source/launches.c

FROM ${BASE}

# python3-dev: Triton compiles a launcher against Python's headers. The CUDA devel image brings nvcc.
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        cuda-nsight-compute-13-0 g++ python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*

ENV VIRTUAL_ENV=/opt/venv CUDA_HOME=/usr/local/cuda
ENV PATH=/opt/venv/bin:$CUDA_HOME/bin:$PATH

# What submissions import. torch fixes the version of triton that it works with.
RUN python3 -m venv "$VIRTUAL_ENV" \
    && pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cu130 torch==2.9.1+cu130 triton==3.5.1 \
    && pip install --no-cache-dir ninja==1.13.0 numpy==2.3.5 'nvidia-cutlass-dsl[cu13]==4.4.2'

COPY --from=runner /source/target/x86_64-unknown-linux-gnu/release/ncu-runner /usr/local/bin/
COPY --from=tracer /liblaunches.so /usr/local/lib/ncu-service/

# A build whose parts do not fit together fails here, not in a user's job.
RUN ncu --version && nvcc --version && g++ --version \
    && python3 -c 'import torch, triton; assert torch.version.cuda == "13.0", torch.version.cuda'

LABEL ncu-service.simulated="false"
CMD ["ncu-runner"]
