"""The HTTP API against its own OpenAPI description, and what an EventSource may say when it comes back."""

import httpx
import pytest
import schemathesis
from hypothesis import strategies as st
from schemathesis import GenerationMode

from tests.fuzz.budget import fuzz
from tests.fuzz.handshakes import last_event_ids
from tests.fuzz.verdict import INTERNAL

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

PATIENCE_S = 5
ROUTES = {"/healthz", "/readyz", "/metrics", "/v1/sessions/{session}/events", "/v1/fleet"}


@pytest.fixture
def headers(resident):
    return {"Authorization": f"Bearer {resident.secret}"}


def test_every_route_answers_as_its_description_says(resident, headers):
    schema = schemathesis.openapi.from_url(f"{resident.fleet.url}/openapi.json")
    operations = [operation.ok() for operation in schema.get_all_operations()]
    cases = st.one_of(
        operation.as_strategy(generation_mode=mode)
        for operation in operations
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    )

    asked = fuzz("api", cases, key=lambda case: f"{case.operation.label} {case!r}")
    for case in asked:
        answer = case.call(headers=headers, timeout=PATIENCE_S)
        case.validate_response(answer)
        assert INTERNAL.search(answer.text) is None
    assert {case.path for case in asked} == ROUTES
    resident.assert_unharmed()


def test_a_finished_session_is_told_again_from_any_place_and_then_the_answer_ends(resident, headers):
    session, last = resident.finished_session()
    url = f"{resident.fleet.url}/v1/sessions/{session}/events"

    with httpx.Client(headers=headers, timeout=PATIENCE_S) as http:
        for each in fuzz("last event ids", last_event_ids):
            answer = http.get(url, headers=[(b"Last-Event-ID", each.encode("utf-8"))])
            assert answer.status_code in {200, 204, 400, 422, 431}, f"{answer.status_code} to {each!r:.100}"
            assert INTERNAL.search(answer.text) is None
            if answer.status_code == 200:
                assert f"id: {last}" in answer.text, f"{answer.text!r} to {each!r:.100}"
    resident.assert_unharmed()
