"""The answer to a recording sent to Deepgram's `/v1/listen` as a whole."""

import uuid
from collections.abc import Sequence

from gateway.dialects import deepgram_shapes as shapes
from gateway.dialects.deepgram_query import Asked
from gateway.dialects.deepgram_shapes import Shape, seconds
from shared.events import Final

Channels = Sequence[Sequence[Final]]


def transcript(
    asked: Asked, channels: Channels, *, request_id: str, created: str, sha256: str, duration_ms: int
) -> Shape:
    """From the finals of each channel, in order."""
    results: Shape = {"channels": [{"alternatives": [_alternative(finals)]} for finals in channels]}
    if asked.utterances:
        results["utterances"] = _utterances(channels)
    metadata = {
        "transaction_key": "deprecated",
        "request_id": request_id,
        "sha256": sha256,
        "created": created,
        "duration": seconds(duration_ms),
        "channels": len(channels),
        "models": [shapes.MODEL_UUID],
        "model_info": {shapes.MODEL_UUID: shapes.model_info(asked.model)},
        **({"tags": list(asked.tags)} if asked.tags else {}),
    }
    return {"metadata": metadata, "results": results}


def _alternative(finals: Sequence[Final]) -> Shape:
    """All of a channel; as sure as its words are on average."""
    words = [word for each in finals for word in shapes.words_of(each.words)]
    confidence = sum(word["confidence"] for word in words) / max(1, len(words))
    text = " ".join(each.text for each in finals if each.text)
    return shapes.alternative(text, round(confidence, 3), words)


def _utterances(channels: Channels) -> list[Shape]:
    """Of all channels, in the order in which they were spoken."""
    spoken = [(final, index) for index, finals in enumerate(channels) for final in finals if final.text]
    return [
        {
            "start": seconds(final.start_ms),
            "end": seconds(final.end_ms),
            "channel": index,
            "id": str(uuid.uuid4()),
            **shapes.final(final),
        }
        for final, index in sorted(spoken, key=lambda each: each[0].start_ms)
    ]
