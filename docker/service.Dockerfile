# ncu-api and ncu-worker in one small image. A release names both bases by digest: docs/release.md.
ARG RUST=rust:1-bookworm
ARG BASE=debian:bookworm-slim

FROM ${RUST} AS build
WORKDIR /src
COPY . .
ENV SQLX_OFFLINE=true
RUN cargo build --locked --release -p ncu-api -p jobs

FROM ${BASE}
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates git \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /src/target/release/ncu-api /src/target/release/ncu-worker /usr/local/bin/
CMD ["ncu-api", "serve"]
