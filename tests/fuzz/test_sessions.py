"""Fuzzed clients over real sockets, many at a time."""

import pytest
from hypothesis import strategies as st

from tests.fuzz.broken import raw_frames
from tests.fuzz.budget import fuzz
from tests.fuzz.scripts import Script, scripts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def test_every_session_ends_as_the_protocol_says_whatever_its_client_does(resident):
    resident.play(fuzz("sessions", scripts))
    resident.assert_unharmed()


def test_frames_that_are_none_end_their_own_connection(resident):
    broken = st.builds(
        Script, query=st.sampled_from(["", "sample_rate=16000"]), raw=raw_frames, ending=st.just("eof")
    )
    resident.play(fuzz("frames", broken))
    resident.assert_unharmed()
