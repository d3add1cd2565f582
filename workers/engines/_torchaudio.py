"""torchaudio, also beside a CPU build of torch. Everyone imports it from here: `from workers.engines._torchaudio import torchaudio`.

PyPI's Linux wheels of torchaudio link their extension against CUDA libraries, which a CPU build of torch does not
have, so `import torchaudio` raises OSError. torchaudio itself runs without an extension when the file is absent;
this turns "present but unloadable" into "absent". We need no function of the extension (rnnt_loss, forced_align,
fast lfilter). Where the real import works, nothing is touched.
"""

import sys
import types


def _without_extension() -> types.ModuleType:
    """Stand in for the private module torchaudio._extension; a later name it lacks fails loudly at import."""
    extension = types.ModuleType("torchaudio._extension")
    vars(extension).update(
        _IS_TORCHAUDIO_EXT_AVAILABLE=False,
        _IS_ALIGN_AVAILABLE=False,
        _IS_RIR_AVAILABLE=False,
        fail_if_no_align=lambda function: function,
        fail_if_no_rir=lambda function: function,
        _load_lib=lambda _library: False,
    )
    return extension


try:
    import torchaudio
except OSError:
    for _name in [name for name in sys.modules if name.partition(".")[0] == "torchaudio"]:
        del sys.modules[_name]
    sys.modules["torchaudio._extension"] = _stand_in = _without_extension()
    import torchaudio

    torchaudio._extension = _stand_in

__all__ = ["torchaudio"]
