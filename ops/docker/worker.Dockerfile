# Takes the stages as its argument: frontend, acoustic, decoder, acoustic+decoder or all.
FROM python:3.11-slim-bookworm AS build
RUN python -m venv /opt/venv
# First and alone, so that a change of our code does not install torch again. The extra index has the CPU builds:
# PyPI's bring 4 GB of CUDA libraries.
COPY constraints-cpu.txt /src/
RUN /opt/venv/bin/pip install --no-cache-dir -c /src/constraints-cpu.txt \
  --extra-index-url https://download.pytorch.org/whl/cpu torch "torchaudio>=2.11.1"
COPY pyproject.toml README.md LICENSE /src/
COPY workers /src/workers
COPY shared /src/shared
RUN /opt/venv/bin/pip install --no-cache-dir -c /src/constraints-cpu.txt \
  --extra-index-url https://download.pytorch.org/whl/cpu /src

FROM python:3.11-slim-bookworm
COPY --from=build /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 ORT_DISABLE_TELEMETRY=1
USER 10001:10001
ENTRYPOINT ["python", "-m", "workers"]
CMD ["all"]
