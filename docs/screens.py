"""Draws docs/screens: both pages of a real fleet, at two widths, light and dark. Run: python -m docs.screens"""

import asyncio
import tempfile
from pathlib import Path

import soundfile

from ops.client import StreamClient
from ops.fleet import Fleet
from shared.protocol import SessionOptions
from shared.settings import GatewaySettings
from tests.browser import visit, write_wav

ROOT = Path(__file__).parents[1]
SCREENS = ROOT / "docs/screens"
WIDTHS = {390: 844, 1280: 860}
FRAME = 1600


async def shoot(page, name: str) -> None:
    for width, height in WIDTHS.items():
        await page.set_viewport_size({"width": width, "height": height})
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme=scheme)
            await page.wait_for_timeout(400)  # canvases are drawn anew, and ease into their colours
            await page.screenshot(path=SCREENS / f"{name}-{width}-{scheme}.png", full_page=True)


async def talker(url: str, samples, after_s: float) -> None:
    """A session that is heard at the pace of speech, over and over."""
    await asyncio.sleep(after_s)
    async with StreamClient(url, SessionOptions()) as client:
        reading = asyncio.create_task(drain(client))
        while not reading.done():
            for at in range(0, len(samples), FRAME):
                await client.send(samples[at : at + FRAME].tobytes())
                await asyncio.sleep(FRAME / 16_000)


async def drain(client: StreamClient) -> None:
    async for _ in client:
        pass


async def main() -> None:
    SCREENS.mkdir(exist_ok=True)
    samples, rate = soundfile.read(ROOT / "ops/assets/demo.flac", dtype="int16")
    with tempfile.TemporaryDirectory() as folder:
        recording = write_wav(Path(folder) / "demo.wav", samples, rate)
        async with Fleet(gateway=GatewaySettings(port=0)) as fleet:
            async with visit(fleet.url, recording, permissions=["microphone"]) as seen:
                await seen.page.get_by_role("button", name="Start listening").click()
                await seen.page.locator("#finals li").nth(2).wait_for()
                await seen.page.locator("#open .tentative").wait_for()
                await shoot(seen.page, "captions")
            async with visit(fleet.url + "/operator") as seen, asyncio.TaskGroup() as group:
                talkers = [group.create_task(talker(fleet.url, samples, i * 2.5)) for i in range(4)]
                await seen.page.wait_for_timeout(30_000)  # charts need something to show
                await shoot(seen.page, "operator")
                for task in talkers:
                    task.cancel()


if __name__ == "__main__":
    asyncio.run(main())
