"""The captions page in a real browser."""

import json

import numpy as np
import pytest

from ops.formats import render
from ops.keys import FileStore
from shared.access import Key, new_secret
from shared.events import Final, parse_event
from shared.settings import AuthSettings, GatewaySettings
from tests.browser import Cable, needs_chromium, visit, write_wav
from tests.conftest import wait_until
from tests.e2e.test_stream import expected_texts, talk

pytestmark = [pytest.mark.slow, needs_chromium]

DROP = """([name, bytes]) => {
    const data = new DataTransfer();
    data.items.add(new File([new Uint8Array(bytes)], name));
    for (const type of ["dragover", "drop"]) {
        document.body.dispatchEvent(new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }));
    }
}"""


@pytest.fixture
def gateway_settings():
    return GatewaySettings(port=0, drain_s=5, resume_s=20)


@pytest.fixture
def recording(tmp_path):
    return write_wav(tmp_path / "talk.wav", talk())


async def shown(page) -> list[str]:
    """The finished lines."""
    return await page.locator("#finals .words").all_text_contents()


async def done(page) -> list[str]:
    await page.get_by_text("Done:").wait_for()
    return await shown(page)


async def finals_of(fleet) -> list[Final]:
    """What the fleet said in the one session there was."""
    (key,) = [
        key async for key in fleet.clients.commands.scan_iter(f"{fleet.clients.settings.prefix}*:events")
    ]
    stored = await fleet.clients.commands.xrange(key)
    events = [parse_event(fields[b"e"]) for _, fields in stored]
    return [event for event in events if isinstance(event, Final)]


async def held_back(fleet) -> bool:
    """Whether the one session's gateway has handed on all that it may while nothing is decoded."""
    commands, prefix = fleet.clients.commands, fleet.clients.settings.prefix
    states = [key async for key in commands.scan_iter(f"{prefix}*:state:frontend")]
    return any(
        [int(await commands.hget(key, "fed") or 0) > GatewaySettings().backlog_chunks for key in states]
    )


async def _settled(box) -> bool:
    """After a frame that was drawn with the new size."""
    return await box.evaluate(
        "() => new Promise(go => requestAnimationFrame(() => requestAnimationFrame(() => go(true))))"
    )


class TestFile:
    async def test_a_chosen_file_is_transcribed_to_its_end(self, fleet, recording):
        async with visit(fleet.url) as seen:
            await seen.page.set_input_files("#file", recording)
            lines = await done(seen.page)

        assert lines == expected_texts(talk())
        assert seen.errors == []
        assert seen.strangers(fleet.url) == []

    async def test_a_dropped_file_is_transcribed(self, fleet, recording):
        async with visit(fleet.url) as seen:
            await seen.page.evaluate(DROP, [recording.name, list(recording.read_bytes())])
            lines = await done(seen.page)

        assert lines == expected_texts(talk())

    @pytest.mark.parametrize("reading", [False, True])
    async def test_a_phone_that_is_turned_shows_the_newest_line_unless_one_reads_above(
        self, fleet, recording, reading
    ):
        async with visit(fleet.url, viewport={"width": 800, "height": 1_000}) as seen:
            await seen.page.set_input_files("#file", recording)
            await done(seen.page)
            box = seen.page.locator(".captions .text")
            await box.evaluate("box => box.style.fontSize = '8rem'")
            for top in (1e6, 0) if reading else (1e6,):
                await box.evaluate("(box, top) => box.scrollTop = top", top)
                await wait_until(lambda: _settled(box))
            await seen.page.set_viewport_size({"width": 390, "height": 500})
            hidden = "box => box.scrollHeight - box.scrollTop - box.clientHeight"
            await wait_until(lambda: _settled(box))

            assert (await box.evaluate(hidden) > 1) == reading

    async def test_a_file_that_is_no_audio_is_said_to_be_none(self, fleet):
        async with visit(fleet.url) as seen:
            await seen.page.evaluate(DROP, ["letter.txt", list(b"dear reader")])
            await seen.page.get_by_role("alert").get_by_text("can't read that file").wait_for()
            start = seen.page.get_by_role("button", name="Start listening")

            assert await start.is_enabled()

    async def test_after_a_cut_it_goes_on_and_nothing_is_lost_or_told_twice(self, idle_fleet, tmp_path):
        """Without workers nothing is decoded before the cut: the gateway takes some seconds and then holds back."""
        audio = np.concatenate([talk()] * 8)
        file = write_wav(tmp_path / "long.wav", audio)
        async with Cable(idle_fleet.port) as cable, visit(cable.url) as seen:
            await seen.page.set_input_files("#file", file)
            await wait_until(lambda: held_back(idle_fleet))
            cable.cut()
            await seen.page.get_by_text("Connection lost").wait_for()
            await idle_fleet.add_worker()
            lines = await done(seen.page)

        assert lines == expected_texts(audio)
        assert len(lines) > 8


