"""`python -m ops.schema`: write docs/protocol.schema.json from the models that gateway and workers use."""

import json
from pathlib import Path

from pydantic import TypeAdapter

from shared.events import EVENT_ADAPTER
from shared.protocol import CLIENT_ADAPTER, SERVER_ADAPTER, SessionOptions

FILE = Path(__file__).parents[1] / "docs" / "protocol.schema.json"


def protocol_schema() -> str:
    """The JSON schema of everything that travels in text, as the file's content."""
    # "validation": what a reader must accept. Fields with a default may be absent.
    named, schema = TypeAdapter.json_schemas(
        [
            ("ClientMessage", "validation", CLIENT_ADAPTER),
            ("ServerMessage", "validation", SERVER_ADAPTER),
            ("TranscriptEvent", "validation", EVENT_ADAPTER),
            ("SessionOptions", "validation", TypeAdapter(SessionOptions)),
        ],
        title="StreamScribe native protocol, version 1",
    )
    unions = {name: body for (name, _), body in named.items() if "$ref" not in body}
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["$defs"] = dict(sorted({**schema["$defs"], **unions}.items()))
    return json.dumps(schema, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


if __name__ == "__main__":
    FILE.write_text(protocol_schema(), encoding="utf-8")
