"""What `/v1/fleet` says of the fleet, to whom, and that it stays small."""

import httpx
import pytest

from gateway import fleet_view
from gateway.fleet_view import durations, row_of, spread, workers_of
from ops.keys import FileStore
from shared import metrics
from shared.access import Key, new_secret
from shared.protocol import SessionOptions
from shared.settings import AuthSettings
from tests.conftest import wait_until
from tests.e2e.conftest import until
from tests.e2e.test_stream import END, talk


async def report(fleet, **options):
    async with httpx.AsyncClient() as http:
        return await http.get(f"{fleet.url}/v1/fleet", **options)


async def looked(fleet) -> dict:
    """A look of its own, not one that somebody else has had."""
    fleet.gateway.fleet._report = None
    return (await report(fleet)).json()


async def test_an_open_session_is_listed_with_what_it_has_sent(fleet):
    async with fleet.connect() as socket:
        (ready,) = await until(socket, "ready")
        await socket.send(talk().tobytes()[: 2 * 16_000 * 2])
        await until(socket, "speech_start")
        await wait_until(lambda: _decoded(fleet))
        told = await looked(fleet)
        await socket.send(END)
        await until(socket, "end")
    after = await looked(fleet)

    (row,) = told["sessions"]
    assert row["session"] == ready["session"]
    assert (row["owner"], row["backlog_s"]) == ("anonymous", 0)
    assert 1.6 < row["received_s"] <= 2.0
    assert row["events"] >= 1
    assert 0 <= row["age_s"] < 30
    assert (told["open_sessions"], told["connected_here"]) == (1, 1)
    assert (after["open_sessions"], after["sessions"]) == (0, [])


async def _decoded(fleet) -> bool:
    (row,) = (await looked(fleet))["sessions"]
    return row["received_s"] > 1.6 and row["backlog_s"] == 0


async def test_without_workers_the_backlog_grows_and_work_waits(idle_fleet):
    async with idle_fleet.connect("sample_rate=16000&chunk_ms=320") as socket:
        await until(socket, "ready")
        await socket.send(talk().tobytes()[: 16_000 * 2])

        async def waits() -> bool:
            return bool((await looked(idle_fleet))["stages"][0]["waiting"])

        await wait_until(waits)
        await idle_fleet.gateway.admission.look()
        told = await looked(idle_fleet)

    (row,) = told["sessions"]
    assert row["backlog_s"] == pytest.approx(row["received_s"], abs=0.01)
    assert row["backlog_s"] > 0.3
    assert told["stages"][0] | {"oldest_s": 0} == {
        "stage": "frontend",
        "workers": 0,
        "waiting": 1,
        "in_work": 0,
        "oldest_s": 0,
    }
    assert told["stages"][0]["oldest_s"] > 0
    assert told["workers"] == []


async def test_a_worker_is_listed_once_with_all_its_stages(fleet):
    async def announced() -> bool:
        return bool((await looked(fleet))["workers"])

    await wait_until(announced)
    told = await looked(fleet)

    assert told["workers"] == [{"worker": "w0", "stages": ["frontend", "acoustic", "decoder"], "busy": False}]
    assert [stage["workers"] for stage in told["stages"]] == [1, 1, 1]


async def test_many_sessions_are_counted_and_some_of_them_listed(idle_fleet, monkeypatch):
    monkeypatch.setattr(fleet_view, "LISTED", 3)
    sockets = [await idle_fleet.connect() for _ in range(5)]
    for socket in sockets:
        await until(socket, "ready")
    told = await looked(idle_fleet)
    for socket in sockets:
        await socket.close()

    assert told["open_sessions"] == 5
    assert len(told["sessions"]) == 3
    ages = [row["age_s"] for row in told["sessions"]]
    assert ages == sorted(ages)


async def test_all_who_watch_share_a_look_a_second(idle_fleet):
    first, second = [(await report(idle_fleet)).json() for _ in range(2)]

    assert first["at_ms"] == second["at_ms"]


class TestWithKeys:
    @pytest.fixture
    def secrets(self):
        return {scope: new_secret() for scope in ("transcribe", "listen")}

    @pytest.fixture
    def auth_settings(self, tmp_path, secrets):
        for scope, (key_id, secret) in secrets.items():
            FileStore(tmp_path / "keys.toml").write(key_id, Key.new(secret, name=scope, scopes=[scope]))
        return AuthSettings(keys_file=tmp_path / "keys.toml")

    @pytest.mark.parametrize(("scope", "status"), [(None, 401), ("transcribe", 403), ("listen", 200)])
    async def test_only_a_key_that_may_listen_sees_the_fleet(self, idle_fleet, secrets, scope, status):
        headers = {"Authorization": f"Bearer {secrets[scope][1]}"} if scope else {}
        answer = await report(idle_fleet, headers=headers)

        assert answer.status_code == status
        assert answer.headers["cache-control"] == "no-store"
        assert ("sessions" in answer.json()) == (status == 200)

    async def test_another_page_may_not_ask(self, idle_fleet, secrets):
        headers = {"Authorization": f"Bearer {secrets['listen'][1]}", "Origin": "https://elsewhere.example"}

        assert (await report(idle_fleet, headers=headers)).status_code == 403


def test_sessions_are_taken_by_turns_from_every_partition():
    assert spread([["a", "b", "c"], [], ["d"]], 3) == ["a", "d", "b"]
    assert spread([[], []], 3) == []


OPTIONS = SessionOptions(chunk_ms=500).model_dump_json().encode()


@pytest.mark.parametrize(
    ("states", "backlog_s"),
    [
        ([(b"8", b"8"), (b"2", b"2"), (b"2", b"2")], 0),  # silence went no further than the frontend
        ([(b"8", b"8"), (b"6", b"8"), (b"6", b"6")], 1),
        ([(b"4", b"8"), (b"4", b"4"), (b"1", b"4")], 3.5),
        ([(None, b"8"), (None, None), (None, None)], 4),
    ],
)
def test_the_stage_that_is_furthest_behind_makes_the_backlog(states, backlog_s):
    at = f"{16_000 * 4}:0:0:0".encode()
    row = row_of("f00d", [b"key:a", b"1000", b"3", OPTIONS], [(*state, at) for state in states], 6000)

    assert (row.backlog_s, row.received_s, row.age_s, row.events) == (backlog_s, 4, 5, 3)


def test_a_worker_with_work_of_any_stage_is_busy():
    beats = {"acoustic": {"a": {"in_flight": 1}, "b": {"in_flight": 0}}, "decoder": {"a": {"in_flight": 0}}}

    assert [(w.worker, w.stages, w.busy) for w in workers_of(beats)] == [
        ("a", ["acoustic", "decoder"], True),
        ("b", ["acoustic"], False),
    ]


def test_a_histogram_is_told_as_it_is():
    before = durations(metrics.RELAY)
    metrics.RELAY.observe(0.004)
    after = durations(metrics.RELAY)

    assert len(after.counts) == len(after.bounds_s) + 1
    grown = [now - was for now, was in zip(after.counts, before.counts, strict=True)]
    assert grown == [int(bound >= 0.004) for bound in after.bounds_s] + [1]
