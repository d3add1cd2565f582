"""`streamscribe demo`: a recording at the speed it was spoken, through the whole fleet, and where the time went."""

import asyncio
from collections.abc import Sequence
from importlib.resources import as_file, files

import numpy as np
from rich.console import Console
from rich.table import Table

from ops import scoring
from ops.captions import Captions
from ops.evaluate import latencies
from ops.report import latency_table
from ops.streaming import Heard, Recording, stream_pcm
from ops.target import gateway_at
from shared.errors import StageFailed
from shared.events import Final, Partial
from shared.media import MediaDecoder


def demo(console: Console) -> None:
    """Show captions of the bundled recording, then latency by stage. Raises StageFailed when no word was heard."""
    assets = files("ops") / "assets"
    with as_file(assets / "demo.flac") as file, MediaDecoder() as decoder:
        pcm = decoder.decode(file)
    recording = asyncio.run(_listen(pcm, console))
    if not recording.text:
        raise StageFailed("the recording was played but no word was recognised: run `streamscribe doctor`")
    score = scoring.score((assets / "demo.txt").read_text(encoding="utf-8"), recording.text)
    console.print()
    console.print(latency_table({"event latency": scoring.percentiles(latencies(recording.heard))}))
    console.print(stage_table(recording.heard))
    console.print(
        f"{score.errors} wrong of {score.words} words: word error rate {100 * score.errors / score.words:.1f} %"
    )


async def _listen(pcm: bytes, console: Console) -> Recording:
    async with gateway_at(None, smallest=True) as url:
        with Captions(console) as captions:
            return await stream_pcm(url, pcm, pace=1.0, on_event=lambda heard: captions.show(heard.event))


def stage_table(heard: Sequence[Heard]) -> Table:
    """Mean milliseconds that a partial or final spent waiting, loading and computing at each stage, and on its way back."""
    spent: dict[str, list[tuple[float, float, float]]] = {}
    relay: list[float] = []
    for h in heard:
        if not isinstance(h.event, Partial | Final) or h.event.trace is None:
            continue
        for hop in h.event.trace.hops:
            spent.setdefault(hop.stage, []).append((hop.wait_ms, hop.load_ms, hop.step_ms))
        relay.append(h.arrived_ms - h.event.trace.committed_ms)
    table = Table(title="Where the time went (mean ms)", title_justify="left")
    for column in ("stage", "wait", "load", "step"):
        table.add_column(column, justify="left" if column == "stage" else "right")
    for stage, times in spent.items():
        table.add_row(stage, *(f"{mean:.1f}" for mean in np.mean(times, axis=0)))
    table.add_row("relay to the client", f"{np.mean(relay):.1f}" if relay else "-", "", "")
    return table
