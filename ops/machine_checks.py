"""Checks of this machine: Python, libraries, model files, limits."""

import importlib
import os
import resource
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from ops.finding import Finding

_OLDEST_PYTHON = (3, 11)
# The first onnxruntime whose Linux wheels carry telemetry.
_ORT_TELEMETRY = (1, 29)
# Two descriptors per session (socket, Redis subscription) and room for 1,000 sessions on a gateway.
_OPEN_FILES = 2_048
_FEW_CORES = 2

_MODEL_FILES = (
    ("Moonshine weights", "moonshine_voice", "assets/tiny-en/encoder_model.ort", "moonshine-voice==0.1.0"),
    (
        "Moonshine decoder",
        "moonshine_voice",
        "assets/tiny-en/decoder_model_merged.ort",
        "moonshine-voice==0.1.0",
    ),
    ("Silero VAD", "silero_vad", "data/silero_vad.onnx", "'silero-vad>=6.2.3'"),
)


def check_machine() -> Iterator[Finding]:
    """Look at everything that needs no Redis; importing torch takes a second or more."""
    yield _python()
    yield _import("torch and torchaudio", "workers.engines._torchaudio", "torch", "torchaudio")
    yield _onnxruntime()
    for what, package, file, install in _MODEL_FILES:
        yield _model_file(what, package, file, install)
    yield _open_files()
    yield _cores()


def _python() -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < _OLDEST_PYTHON:
        return Finding("Python", "failure", found, "install Python 3.11 or later")
    return Finding("Python", "ok", found)


def _import(what: str, module: str, *distributions: str) -> Finding:
    try:
        importlib.import_module(module)
        found = ", ".join(f"{name} {version(name)}" for name in distributions)
    except (
        ImportError,
        OSError,
        AttributeError,
        PackageNotFoundError,
    ) as error:  # broken or mismatched builds
        again = f"pip install --force-reinstall -c constraints-cpu.txt {' '.join(distributions)}"
        return Finding(what, "failure", f"{type(error).__name__}: {error}", again)
    return Finding(what, "ok", found)


def _onnxruntime() -> Finding:
    found = _import("onnxruntime", "onnxruntime", "onnxruntime")
    if found.verdict == "ok" and tuple(map(int, version("onnxruntime").split(".")[:2])) >= _ORT_TELEMETRY:
        advice = "pip install 'onnxruntime>=1.23,<1.29'; until then StreamScribe sets ORT_DISABLE_TELEMETRY=1"
        return Finding(found.what, "warning", f"{found.detail} carries telemetry", advice)
    return found


def _model_file(what: str, package: str, file: str, install: str) -> Finding:
    """Look where the package lies without importing it: importing silero_vad would set torch's threads."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return Finding(what, "failure", f"{package} is not installed", f"pip install {install}")
    path = Path(spec.submodule_search_locations[0], file)
    if not path.is_file():
        return Finding(what, "failure", f"{path} is missing", f"pip install --force-reinstall {install}")
    return Finding(what, "ok", f"{path.stat().st_size / 1e6:.1f} MB")


def _open_files() -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _OPEN_FILES:
        detail = f"{soft}: enough for about {soft // 2} sessions on one gateway"
        return Finding(
            "open files", "warning", detail, f"ulimit -n {_OPEN_FILES} before starting, or LimitNOFILE="
        )
    return Finding("open files", "ok", str(soft))


def _cores() -> Finding:
    # macOS has no affinity
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores < _FEW_CORES:
        return Finding(
            "cores", "warning", str(cores), "1 core carries about 3 live sessions; add cores for more"
        )
    return Finding("cores", "ok", str(cores))