class TestMicrophone:
    async def test_it_is_heard_until_it_is_stopped(self, fleet, recording):
        async with visit(fleet.url, recording) as seen:
            await seen.page.get_by_role("button", name="Start listening").click()
            await seen.page.locator("#finals li").nth(1).wait_for()
            await seen.page.get_by_role("button", name="Stop").click()
            lines = await done(seen.page)

        assert lines == [final.text for final in await finals_of(fleet)]
        assert len(lines) >= 2
        assert seen.errors == []
        assert seen.strangers(fleet.url) == []

    async def test_a_cut_while_somebody_speaks_loses_no_line(self, fleet, recording):
        async with Cable(fleet.port) as cable, visit(cable.url, recording) as seen:
            await seen.page.get_by_role("button", name="Start listening").click()
            await seen.page.locator("#finals li").first.wait_for()
            cable.cut()
            await seen.page.get_by_text("Connection lost").wait_for()
            await seen.page.locator("#finals li").nth(1).wait_for()
            await seen.page.get_by_role("button", name="Stop").click()
            lines = await done(seen.page)

        assert lines == [final.text for final in await finals_of(fleet)]

    async def test_one_that_is_blocked_is_said_with_what_to_do(self, fleet):
        async with visit(fleet.url, allowed=False) as seen:
            await seen.page.get_by_role("button", name="Start listening").click()
            await seen.page.get_by_role("alert").get_by_text("The microphone is blocked.").wait_for()

            assert "address bar" in await seen.page.get_by_role("alert").inner_text()


async def test_a_gateway_that_is_away_is_said_with_what_to_do(fleet, recording):
    async with Cable(fleet.port) as cable, visit(cable.url) as seen:
        cable.unplug()
        await seen.page.set_input_files("#file", recording)
        await seen.page.get_by_role("alert").get_by_text("The gateway does not answer.").wait_for()

        assert await seen.page.get_by_role("button", name="Start listening").is_enabled()


class TestWhatIsKept:
    @pytest.mark.parametrize(("form", "name"), [("text", "txt"), ("srt", "srt"), ("vtt", "vtt")])
    async def test_downloads_hold_what_the_command_line_would_write(self, fleet, recording, form, name):
        async with visit(fleet.url) as seen:
            await seen.page.set_input_files("#file", recording)
            await done(seen.page)
            async with seen.page.expect_download() as pending:
                await seen.page.get_by_role("button", name=name).click()
            download = await pending.value
            text = (await download.path()).read_text(encoding="utf-8")

        assert download.suggested_filename == f"captions.{name}"
        assert text == render(await finals_of(fleet), form)
        assert text.strip()

    async def test_captions_are_copied_as_text(self, fleet, recording):
        async with visit(fleet.url, permissions=["clipboard-read", "clipboard-write"]) as seen:
            await seen.page.set_input_files("#file", recording)
            lines = await done(seen.page)
            await seen.page.get_by_role("button", name="Copy").click()
            await seen.page.get_by_role("button", name="Copied").wait_for()
            copied = await seen.page.evaluate("navigator.clipboard.readText()")

        assert copied.splitlines() == lines

    async def test_captions_that_were_not_saved_go_only_when_asked_for(self, fleet, recording):
        async with visit(fleet.url) as seen:
            await seen.page.set_input_files("#file", recording)
            before = await done(seen.page)
            await seen.page.set_input_files("#file", recording)
            await seen.page.get_by_role("button", name="Keep them").click()
            kept = await shown(seen.page)
            await seen.page.set_input_files("#file", recording)
            await seen.page.get_by_role("button", name="Start anew").click()
            await seen.page.get_by_text("Transcribing").wait_for()

            assert kept == before
            assert await done(seen.page) == before


