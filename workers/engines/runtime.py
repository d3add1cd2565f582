"""onnxruntime sessions as we want them: few threads, no spinning, no telemetry (see shared/settings.py)."""

from pathlib import Path

import onnxruntime as ort


def session(path: Path, threads: int) -> ort.InferenceSession:
    """Open a model. A spinning pool would steal the core that another worker needs."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
