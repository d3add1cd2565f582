"""The import guard, in a fresh process: this one may have imported torchaudio already."""

import subprocess
import sys


def test_torchaudio_imports_beside_a_cpu_build_of_torch():
    code = """
import torch
from workers.engines._torchaudio import torchaudio
features = torchaudio.compliance.kaldi.fbank(torch.zeros(1, 16000), num_mel_bins=80)
print(tuple(features.shape), torchaudio.models.Emformer.__name__)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout == "(98, 80) Emformer\n", run.stderr
