"""What a client says, checked; and for what is wrong, one line that people understand."""

from pydantic import BaseModel, ValidationError

from shared.errors import BadInput
from shared.protocol import (
    CLIENT_ADAPTER,
    ClientMessage,
    Configure,
    EndOfAudio,
    Flush,
    Ping,
    Resume,
    SessionOptions,
)

# Several times what a message or query of ours can be.
MAX_TEXT = 4_096
MAX_FIELDS = 32


def request_of(query: dict[str, str]) -> SessionOptions | Resume:
    """The session a query string asks for, a new one or an old. Raises BadInput."""
    if len(query) > MAX_FIELDS:
        raise BadInput(f"query: {len(query)} parameters; at most {MAX_FIELDS} are read")
    try:
        if "resume_token" in query:
            return Resume.model_validate(query)
        return SessionOptions.model_validate(query)
    except ValidationError as error:
        raise BadInput(_explain(error, "resume" if "resume_token" in query else "query")) from error


def control_of(text: str) -> ClientMessage:
    """A text frame. Raises BadInput."""
    if len(text) > MAX_TEXT:
        raise BadInput(f"message: {len(text)} characters; control messages have {MAX_TEXT} at most")
    try:
        return CLIENT_ADAPTER.validate_json(text)
    except ValidationError as error:
        raise BadInput(_explain(error, "message")) from error


_KNOWN: dict[str, type[BaseModel]] = {
    "query": SessionOptions,
    "configure": Configure,
    "resume": Resume,
    "flush": Flush,
    "end": EndOfAudio,
    "ping": Ping,
}


def _explain(error: ValidationError, what: str) -> str:
    """One line for people: which field, what was wrong with it, what would be right."""
    first = error.errors()[0]
    if not first["loc"]:  # no JSON, no object, or of no type that we know
        return f"{what}: text frames are JSON with type configure, resume, flush, end or ping; audio goes in binary frames"
    *outer, field = first["loc"]
    kind = str(outer[0]) if outer else what
    if first["type"] == "extra_forbidden":
        return f"{kind}: unknown parameter {field!r:.80}; known are {', '.join(_KNOWN[kind].model_fields)}"
    return f"{kind}: {field}: {first['msg']}, got {first['input']!r:.80}"
