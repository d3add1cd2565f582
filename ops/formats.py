"""Final events as plain text, subtitles or JSON lines."""

from collections.abc import Callable, Sequence
from typing import Literal, get_args

from shared.captions import srt, vtt
from shared.events import Final

Format = Literal["text", "srt", "vtt", "jsonl"]
FORMATS: tuple[str, ...] = get_args(Format)


def render(finals: Sequence[Final], form: Format) -> str:
    """Text of the finished utterances in one format, ending in a newline unless there were no words."""
    spoken = [final for final in finals if final.text.strip()]
    return _RENDERERS[form](spoken)


def _text(finals: Sequence[Final]) -> str:
    return "".join(f"{final.text}\n" for final in finals)


def _jsonl(finals: Sequence[Final]) -> str:
    return "".join(f"{final.model_dump_json(exclude={'trace'})}\n" for final in finals)


_RENDERERS: dict[Format, Callable[[Sequence[Final]], str]] = {
    "text": _text,
    "srt": srt,
    "vtt": vtt,
    "jsonl": _jsonl,
}
