"""The captions page in a real browser."""

import pytest

from tests.browser import needs_chromium, visit, write_wav
from tests.e2e.test_stream import expected_texts, talk

pytestmark = [pytest.mark.slow, needs_chromium]


@pytest.fixture
def recording(tmp_path):
    return write_wav(tmp_path / "talk.wav", talk())


async def shown(page) -> list[str]:
    """The finished lines."""
    return await page.locator("#finals .words").all_text_contents()


async def test_a_chosen_file_is_transcribed_to_its_end(fleet, recording):
    async with visit(fleet.url) as seen:
        await seen.page.set_input_files("#file", recording)
        await seen.page.get_by_text("Done:").wait_for()
        lines = await shown(seen.page)

    assert lines == expected_texts(talk())
    assert seen.errors == []
    assert seen.strangers(fleet.url) == []


async def test_the_microphone_is_heard_until_it_is_stopped(fleet, recording):
    async with visit(fleet.url, recording, permissions=["microphone"]) as seen:
        await seen.page.get_by_role("button", name="Start listening").click()
        await seen.page.locator("#finals li").nth(1).wait_for()
        await seen.page.get_by_role("button", name="Stop").click()
        await seen.page.get_by_text("Done:").wait_for()
        lines = await shown(seen.page)

    assert len(lines) >= 2
    assert seen.errors == []