class TestWithKeys:
    @pytest.fixture
    def secret(self):
        return new_secret()

    @pytest.fixture
    def auth_settings(self, tmp_path, secret):
        FileStore(tmp_path / "keys.toml").write(
            secret[0], Key.new(secret[1], name="ann", scopes=["transcribe"])
        )
        return AuthSettings(keys_file=tmp_path / "keys.toml")

    async def test_a_missing_key_is_asked_for_and_a_wrong_one_told(self, fleet, recording, secret):
        async with visit(fleet.url) as seen:
            page = seen.page
            alert = page.get_by_role("alert", include_hidden=True)
            for key in ("", "scribe_12345678_wrong", "with blanks in it"):
                if key:
                    await page.get_by_label("API key").fill(key)
                    await page.get_by_role("button", name="Done").click()
                await page.set_input_files("#file", recording)
                await page.get_by_role("dialog", name="Settings").wait_for()
                told = await alert.inner_text()
                assert ("no key has" if " " in key else "wants a valid key") in told
            await page.get_by_label("API key").fill(secret[1])
            await page.get_by_role("button", name="Done").click()
            await page.set_input_files("#file", recording)
            lines = await done(page)
            kept = await page.evaluate(
                "[Object.values(sessionStorage), localStorage.length, document.cookie]"
            )

        assert lines == expected_texts(talk())
        assert kept == [[secret[1]], 0, ""]
        assert not [address for address in seen.asked if secret[1] in address]


async def module(page, name: str, expression: str, argument=None):
    """What an expression gives, with one of the page's modules as `m` and an argument as `x`."""
    source = f"(x) => import('/pages/{name}').then((m) => {expression})"
    return await page.evaluate(source, argument)


def utterance(rng: np.random.Generator) -> Final:
    """Words of all lengths, some beyond a line, with and without times that fit."""
    lengths = rng.choice(
        [1, 2, 3, 5, 8, 13, 50], rng.integers(1, 60), p=[0.1, 0.2, 0.2, 0.2, 0.2, 0.09, 0.01]
    )
    words = ["".join(rng.choice(list("abc&<>é😀"), length)) for length in lengths]
    edges = np.sort(rng.integers(0, 60_000, 2 * len(words)))
    times = [
        {"text": w, "start_ms": a, "end_ms": b}
        for w, a, b in zip(words, edges[::2], edges[1::2], strict=True)
    ]
    fields = {"session": "f00d", "utterance": 1, "text": " ".join(words), "stable": 0}
    fields |= {"start_ms": edges[0], "end_ms": edges[-1], "words": times[: rng.choice([0, len(times)])]}
    return Final(**fields)


