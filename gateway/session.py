"""What a client may say when: the session's state machine. Pure; gateway/call.py does the talking.

Theory. A dialect begins the session with the client's options, or takes an old one up again, before anything else. After
`end` only a `ping` makes sense: the rest of the transcript is on its way. A connection that resumes a session whose end
was taken begins there.

    state        begin       audio       flush       end         ping
    streaming    too late    =           =           ending      =
    ending       too late    after end   after end   =           =
"""

from enum import Enum
from typing import Literal

from shared.errors import BadInput

Said = Literal["begin", "audio", "flush", "end", "ping"]


class State(Enum):
    STREAMING = "streaming"
    ENDING = "ending"


_TOO_LATE = "configure or resume must be the first message, before any audio"
_AFTER_END = "nothing may be sent after end; open a new session"

TABLE: dict[State, dict[Said, State | str]] = {
    State.STREAMING: {
        "begin": _TOO_LATE,
        "audio": State.STREAMING,
        "flush": State.STREAMING,
        "end": State.ENDING,
        "ping": State.STREAMING,
    },
    State.ENDING: {
        "begin": _TOO_LATE,
        "audio": _AFTER_END,
        "flush": _AFTER_END,
        "end": State.ENDING,
        "ping": State.ENDING,
    },
}


def after(state: State, said: Said) -> State:
    """The next state. Raises BadInput for what is not allowed in this one."""
    target = TABLE[state][said]
    if isinstance(target, str):
        raise BadInput(f"{said} in state {state.value}: {target}")
    return target
