"""What a client may say when: the session's state machine. Pure; gateway/connection.py does the talking.

Theory. A session is configured by its query string, by a first `configure` or `resume` message, or not at all; sound or
any other message settles the matter. After `end` only a `ping` makes sense: the rest of the transcript is on its way. A
connection that resumes a session whose end was taken begins there.

    state        configure   resume      audio       flush       end         ping
    configuring  streaming   streaming   streaming   streaming   ending      =
    streaming    too late    too late    =           =           ending      =
    ending       too late    too late    after end   after end   =           =
"""

from enum import Enum
from typing import Literal

from shared.errors import BadInput

Said = Literal["configure", "resume", "audio", "flush", "end", "ping"]


class State(Enum):
    CONFIGURING = "configuring"
    STREAMING = "streaming"
    ENDING = "ending"


_TOO_LATE = "configure or resume must be the first message, before any audio"
_AFTER_END = "nothing may be sent after end; open a new session"

TABLE: dict[State, dict[Said, State | str]] = {
    State.CONFIGURING: {
        "configure": State.STREAMING,
        "resume": State.STREAMING,
        "audio": State.STREAMING,
        "flush": State.STREAMING,
        "end": State.ENDING,
        "ping": State.CONFIGURING,
    },
    State.STREAMING: {
        "configure": _TOO_LATE,
        "resume": _TOO_LATE,
        "audio": State.STREAMING,
        "flush": State.STREAMING,
        "end": State.ENDING,
        "ping": State.STREAMING,
    },
    State.ENDING: {
        "configure": _TOO_LATE,
        "resume": _TOO_LATE,
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