class TestModules:
    async def test_subtitles_are_those_of_the_command_line_whatever_is_said(self, fleet):
        rng = np.random.default_rng()
        said = [[utterance(rng) for _ in range(rng.integers(0, 4))] for _ in range(100)]
        sent = [[json.loads(final.model_dump_json()) for final in finals] for finals in said]
        async with visit(fleet.url) as seen:
            for form, name in {"text": "asText", "srt": "asSrt", "vtt": "asVtt"}.items():
                told = await module(seen.page, "formats.js", f"x.map(m.{name})", sent)

                assert told == [render(finals, form) for finals in said]

    async def test_stable_characters_are_code_points(self, fleet):
        async with visit(fleet.url) as seen:
            split = await module(seen.page, "transcript.js", "m.splitStable(...x)", ["a😀bé c", 3])
            times = await module(
                seen.page, "transcript.js", "x.map(m.clock)", [0, 61_999, 3_600_000, 36_065_000]
            )

        assert split == ["a😀b", "é c"]
        assert times == ["0:00", "1:01", "1:00:00", "10:01:05"]

    async def test_kept_audio_is_given_again_from_the_sample_asked_for(self, fleet):
        expression = """(() => {
            const kept = new m.Kept();
            for (const frame of x) kept.add(Int16Array.from(frame));
            const again = (sample) => Array.from(kept.again(sample), (samples) => Array.from(samples));
            const before = again(1);
            kept.safe(4);
            return [before, again(4), again(0), kept.sent];
        })()"""
        async with visit(fleet.url) as seen:
            told = await module(seen.page, "kept.js", expression, [[1, 2], [3, 4], [5, 6], [7]])

        assert told == [[[2], [3, 4], [5, 6], [7]], [[5, 6], [7]], [[5, 6], [7]], 7]

    async def test_the_way_to_the_browser_does_not_depend_on_its_clock(self, fleet):
        expression = """(() => {
            const spent = new m.TimeSpent();
            spent.roundTrip(8);
            const hops = [{ stage: "decoder", wait_ms: 1, load_ms: 2, step_ms: 30 }];
            const at = (sent) => ({ received_ms: sent - 40, committed_ms: sent, hops });
            spent.add(at(1000), x + 1005);
            return spent.add(at(2000), x + 2015);
        })()"""
        async with visit(fleet.url) as seen:
            right, ahead = [
                await module(seen.page, "trace.js", expression, apart) for apart in (0, 3_600_000)
            ]

        assert right == ahead
        assert (right["relay"], right["between"], right["total"]) == (14, 7, 54)


class TestForEverybody:
    @pytest.mark.parametrize("path", ["/", "/operator"])
    @pytest.mark.parametrize("width", [320, 390, 1280])
    async def test_nothing_is_wider_than_the_screen(self, fleet, path, width):
        async with visit(fleet.url + path, viewport={"width": width, "height": 800}) as seen:
            if path == "/operator":
                await seen.page.get_by_role("cell", name="idle").wait_for()
            wide = await seen.page.evaluate("document.documentElement.scrollWidth")

        assert wide == width
        assert seen.errors == []

    @pytest.mark.parametrize("path", ["/", "/operator"])
    async def test_whatever_can_be_used_has_a_name(self, fleet, path):
        nameless = """[...document.querySelectorAll("button, input, select, a, canvas, [tabindex]")].filter((e) =>
            !(e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.length || e.ariaHidden)).length"""
        async with visit(fleet.url + path) as seen:
            assert await seen.page.evaluate(nameless) == 0
            assert await seen.page.evaluate("document.documentElement.lang") == "en"
            assert await seen.page.locator("h1").count() == 1

    async def test_only_finished_lines_are_announced(self, fleet):
        async with visit(fleet.url) as seen:
            live = (
                "[...document.querySelectorAll('[aria-live], [role=status], [role=alert]')].map((e) => e.id)"
            )

            assert await seen.page.evaluate(live) == ["status", "problem", "finals"]

    async def test_a_keyboard_reaches_everything_and_what_has_focus_is_seen(self, fleet):
        async with visit(fleet.url) as seen:
            reached = []
            for _ in range(5):
                await seen.page.keyboard.press("Tab")
                reached.append(await seen.page.evaluate("document.activeElement.id"))
                outline = "getComputedStyle(document.activeElement).outlineStyle"
                assert await seen.page.evaluate(outline) == "solid"

        assert reached[1:] == ["settings-open", "start", "choose", "captions"]
