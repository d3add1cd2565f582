"""Every fault of the table, on a fleet of real processes; the result is noted for docs/reliability.md."""

import random

import pytest

from tests.chaos import report
from tests.chaos.checks import unharmed
from tests.chaos.faults import FAULTS
from tests.chaos.scene import Fault, scene

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(150)]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.slug)
async def test_survives(fault: Fault, tmp_path):
    seed = random.randrange(1 << 30)  # pytest-randomly seeds this, and prints its own seed
    async with scene(fault, seed, tmp_path) as stage:
        await stage.play()
        try:
            await (fault.check or unharmed)(stage)
        except BaseException as failure:
            failure.add_note(stage.fleet.log.read_text()[-8000:])
            raise
        note = report.note(stage)
    assert note["longest_stall_s"] <= fault.stall_s
