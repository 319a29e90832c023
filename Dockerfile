# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# fdd in a container, from its Debian packages. Mount a model and the folder of the sockets:
#   docker build -t fdd .
#   docker run --init -v /srv/model:/var/lib/fdd:ro -v /run/fdd:/run/fdd --ipc=host fdd
# With CUDA (docker run --gpus all; the toolkit's images bring nvcc and cuBLASLt):
#   docker build -t fdd-cuda --build-arg BUILD=nvidia/cuda:13.0.1-devel-ubuntu24.04 \
#       --build-arg BASE=nvidia/cuda:13.0.1-runtime-ubuntu24.04 --build-arg PROFILES= .
ARG BUILD=debian:bookworm-slim
ARG BASE=debian:bookworm-slim
FROM ${BUILD} AS build
ARG PROFILES=pkg.fdd.nocuda
ENV DEBIAN_FRONTEND=noninteractive
COPY . /build/fdd
WORKDIR /build/fdd
RUN apt-get update && apt-get install -y --no-install-recommends build-essential fakeroot
RUN apt-get build-dep -y --no-install-recommends ./
RUN DEB_BUILD_OPTIONS="nocheck parallel=$(nproc)" DEB_BUILD_PROFILES="nocheck $PROFILES" \
    dpkg-buildpackage -us -uc -b && rm -f ../*-dbgsym_*.deb ../libfd*-dev_*.deb ../fdd-http_*.deb
FROM ${BASE}
COPY --from=build /build/*.deb /tmp/
RUN apt-get update && apt-get install -y --no-install-recommends systemd-standalone-sysusers \
    systemd-standalone-tmpfiles /tmp/*.deb && install -d -o fdd -g fdd /run/fdd && \
    rm -rf /tmp/*.deb /var/lib/apt/lists/*
USER fdd
HEALTHCHECK --start-period=15m CMD ["fdctl", "--runtime-dir", "/run/fdd", "ping"]
ENTRYPOINT ["fdd", "--set", "daemon.runtime_dir=/run/fdd", "--set", "model.path=/var/lib/fdd"]
