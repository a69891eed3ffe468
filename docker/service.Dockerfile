# ncu-api and ncu-worker in one small image. A release names both bases by digest: docs/release.md.
# `--target prebuilt` takes the programs from the folder `programs` of the context and needs no compiler's image:
# scripts/build-images does that where no registry can be reached.
ARG RUST=rust:1-bookworm
ARG BASE=debian:bookworm-slim

# git tells which revision of the problems a job was profiled with.
FROM ${BASE} AS system
RUN { command -v git && [ -s /etc/ssl/certs/ca-certificates.crt ]; } >/dev/null \
    || (apt-get update && apt-get install -y --no-install-recommends ca-certificates git && rm -rf /var/lib/apt/lists/*)
CMD ["ncu-api", "serve"]

FROM system AS prebuilt
COPY programs/ /usr/local/bin/

FROM ${RUST} AS build
WORKDIR /src
COPY . .
ENV SQLX_OFFLINE=true
# What `--version` says beside the version.
ARG NCU_SERVICE_COMMIT=
RUN cargo build --locked --release -p ncu-api -p jobs

FROM system
COPY --from=build /src/target/release/ncu-api /src/target/release/ncu-worker /usr/local/bin/
