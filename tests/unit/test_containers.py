"""What a file is, from its first bytes; and the page that says what becomes of the odd ones."""

import pytest

from gateway.containers import container_of, undecided
from tests.containers import FORMATS, KINDS, container, tone, wav
from tests.odd_files import PAGE, page

PCM = (tone(16_000) * 9_000).astype("<i2").tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_known_by_its_beginning_and_undecided_before(kind):
    data = container(kind)
    known = next(size for size in range(len(data)) if container_of(data[:size]))

    assert container_of(data[:known]).format == FORMATS[kind]
    assert all(undecided(data[:size]) for size in range(known))
    assert known < 4_000


def test_samples_are_no_container_after_a_few_bytes():
    for start in range(0, 2_000, 2):
        head = PCM[start : start + 16]
        assert container_of(head) is None
        assert not undecided(head), head


def test_a_wav_file_is_one():
    assert container_of(wav(PCM)).format == "wav"
    assert undecided(b"RIF")
    assert not undecided(b"RIFX"[:3] + b"Y" + bytes(8))


def test_the_page_of_odd_files_is_the_table():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.odd_files"
