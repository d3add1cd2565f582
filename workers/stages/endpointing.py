"""When an utterance starts and ends: a table over VAD frames of 32 ms.

Theory. A frame is *voiced* at probability >= 0.5 and *unvoiced* below 0.35 (hysteresis, so that a wavering
probability does not end a word). Two voiced frames open an utterance; it reaches back 300 ms before them, since
soft first consonants come before the detector is sure. `endpointing_ms` of unvoiced frames closes it.

    phase    frame                                   next     action
    idle     voiced, second in a row                 speech   open, 300 ms back (never into a closed utterance)
    idle     anything else                           idle     -
    speech   unvoiced for 224 ms                     speech   pause: the utterance may end here
    speech   not unvoiced, after a pause             speech   resume
    speech   unvoiced for endpointing_ms             idle     close, 200 ms after the last frame that was not unvoiced
    speech   unvoiced for 256 ms, utterance > 6 s    idle     close likewise: long speech ends at a short pause
    speech   utterance reaches 15 s                  speech   cut at the quietest point of the last second
    speech   anything else                           speech   -

A pause and the close that follows it name the same end, so what is computed at the pause is ready at the close.
A cut closes the utterance and opens the next at the same sample. It lies less than one anchor interval back, so
no text that the decoder has promised (workers/stages/acoustic.py) can lie behind it.

Beside the phases: `silence_ms` after the last *spoken* frame, or after the session's start, silence is told, once until
the next spoken frame. Those that open an utterance are spoken, and in one all that are not unvoiced: a click is not.
It is a frame's last action, so with silence_ms >= endpointing_ms it comes after the close.
"""

from dataclasses import dataclass, replace

from workers.wire import SAMPLE_RATE

FRAME = 512  # samples the VAD looks at: 32 ms
ONSET_FRAMES = 2
VOICED, UNVOICED = 0.5, 0.35
PREROLL = SAMPLE_RATE * 300 // 1000
TAIL = SAMPLE_RATE * 200 // 1000
LONG, LONGEST = SAMPLE_RATE * 6, SAMPLE_RATE * 15
PAUSE_FRAMES = 7  # 224 ms: the first whole frame after the tail
LONG_ENDPOINT_FRAMES = 8  # 256 ms
LOOKBACK_FRAMES = 31  # 1 s, less than the anchor interval of 1.28 s


@dataclass(frozen=True, slots=True)
class Open:
    start: int


@dataclass(frozen=True, slots=True)
class Pause:
    end: int
    voiced: int


@dataclass(frozen=True, slots=True)
class Resume:
    sample: int


@dataclass(frozen=True, slots=True)
class Close:
    end: int
    voiced: int


@dataclass(frozen=True, slots=True)
class Quiet:
    """Nobody has spoken from `start` to `end`."""

    start: int
    end: int


Event = Open | Pause | Resume | Close | Quiet


@dataclass(frozen=True, slots=True)
class Endpointer:
    """Where a session stands; sample numbers are absolute in the session."""

    sample: int = 0  # end of the last frame seen
    speaking: bool = False
    start: int = 0  # of the open utterance
    floor: int = 0  # audio before this belongs to a closed utterance
    run: int = 0  # idle: voiced frames in a row; speech: unvoiced frames in a row
    voiced: int = 0  # samples of voiced frames in the open utterance
    spoke: int = 0  # end of the last spoken frame
    quiet: bool = False  # the silence since then has been told
    # Of the last second, per frame, for the choice of a cut: mean square, and whether voiced.
    levels: tuple[float, ...] = ()
    voices: tuple[bool, ...] = ()

    def frame(
        self, probability: float, level: float, endpoint_frames: int, silence_frames: int = 0
    ) -> tuple["Endpointer", list[Event]]:
        """Take one frame of 512 samples with its speech probability and mean square. No silence_frames: not told."""
        seen = replace(
            self,
            sample=self.sample + FRAME,
            levels=(*self.levels, level)[-LOOKBACK_FRAMES:],
            voices=(*self.voices, probability >= VOICED)[-LOOKBACK_FRAMES:],
        )
        state, events = (
            seen._in_speech(probability, endpoint_frames) if self.speaking else seen._in_silence(probability)
        )
        if state.speaking and probability >= UNVOICED:
            return replace(state, spoke=state.sample, quiet=False), events
        if state.quiet or not silence_frames or state.sample - state.spoke < silence_frames * FRAME:
            return state, events
        return replace(state, quiet=True), [*events, Quiet(state.spoke, state.sample)]

    def close(self, end: int) -> tuple["Endpointer", list[Event]]:
        """Flush or end of audio at sample `end`: what may be speech counts, even one voiced frame."""
        events: list[Event] = []
        state = self
        if not state.speaking and state.run:
            state, events = replace(state, spoke=state.sample, quiet=False)._open()
        if state.speaking:
            events.append(Close(state._pause_end() if state._paused() else end, state.voiced))
        return replace(state, speaking=False, run=0, voiced=0, floor=end), events

    def _paused(self) -> bool:
        return self.run >= PAUSE_FRAMES

    def _pause_end(self) -> int:
        return self.sample - self.run * FRAME + TAIL

    def _in_silence(self, probability: float) -> tuple["Endpointer", list[Event]]:
        run = self.run + 1 if probability >= VOICED else 0
        state = replace(self, run=run)
        return state._open() if run >= ONSET_FRAMES else (state, [])

    def _open(self) -> tuple["Endpointer", list[Event]]:
        start = max(self.floor, self.sample - self.run * FRAME - PREROLL, 0)
        return replace(self, speaking=True, start=start, voiced=self.run * FRAME, run=0), [Open(start)]

    def _in_speech(self, probability: float, endpoint_frames: int) -> tuple["Endpointer", list[Event]]:
        unvoiced = probability < UNVOICED
        voiced = self.voiced + (FRAME if probability >= VOICED else 0)
        state = replace(self, run=self.run + 1 if unvoiced else 0, voiced=voiced)
        length = state.sample - state.start
        if state.run >= (endpoint_frames if length < LONG else min(LONG_ENDPOINT_FRAMES, endpoint_frames)):
            end = min(state.sample, state._pause_end())
            return replace(state, speaking=False, run=0, voiced=0, floor=end), [Close(end, voiced)]
        events: list[Event] = [Resume(self.sample)] if self._paused() and not unvoiced else []
        if length >= LONGEST:
            cut, closing = state._cut(state._quietest())
            return cut, [*events, *closing]
        if state.run == PAUSE_FRAMES:
            events.append(Pause(state._pause_end(), voiced))
        return state, events

    def _quietest(self) -> int:
        """Frames back from now to the quietest stretch of three frames."""
        sums = [sum(self.levels[i : i + 3]) for i in range(len(self.levels) - 2)]
        return len(self.levels) - 1 - sums.index(min(sums))

    def _cut(self, back: int) -> tuple["Endpointer", list[Event]]:
        at = self.sample - back * FRAME
        carried = sum(self.voices[len(self.voices) - back :]) * FRAME
        events: list[Event] = [Close(at, self.voiced - carried), Open(at)]
        return replace(self, start=at, floor=at, voiced=carried, run=0), events
