"""The comparison with the recorded answers: what it leaves out, what it notices, and that its table only shrinks."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from conformance_api import until
from conformance_recording import (
    Difference,
    Known,
    Recordings,
    Tape,
    aside,
    case_id,
    complaints,
    differences,
    known,
    known_differences,
)

from kubeshard.runtime.transport import HttpRequest, HttpResponse

JSON = {"content-type": "application/json", "date": "today"}
UIDS = ("5f8ae0a4-3a3c-4d52-8b1b-0d5f6a4f8a11", "0b0bb1a4-3a3c-4d52-8b1b-0d5f6a4f8a22")


def tape(*bodies: Any, target: str = "/api/v1/things", status: int = 200) -> list[Any]:
    """What is told of a case that was answered this."""
    made = Tape("case-1")
    for body in bodies:
        made.note(HttpRequest("GET", target, {}), HttpResponse(status, JSON, json.dumps(body).encode()))
    return made.told()


def thing(uid: str, version: int, **fields: Any) -> dict[str, Any]:
    made = "2026-01-01T00:00:00Z"
    return {"metadata": {"uid": uid, "resourceVersion": str(version), "creationTimestamp": made, **fields}}


def test_a_document_is_left_out_and_its_refusal_is_not() -> None:
    def told(status: int) -> Any:
        return tape({"a": 1}, target="/version", status=status)[0][-1]

    assert (told(200), told(403)) == (None, {"a": 1})


def test_what_a_server_makes_up_is_no_difference() -> None:
    one = tape(thing(UIDS[0], 5), thing(UIDS[0], 9, name="a-x7f2k", generateName="a-"))
    other = tape(thing(UIDS[1], 100), thing(UIDS[1], 101, name="a-bc5dm", generateName="a-"))
    assert one == other


def test_an_object_that_was_written_or_made_anew_is_a_difference() -> None:
    before = tape(thing(UIDS[0], 5), thing(UIDS[0], 5))
    written, another = tape(thing(UIDS[0], 5), thing(UIDS[0], 6)), tape(thing(UIDS[0], 5), thing(UIDS[1], 5))
    assert [one.place for one in differences(before, written)] == ["body.metadata.resourceVersion"]
    assert [one.place for one in differences(before, another)] == ["body.metadata.uid"]


def test_a_version_in_a_request_is_that_of_an_answer_or_as_it_is() -> None:
    def asked(version: int) -> list[Any]:
        return tape(thing(UIDS[0], version), None, target=f"/a?resourceVersion={version}&limit=1")

    assert asked(7)[1] == asked(8)[1]
    assert asked(7)[1][1] == "/a?resourceVersion=<version 0>&limit=1"
    assert tape(None, target="/a?resourceVersion=1")[0][1] == "/a?resourceVersion=1"


async def test_what_prepares_a_case_or_waits_is_not_recorded() -> None:
    made = Tape("case-1")

    async def asks() -> bool:
        made.note(HttpRequest("GET", "/readyz", {}), HttpResponse(200, {}, b""))
        return True

    await until(asks)
    with aside():
        await asks()
    assert made.told() == []
    await asks()
    assert len(made.told()) == 1


def test_a_case_that_asks_something_else_than_when_it_was_recorded_says_what_to_do() -> None:
    (found,) = differences(tape(None, target="/a"), tape(None, target="/b"))
    assert found.place == "requests"
    assert "make record" in found.text


def test_a_difference_passes_only_if_the_table_has_it_and_the_table_only_while_there_is_one() -> None:
    found = [Difference("body.message", "GET /a: body.message: it is ours")]
    words = Known("other words", re.compile(r"\.message$"), frozenset({"a: b"}))
    assert complaints("a: b", found, [words]) == []
    assert complaints("a: c", found, [words]) == ["GET /a: body.message: it is ours"]
    (gone,) = complaints("a: b", [], [words])
    assert gone.endswith("other words")


@pytest.mark.parametrize("place", ["", ".*", "e", "^requests$", "^status$", "^status|^body"])
def test_a_place_of_the_table_hides_no_other_place(place: str) -> None:
    entry = {"reason": "other words", "place": place, "cases": ["a: b"]}
    with pytest.raises(ValueError, match="hides"):
        known(entry)


def test_a_place_of_the_table_is_the_status_if_it_says_so() -> None:
    assert known({"reason": "another code", "place": "^status$", "status": True, "cases": ["a: b"]}).cases


def test_null_and_nothing_are_told_apart() -> None:
    (found,) = differences(tape({"a": None}), tape({}))
    assert (found.place, found.text) == ("body.a", "GET /api/v1/things: body.a: null is recorded as nothing")


def test_a_case_has_one_name_on_all_servers() -> None:
    assert {case_id(name) for name in ("test_a[model-x-y]", "test_a[real-x-y]")} == {"test_a[x-y]"}
    assert case_id("test_a[http]") == "test_a"


def test_all_cases_of_the_table_are_recorded_and_have_a_reason() -> None:
    entries = known_differences()
    assert all(len(one.reason) > 10 and one.cases for one in entries)
    listed = {case for one in entries for case in one.cases}
    areas = {case.partition(": ")[0] for case in listed}
    assert listed <= {f"{area}: {case}" for area in areas for case in Recordings(area).cases}
