"""Who may import whom, who may do what, and how large things may grow."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("shared", "gateway", "workers", "ops")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
IMPURE = {
    "redis",
    "asyncio",
    "logging",
    "structlog",
    "torch",
    "torchaudio",
    "time",
    "onnxruntime",
    "os",
    "threading",
}


def imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    found = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return found | {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) if node.module}


def users(module: str) -> set[str]:
    """Files that import a module or anything below it."""
    return {
        str(path.relative_to(ROOT))
        for path in SOURCES
        if any(name == module or name.startswith(f"{module}.") for name in imports(path))
    }


def roots(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imports(path)}


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("shared", {"gateway", "workers", "ops"}),
        ("gateway", {"workers", "ops"}),
        ("workers", {"gateway", "ops"}),
    ],
)
def test_packages_import_only_what_lies_below_them(package, forbidden):
    offenders = {str(path) for path in (ROOT / package).rglob("*.py") if roots(path) & forbidden}

    assert offenders == set()


def test_stages_are_pure():
    offenders = {path.name: roots(path) & IMPURE for path in (ROOT / "workers/stages").glob("*.py")}

    assert {name: bad for name, bad in offenders.items() if bad} == {}


def test_one_module_and_its_topology_import_redis():
    assert {path for path in users("redis") if not path.startswith("shared/topology/")} == {
        "shared/redis_client.py"
    }
    assert users("shared.topology") - {f"shared/topology/{path.name}" for path in SOURCES} == {
        "shared/redis_client.py"
    }


def test_one_module_reads_the_environment():
    readers = {
        str(path.relative_to(ROOT))
        for path in SOURCES
        if "os.environ" in path.read_text() or "getenv" in path.read_text()
    }

    assert readers == {"shared/settings.py"}


def test_one_module_names_keys():
    spelled = {
        str(path.relative_to(ROOT))
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if ":ready:" in node.value or ":transcripts:" in node.value or node.value.startswith("scribe:")
    }

    assert spelled <= {"shared/keys.py"}


def test_every_script_states_its_contract():
    for script in (ROOT / "shared/scripts").glob("*.lua"):
        header = script.read_text().split("\n\n")[0]
        assert all(word in header for word in ("-- KEYS", "-- ARGV", "-- Returns")), script.name


def test_scripts_acknowledge_only_where_work_is_ended():
    users = {
        script.name for script in (ROOT / "shared/scripts").glob("*.lua") if "XACK" in script.read_text()
    }

    assert users == {"commit.lua", "settle.lua"}


def test_modules_and_functions_stay_small():
    long_modules = {
        str(p.relative_to(ROOT)): n for p in SOURCES if (n := len(p.read_text().splitlines())) > 250
    }
    long_functions = {
        f"{path.relative_to(ROOT)}:{node.name}": node.end_lineno - node.lineno + 1
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno - node.lineno >= 50
    }

    assert (long_modules, long_functions) == ({}, {})


def test_settings_objects_have_at_most_twelve_fields():
    from shared import settings

    sizes = {
        name: len(kind.model_fields)
        for name, kind in vars(settings).items()
        if isinstance(kind, type)
        and issubclass(kind, settings.BaseSettings)
        and kind is not settings.BaseSettings
    }

    assert sizes
    assert all(size <= 12 for size in sizes.values()), sizes
