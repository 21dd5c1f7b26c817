# The service on an NVIDIA GPU, with the CUDA kernels. From the root of a checkout:
#   docker build -f deploy/containers/gpu.Dockerfile -t nystra-gpu .
#   docker run --gpus all --read-only --tmpfs /tmp -v "$PWD/model.onnx:/models/model.onnx:ro" \
#     -p 127.0.0.1:8000:8000 nystra-gpu
# Its CUDA 13 needs a driver of CUDA 13 (580 or newer), and its nvcc knows every architecture of
# plugins/cmake/cuda.cmake; --build-arg CUDA_ARCHITECTURES=90-real compiles for one of them, which
# takes less long. No GPU has run it yet.
FROM nvidia/cuda:13.0.1-devel-ubuntu24.04 AS build
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends g++ python3 python3-venv \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
ARG CUDA_ARCHITECTURES=
RUN python3 -m venv /opt/nystra \
 && NYSTRA_NATIVE=ON /opt/nystra/bin/pip install --no-cache-dir '.[gpu,http]' \
      ${CUDA_ARCHITECTURES:+--config-settings=cmake.define.NYSTRA_CUDA_ARCHITECTURES="$CUDA_ARCHITECTURES"}

FROM nvidia/cuda:13.0.1-base-ubuntu24.04
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends python3 \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/nystra /opt/nystra
ENV HOME=/tmp PATH=/opt/nystra/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    ORT_DISABLE_TELEMETRY=1
USER 10001:10001
WORKDIR /tmp
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s --retries=3 \
  CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
ENTRYPOINT ["nystra"]
CMD ["serve", "/models/model.onnx", "--host", "0.0.0.0", "--backend", "ort-cuda"]
