# syntax=docker/dockerfile:1
# Image of kube-scheduler with the plugin.
#
#   docker buildx build --platform linux/amd64,linux/arm64 -f deploy/docker/kube-scheduler.Dockerfile .
ARG GO_VERSION=1.26

FROM --platform=$BUILDPLATFORM golang:${GO_VERSION}-bookworm AS build
ARG TARGETARCH
ENV CGO_ENABLED=0 GOARCH=$TARGETARCH
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    clients/go/kubescheduler/build.sh /out

FROM gcr.io/distroless/static-debian12:nonroot
LABEL org.opencontainers.image.title="Pumice in kube-scheduler" \
      org.opencontainers.image.description="kube-scheduler with the plugin that asks Pumice" \
      org.opencontainers.image.source="https://github.com/pumice-scheduler/pumice" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /out/ /
USER 65532:65532
EXPOSE 10259
ENTRYPOINT ["/usr/local/bin/pumice-kube-scheduler"]
