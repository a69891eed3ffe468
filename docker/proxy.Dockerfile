# The public address of the service: carries the release that is built here to the GPU host over SSH, and proxies HTTP to it
# through a tunnel. docs/update-service.md. A release names both bases by digest: docs/release.md.
ARG RUST=rust:1-bookworm
ARG BASE=debian:bookworm-slim

FROM ${RUST} AS build
WORKDIR /src
COPY . .
ENV SQLX_OFFLINE=true
# The name of the revision, for people: a deploy goes by the digest of the files.
ARG COMMIT=unknown
RUN NCU_SERVICE_COMMIT=$COMMIT cargo build --locked --release -p ncu-api -p jobs
RUN RUSTFLAGS='-C target-feature=+crt-static' \
    cargo build --locked --release -p ncu-runner --target x86_64-unknown-linux-gnu
RUN cp target/x86_64-unknown-linux-gnu/release/ncu-runner target/release/ \
    && COMMIT=$COMMIT scripts/deploy.d/assemble target/release /release

FROM ${BASE}
RUN apt-get update \
    && apt-get install -y --no-install-recommends haproxy openssh-client \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --create-home proxy-entry
COPY --from=build /release /release
COPY docker/proxy /opt/ncu-service/docker/proxy
COPY scripts/deploy.d/ssh.sh /opt/ncu-service/scripts/deploy.d/
USER proxy-entry
EXPOSE 8080
# 200 when the tunnel is open and the API behind it answers. The first deploy waits for a migration and a health check.
HEALTHCHECK --interval=10s --timeout=5s --start-period=3m \
    CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/${NCU_SERVICE_PROXY_PORT:-${PORT:-8080}} && printf 'GET /_proxy/health HTTP/1.0\\r\\n\\r\\n' >&3 && head -1 <&3 | grep -q ' 200 '"]
STOPSIGNAL SIGTERM
CMD ["/opt/ncu-service/docker/proxy/entry"]
