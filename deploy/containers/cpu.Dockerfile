# The service on a CPU, without PyTorch. From the root of a checkout:
#   docker build -f deploy/containers/cpu.Dockerfile -t nystra .
#   docker run --read-only --tmpfs /tmp -v "$PWD/model.onnx:/models/model.onnx:ro" \
#     -p 127.0.0.1:8000:8000 nystra
FROM python:3.12-slim-bookworm AS build
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends g++ \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN python -m venv /opt/nystra \
 && NYSTRA_NATIVE=ON /opt/nystra/bin/pip install --no-cache-dir '.[serve]'

FROM python:3.12-slim-bookworm
COPY --from=build /opt/nystra /opt/nystra
ENV HOME=/tmp PATH=/opt/nystra/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    ORT_DISABLE_TELEMETRY=1
USER 10001:10001
WORKDIR /tmp
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
ENTRYPOINT ["nystra"]
CMD ["serve", "/models/model.onnx", "--host", "0.0.0.0"]
