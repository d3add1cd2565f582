FROM python:3.11-slim-bookworm AS build
RUN python -m venv /opt/venv
COPY ops/docker/gateway.txt /src/ops/docker/
RUN /opt/venv/bin/pip install --no-cache-dir -r /src/ops/docker/gateway.txt
COPY pyproject.toml README.md LICENSE /src/
COPY gateway /src/gateway
COPY shared /src/shared
RUN /opt/venv/bin/pip install --no-cache-dir --no-deps /src

FROM python:3.11-slim-bookworm
COPY --from=build /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --retries=3 \
  CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/healthz', timeout=2)"]
ENTRYPOINT ["python", "-m", "gateway"]
