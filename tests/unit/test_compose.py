"""docker-compose.yml and the Dockerfiles, as far as they can be checked without a Docker engine."""

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pydantic_settings import BaseSettings

from shared import settings
from shared.keys import STAGES

ROOT = Path(__file__).parents[2]
SERVICES = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
DOCKERFILES = sorted((ROOT / "ops/docker").glob("*.Dockerfile"))
GATEWAY_NEEDS = [
    line
    for line in (ROOT / "ops/docker/gateway.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
OURS = ["gateway", *STAGES]


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    """(instruction, arguments) in order; continued lines joined, comments left out."""
    text = re.sub(r"^\s*#.*\n", "", dockerfile.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [
        (word, rest) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line.strip())
    ]


def last_stage(dockerfile: Path) -> list[tuple[str, str]]:
    steps = instructions(dockerfile)
    start = max(i for i, (word, _) in enumerate(steps) if word == "FROM")
    return steps[start:]


def test_compose_file_is_clean_yaml():
    run = subprocess.run(
        [sys.executable, "-m", "yamllint", "--strict", ROOT / "docker-compose.yml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout


def test_there_is_redis_a_gateway_and_one_service_per_stage():
    assert set(SERVICES) == {"redis", *OURS}
    for stage in STAGES:
        assert SERVICES[stage]["command"] == [stage]


def test_redis_never_evicts_and_is_healthy_only_when_it_answers_pong():
    redis = SERVICES["redis"]
    command = redis["command"]
    assert command[command.index("--maxmemory-policy") + 1] == "noeviction"
    assert command[command.index("--appendonly") + 1] == "yes"
    assert "grep -q PONG" in redis["healthcheck"]["test"][1]
    assert "ports" not in redis


@pytest.mark.parametrize("name", OURS)
def test_our_services_wait_for_redis_drain_and_run_without_privileges(name: str):
    service = SERVICES[name]
    assert service["depends_on"]["redis"] == {"condition": "service_healthy"}
    assert service["stop_grace_period"] == "45s"
    assert (service["init"], service["read_only"], service["restart"]) == (True, True, "unless-stopped")
    assert service["cap_drop"] == ["ALL"]
    assert service["environment"]["SCRIBE_REDIS_URL"] == "redis://redis:6379/0"


@pytest.mark.parametrize("name", STAGES)
def test_workers_can_be_scaled(name: str):
    """A fixed name or port could be had by one container only."""
    assert not {"container_name", "ports", "hostname"} & set(SERVICES[name])


def test_the_gateway_stops_before_the_workers_it_needs_and_is_published_on_loopback_only():
    assert set(SERVICES["gateway"]["depends_on"]) == {"redis", *STAGES}
    assert SERVICES["gateway"]["ports"] == ["127.0.0.1:${SCRIBE_PORT:-8080}:8080"]


def test_settings_in_the_compose_file_exist():
    known = set(re.findall(r"SCRIBE_[A-Z_]+", json.dumps(SERVICES))) - {"SCRIBE_PORT"}
    groups = [
        group
        for group in vars(settings).values()
        if isinstance(group, type) and issubclass(group, BaseSettings)
    ]
    names = [
        field.alias or f"{group.model_config.get('env_prefix')}{name.upper()}"
        for group in groups
        for name, field in group.model_fields.items()
    ]
    assert known <= set(names)


@pytest.mark.parametrize("name", OURS)
def test_each_service_is_built_from_a_dockerfile_that_exists(name: str):
    build = SERVICES[name]["build"]
    assert ROOT / build["context"] / build["dockerfile"] in DOCKERFILES


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_the_final_image_runs_as_nobody_in_particular_and_holds_no_build_tools(dockerfile: Path):
    steps = last_stage(dockerfile)
    users = [rest for word, rest in steps if word == "USER"]
    assert users
    assert users[-1].partition(":")[0] not in {"root", "0"}
    assert not [rest for word, rest in steps if word == "RUN"]
    assert any(word == "ENTRYPOINT" and rest.startswith("[") for word, rest in steps)


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_everything_copied_exists_and_is_not_ignored(dockerfile: Path):
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [
        rest.split()[:-1]
        for word, rest in instructions(dockerfile)
        if word == "COPY" and "--from" not in rest
    ]
    for source in (source for sources in copied for source in sources):
        assert (ROOT / source).exists(), source
        assert source in kept


def test_the_gateway_has_a_healthcheck():
    checks = [
        rest for word, rest in last_stage(ROOT / "ops/docker/gateway.Dockerfile") if word == "HEALTHCHECK"
    ]
    assert "/healthz" in checks[0]


def test_the_gateway_image_has_the_versions_of_pyproject():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(GATEWAY_NEEDS) <= set(project["dependencies"])


def closure(names: list[str]) -> set[str]:
    """Distributions that pip would install for the requirements, by canonical name."""
    found: set[str] = set()
    queue = [Requirement(name) for name in names]
    while queue:
        wanted = queue.pop()
        name = canonicalize_name(wanted.name)
        try:
            needs = [Requirement(line) for line in requires(name) or []]
        except PackageNotFoundError:
            continue
        extras = wanted.extras or {""}
        more = [r for r in needs if not r.marker or any(r.marker.evaluate({"extra": e}) for e in extras)]
        if name not in found or wanted.extras:
            found.add(name)
            queue += more
    return found


def test_the_gateway_imports_nothing_that_its_image_lacks():
    there = closure(GATEWAY_NEEDS) | {"streamscribe"}
    lacking = [
        module
        for module, owners in packages_distributions().items()
        if not there & {canonicalize_name(owner) for owner in owners}
    ]
    code = f"import sys; sys.modules |= dict.fromkeys({lacking!r}); import gateway.__main__"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    assert "torch" in lacking
