"""The list/watch state machine, transition by transition. Times are monotonic seconds; the rng returns its maximum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from collecting_machine import Advance, CollectingMachine, Drop, Full, Put

from kubeshard.core.errors import (
    ApiError,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    Throttled,
    Timeout,
    Unavailable,
    UnexpectedResponse,
)
from kubeshard.core.objects import Key, KubeObject, ObjectMeta
from kubeshard.listwatch.state_machine import (
    List,
    Listing,
    Opening,
    OpenWatch,
    Pause,
    Pausing,
    Probe,
    Probing,
    SharedKnowledge,
    Streaming,
    Watching,
)


class Thing(KubeObject, version="v1"):
    pass


class TopRng:
    def uniform(self, low: float, high: float) -> float:
        return high

    def token(self) -> str:
        return "token"


class BottomRng(TopRng):
    def uniform(self, low: float, high: float) -> float:
        return low


def thing(name: str, version: int) -> Thing:
    return Thing(metadata=ObjectMeta(name=name, uid=f"uid-{name}", resource_version=str(version)))


Machine = CollectingMachine
A5 = thing("a", 5)


def in_stream(streaming: SharedKnowledge | None = None) -> Machine:
    machine = Machine("apps", streaming or SharedKnowledge(), TopRng())
    machine.opened(0.0)
    machine.event("ADDED", A5, 60.0)
    return machine


def in_list() -> Machine:
    machine = Machine("apps", SharedKnowledge(enabled=False), TopRng())
    machine.item(A5)
    return machine


def in_open() -> Machine:
    machine = in_list()
    machine.listed("10", 0.0)
    return machine


def in_watch(*, heard: bool = True) -> Machine:
    machine = in_open()
    machine.opened(0.0)
    if heard:
        machine.bookmark("11", 60.0, ends_initial_events=False)
    return machine


def in_pause() -> Machine:
    machine = in_open()
    machine.failed(Unavailable("down"), 0.0)
    return machine


def in_probe() -> Machine:
    machine = in_watch()
    machine.ended(60.0)
    return machine


STARTS: dict[type, Callable[[], Machine]] = {
    Streaming: in_stream,
    Listing: in_list,
    Opening: in_open,
    Watching: in_watch,
    Pausing: in_pause,
    Probing: in_probe,
}
FIRST_PAUSE = Pause(1.6)


@dataclass(frozen=True)
class Row:
    state: type
    input: str
    do: Callable[[Machine], Any]
    change: Any
    next: type
    request: Any = None

    def __str__(self) -> str:
        return f"{self.state.__name__}: {self.input} -> {self.next.__name__}"


def fails(error: type[ApiError], now: float = 60.0) -> Callable[[Machine], None]:
    return lambda machine: machine.failed(error("no"), now)


def error_event(error: type[ApiError]) -> Callable[[Machine], None]:
    return lambda machine: machine.error_event(error("no"), 60.0)


S, L, O, W, P = Streaming, Listing, Opening, Watching, Pausing  # noqa: E741
B = Probing


def named(request: Any) -> tuple[str, Any]:
    """Requests without fields are equal as tuples."""
    return type(request).__name__, request


def asks(machine: Machine) -> tuple[str, Any]:
    return named(machine.request)


TABLE = [
    Row(S, "event", lambda m: m.event("ADDED", thing("b", 6), 60.0), None, S, OpenWatch("", initial=True)),
    Row(S, "any other bookmark", lambda m: m.bookmark("7", 60.0, ends_initial_events=False), None, L, List()),
    Row(
        S,
        "bookmark that ends the initial events",
        lambda m: m.bookmark("7", 60.0, ends_initial_events=True),
        Full({Key("", "a"): A5}, "7"),
        W,
    ),
    Row(S, "refused: option not known", fails(Invalid), None, L, List()),
    Row(S, "ended", lambda m: m.ended(60.0), None, P, FIRST_PAUSE),
    Row(S, "connection broke", fails(Unavailable), None, P, FIRST_PAUSE),
    Row(S, "kind not served", fails(NotFound), None, P, FIRST_PAUSE),
    Row(S, "error event: gone", error_event(Gone), None, P, FIRST_PAUSE),
    Row(L, "item", lambda m: m.item(thing("b", 6)), None, L, List()),
    Row(L, "restarted", lambda m: m.restarted(), None, L, List()),
    Row(L, "listed", lambda m: m.listed("10", 1.0), Full({Key("", "a"): A5}, "10"), O, OpenWatch("10")),
    Row(L, "listed without version", lambda m: m.listed("", 1.0), None, P, FIRST_PAUSE),
    Row(L, "listed at version 0", lambda m: m.listed("0", 1.0), None, P, FIRST_PAUSE),
    Row(L, "any error", fails(UnexpectedResponse), None, P, FIRST_PAUSE),
    Row(L, "gone", fails(Gone), None, P, FIRST_PAUSE),
    Row(O, "opened", lambda m: m.opened(1.0), None, W),
    Row(O, "refused: throttled", fails(Throttled, 1.0), None, P, FIRST_PAUSE),
    Row(O, "refused: gone", fails(Gone), None, P, FIRST_PAUSE),
    Row(W, "added", lambda m: m.event("ADDED", thing("b", 12), 60.0), Put(thing("b", 12)), W),
    Row(W, "modified", lambda m: m.event("MODIFIED", thing("a", 12), 60.0), Put(thing("a", 12)), W),
    Row(W, "deleted", lambda m: m.event("DELETED", thing("a", 12), 60.0), Drop(thing("a", 12)), W),
    Row(
        W,
        "event at the version",
        lambda m: m.event("DELETED", thing("a", 11), 60.0),
        Drop(thing("a", 11)),
        W,
    ),
    Row(W, "event before the version", lambda m: m.event("ADDED", thing("a", 9), 60.0), None, P, FIRST_PAUSE),
    Row(W, "bookmark", lambda m: m.bookmark("20", 60.0, ends_initial_events=False), Advance("20"), W),
    Row(
        W,
        "bookmark before the version",
        lambda m: m.bookmark("9", 60.0, ends_initial_events=False),
        None,
        P,
        FIRST_PAUSE,
    ),
    Row(W, "ended after its time", lambda m: m.ended(240.0), None, O, OpenWatch("11")),
    Row(W, "ended early", lambda m: m.ended(238.0), None, B, Probe()),
    Row(W, "silent past the read deadline", fails(Timeout), None, L, List()),
    Row(B, "probed: the last version", lambda m: m.probed("11", 61.0), None, O, OpenWatch("11")),
    Row(B, "probed: a later one", lambda m: m.probed("100", 61.0), None, O, OpenWatch("11")),
    Row(B, "probed: the last version, but late", lambda m: m.probed("11", 63.1), None, L, List()),
    Row(B, "probed: an earlier version", lambda m: m.probed("9", 61.0), None, L, List()),
    Row(B, "probed: no version", lambda m: m.probed("", 61.0), None, P, FIRST_PAUSE),
    Row(B, "refused: throttled", fails(Throttled), None, P, FIRST_PAUSE),
    Row(B, "refused: forbidden", fails(Forbidden), None, P, FIRST_PAUSE),
    Row(W, "connection broke", fails(Unavailable), None, P, FIRST_PAUSE),
    Row(W, "error event: gone", error_event(Gone), None, P, FIRST_PAUSE),
    Row(W, "error event: throttled", error_event(Throttled), None, P, FIRST_PAUSE),
    Row(W, "error event: any other", error_event(Unavailable), None, P, FIRST_PAUSE),
    Row(P, "elapsed", lambda m: m.elapsed(), None, B, Probe()),
]


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_transition(row: Row) -> None:
    machine = STARTS[row.state]()
    assert type(machine.state) is row.state

    assert row.do(machine) == row.change
    assert type(machine.state) is row.next
    if row.request is not None:
        assert asks(machine) == named(row.request)


@pytest.mark.parametrize(
    ("begin", "do", "leads_to"),
    [
        (in_stream, fails(Unavailable), List()),
        (in_stream, lambda m: m.ended(60.0), List()),
        (in_stream, error_event(Gone), List()),
        (in_stream, error_event(Throttled), OpenWatch("", initial=True)),
        (in_open, fails(Throttled, 1.0), OpenWatch("10")),
        (in_open, fails(Throttled, 100.0), OpenWatch("10")),
        (in_open, fails(Unavailable, 1.0), Probe()),
        (in_open, fails(Timeout, 1.0), Probe()),
        (in_open, fails(Unavailable, 1.5), List()),
        (in_probe, fails(Throttled), Probe()),
        (in_probe, fails(Throttled, 100.0), Probe()),
        (in_probe, fails(Unavailable), Probe()),
        (in_probe, fails(Unavailable, 61.5), List()),
        (in_probe, lambda m: m.probed("0", 61.0), Probe()),
        (in_probe, fails(Forbidden), List()),
        (in_watch, lambda m: m.event("ADDED", thing("a", 9), 60.0), Probe()),
        (in_watch, lambda m: m.bookmark("9", 60.0, ends_initial_events=False), Probe()),
        (in_open, fails(UnexpectedResponse, 1.0), Probe()),
        (in_open, fails(Gone), List()),
        (in_open, fails(NotFound), List()),
        (in_open, fails(Forbidden), List()),
        (in_watch, fails(Unavailable), Probe()),
        (in_watch, error_event(Throttled), Probe()),
        (in_watch, fails(UnexpectedResponse), List()),
        (in_watch, error_event(Gone), List()),
        (in_watch, error_event(Unavailable), List()),
        (lambda: in_watch(heard=False), lambda m: m.ended(0.9), List()),
        (in_list, fails(Unavailable), List()),
    ],
)
def test_after_a_pause_the_position_is_kept_only_if_it_is_still_good(
    begin: Callable[[], Machine], do: Callable[[Machine], None], leads_to: object
) -> None:
    machine = begin()
    do(machine)
    assert isinstance(machine.state, Pausing)
    machine.elapsed()
    assert asks(machine) == named(leads_to)


@pytest.mark.parametrize(
    ("error", "leads_to"),
    [
        (Throttled("too many requests", code=429), OpenWatch("", initial=True)),
        (Unavailable("connection refused"), OpenWatch("", initial=True)),
        (Unavailable("shutting down", code=503), OpenWatch("", initial=True)),
        (Unavailable("internal error", code=500), List()),
        (Timeout("no answer"), List()),
    ],
    ids=str,
)
def test_a_server_that_turns_a_streaming_list_away_is_not_sent_a_list_instead(
    error: ApiError, leads_to: object
) -> None:
    machine = Machine("apps", SharedKnowledge(), TopRng())
    machine.failed(error, 0.0)
    assert asks(machine) == named(FIRST_PAUSE)
    machine.elapsed()
    assert asks(machine) == named(leads_to)


def test_a_pause_before_the_next_streaming_list_is_as_long_as_the_server_asks() -> None:
    machine = Machine("apps", SharedKnowledge(), TopRng())
    machine.failed(Throttled("too many requests", retry_after=7), 0.0)
    assert asks(machine) == named(Pause(7))


@pytest.mark.regression
@pytest.mark.parametrize("begin", [in_open, in_probe, in_watch])
def test_a_server_that_asks_to_wait_is_not_sent_a_list_afterwards(begin: Callable[[], Machine]) -> None:
    machine, now = begin(), 60.0
    for seconds in (5.0, 30.0, 1.0, 60.0):
        asked = machine.request
        machine.failed(Throttled("slow down", code=429, retry_after=seconds), now)
        pause = machine.request
        assert isinstance(pause, Pause)
        assert pause.seconds >= seconds
        now += pause.seconds
        machine.elapsed()
        assert asks(machine) == named(Probe() if begin is in_watch else asked)
        now += 0.02


@pytest.mark.regression
def test_a_doubt_from_before_the_server_asked_to_wait_is_resolved_afterwards() -> None:
    for version, leads_to in (("100", OpenWatch("11")), ("9", List())):
        machine = in_probe()
        machine.failed(Throttled("slow down", code=429, retry_after=30), 60.5)
        machine.elapsed()
        machine.probed(version, 91.0)
        assert asks(machine) == named(leads_to)
    machine = in_probe()
    machine.failed(Throttled("slow down", code=429, retry_after=30), 60.5)
    machine.elapsed()
    machine.failed(Unavailable("connection refused"), 92.5)
    machine.elapsed()
    assert asks(machine) == named(List())


def test_a_watch_that_could_not_be_opened_is_doubted_from_the_end_of_the_pause_that_the_server_asked_for() -> (
    None
):
    """A server that has just throttled is sent a probe and not a list."""
    machine = Machine("apps", SharedKnowledge(enabled=False), BottomRng())
    machine.listed("10", 0.0)
    machine.failed(Throttled("slow down", code=429, retry_after=30), 1.0)
    machine.elapsed()
    machine.failed(Unavailable("connection refused"), 31.0)
    machine.elapsed()
    assert asks(machine) == named(Probe())


@pytest.mark.regression
def test_a_rewritten_history_that_another_notices_while_the_server_asks_to_wait_is_listed_anew() -> None:
    shared = SharedKnowledge(enabled=False)
    machine = Machine("apps", shared, TopRng())
    machine.listed("10", 0.0)
    machine.failed(Throttled("slow down", code=429, retry_after=30), 1.0)
    shared.rewritten()
    machine.elapsed()
    assert asks(machine) == named(List())


def test_every_state_and_input_without_a_row_is_refused_as_a_drivers_bug() -> None:
    inputs: dict[str, tuple[Callable[[Machine], Any], set[type]]] = {
        "item": (lambda m: m.item(A5), {L}),
        "listed": (lambda m: m.listed("10", 0.0), {L}),
        "opened": (lambda m: m.opened(0.0), {S, O}),
        "event": (lambda m: m.event("ADDED", thing("a", 50), 60.0), {S, W}),
        "bookmark": (lambda m: m.bookmark("50", 60.0, ends_initial_events=False), {S, W}),
        "ended": (lambda m: m.ended(60.0), {S, W}),
        "probed": (lambda m: m.probed("50", 0.0), {B}),
        "failed": (fails(Unavailable), {S, L, O, W, B}),
        "elapsed": (lambda m: m.elapsed(), {P}),
    }
    for do, taken_in in inputs.values():
        for state, begin in STARTS.items():
            if state in taken_in:
                do(begin())
            else:
                with pytest.raises(AssertionError):
                    do(begin())


def test_full_reads_never_ask_for_any_cached_version() -> None:
    machine = Machine("", SharedKnowledge(), TopRng())
    assert asks(machine) == named(OpenWatch("", initial=True))
    machine.opened(0.0)
    machine.bookmark("7", 60.0, ends_initial_events=True)
    machine.error_event(Gone("expired"), 10.0)
    machine.elapsed()
    assert asks(machine) == named(OpenWatch("", initial=True))


def test_objects_deleted_during_the_initial_stream_are_not_in_the_replacement() -> None:
    machine = in_stream()
    machine.event("ADDED", thing("b", 6), 60.0)
    machine.event("DELETED", thing("a", 8), 60.0)
    machine.event("MODIFIED", thing("b", 9), 60.0)
    assert machine.bookmark("9", 60.0, ends_initial_events=True) == Full({Key("", "b"): thing("b", 9)}, "9")


def test_the_initial_stream_goes_on_as_the_watch() -> None:
    machine = in_stream()
    machine.bookmark("7", 60.0, ends_initial_events=True)
    assert machine.event("ADDED", thing("b", 8), 60.0) == Put(thing("b", 8))
    machine.ended(300.0)
    assert asks(machine) == named(OpenWatch("8"))


def test_nothing_of_a_broken_full_read_reaches_the_next_one() -> None:
    machine = in_stream()
    machine.failed(Unavailable("broke"), 1.0)
    machine.elapsed()
    machine.item(thing("b", 6))
    assert machine.listed("7", 2.0) == Full({Key("", "b"): thing("b", 6)}, "7")


def test_a_list_that_lost_its_snapshot_begins_anew() -> None:
    machine = in_list()
    machine.restarted()
    machine.item(thing("b", 6))
    assert machine.listed("7", 2.0) == Full({Key("", "b"): thing("b", 6)}, "7")


def test_a_server_that_refuses_streaming_lists_is_not_asked_again() -> None:
    streaming = SharedKnowledge()
    machine = in_stream(streaming)
    machine.failed(Invalid("unknown option"), 1.0)
    machine.listed("7", 2.0)
    assert not streaming.offered_by("apps")
    assert streaming.offered_by("another-aggregated-server")
    machine.failed(Gone("expired"), 3.0)
    machine.elapsed()
    assert asks(machine) == named(List())


@pytest.mark.regression
def test_a_server_that_does_not_know_streaming_lists_is_found_out_by_its_first_bookmark() -> None:
    streaming = SharedKnowledge()
    machine = in_stream(streaming)
    machine.bookmark("7", 60.0, ends_initial_events=False)
    assert asks(machine) == named(List())
    machine.listed("7", 61.0)
    assert not streaming.offered_by("apps")


def test_a_request_that_is_invalid_as_a_list_too_says_nothing_about_streaming_lists() -> None:
    streaming = SharedKnowledge()
    machine = in_stream(streaming)
    machine.failed(Invalid("field label not supported"), 1.0)
    machine.failed(Invalid("field label not supported"), 2.0)
    machine.elapsed()
    assert asks(machine) == named(OpenWatch("", initial=True))


def test_a_streaming_list_that_broke_is_tried_again_in_the_next_round() -> None:
    machine = in_stream()
    machine.failed(Unavailable("broke"), 1.0)
    machine.elapsed()
    machine.listed("7", 2.0)
    machine.failed(Gone("expired"), 3.0)
    machine.elapsed()
    assert asks(machine) == named(OpenWatch("", initial=True))


def test_bookmarks_move_the_position_from_which_a_watch_resumes() -> None:
    machine = in_watch()
    machine.bookmark("99", 60.0, ends_initial_events=False)
    machine.failed(Unavailable("reset"), 60.0)
    machine.elapsed()
    machine.probed("100", 62.0)
    assert asks(machine) == named(OpenWatch("99"))


def test_objects_of_an_initial_stream_do_not_move_the_position() -> None:
    """They are unordered, so an object with a high version says nothing about the others."""
    machine = in_stream()
    machine.event("ADDED", thing("b", 50), 60.0)
    assert machine.resource_version == ""
    machine.failed(Unavailable("broke"), 61.0)
    machine.elapsed()
    assert asks(machine) == named(List())
    machine = in_stream()
    machine.event("ADDED", thing("b", 50), 60.0)
    machine.bookmark("60", 60.0, ends_initial_events=True)
    assert machine.resource_version == "60"


def test_stale_events_are_counted_and_do_not_move_the_position() -> None:
    machine = in_watch()
    machine.event("MODIFIED", thing("a", 9), 60.0)
    assert machine.stale_events == 1
    assert machine.resource_version == "11"


@pytest.mark.regression
@pytest.mark.parametrize("odd", ["no number", "9/9", "\u0663\u0663"])
def test_a_version_that_is_no_number_makes_nobody_believe_in_a_rewritten_history(odd: str) -> None:
    shared = SharedKnowledge(enabled=False)
    machine = Machine("apps", shared, TopRng())
    machine.listed("10", 0.0)
    machine.opened(0.0)
    machine.bookmark(odd, 1.0, ends_initial_events=False)
    machine.failed(Timeout("nothing received"), 65.0)
    assert isinstance(machine.state, Listing)
    machine.item(A5)
    assert machine.listed("11", 66.0) == Full({A5.key: A5}, "11", rewound=False)
    assert (shared.rewrites, machine.rewinds) == (0, 0)


@pytest.mark.parametrize("streaming", [True, False])
def test_a_full_read_at_an_earlier_version_says_that_the_history_was_rewritten(streaming: bool) -> None:
    machine = Machine("apps", SharedKnowledge(enabled=streaming), TopRng())
    for version, rewound in (("1000", False), ("999", True), ("2000", False)):
        if streaming:
            machine.opened(0.0)
            change = machine.bookmark(version, 60.0, ends_initial_events=True)
        else:
            change = machine.listed(version, 60.0)
        assert change == Full({}, version, rewound)
        assert machine.resource_version == version
        machine.start()
    assert machine.rewinds == 1


@pytest.mark.regression
def test_a_question_stays_open_over_probes_that_fail_until_only_a_full_read_can_answer_it() -> None:
    machine = in_probe()
    machine.failed(Throttled("slow down"), 60.1)
    assert asks(machine) == named(FIRST_PAUSE)
    machine.elapsed()
    assert asks(machine) == named(Probe())
    machine.failed(Unavailable("refused"), 61.8)
    machine.elapsed()
    assert asks(machine) == named(List())


@pytest.mark.regression
def test_a_watch_that_ends_before_the_time_it_was_opened_for_is_a_reason_to_ask_however_old_it_is() -> None:
    for end, request in ((470.0, Probe()), (479.0, OpenWatch("10"))):
        machine = in_open()
        machine.opened(0.0, lasts=480.0)
        machine.ended(end)
        assert asks(machine) == named(request)


def test_a_watch_whose_response_a_proxy_held_back_until_its_end_has_not_ended_early() -> None:
    machine = in_open()
    machine.opened(240.5, lasts=-0.5)
    machine.ended(240.5)
    assert asks(machine) == named(OpenWatch("10"))


def rewritten_elsewhere(begin: Callable[[SharedKnowledge], Machine]) -> Machine:
    shared = SharedKnowledge()
    machine = begin(shared)
    shared.rewritten()
    return machine


def followed(shared: SharedKnowledge) -> Machine:
    machine = in_stream(shared)
    machine.bookmark("10", 60.0, ends_initial_events=True)
    return machine


def asking(shared: SharedKnowledge) -> Machine:
    machine = followed(shared)
    machine.ended(61.0)
    return machine


@pytest.mark.regression
@pytest.mark.parametrize(
    ("begin", "do"),
    [
        (followed, lambda m: m.event("ADDED", thing("b", 50), 62.0)),
        (followed, lambda m: m.bookmark("50", 62.0, ends_initial_events=False)),
        (followed, lambda m: m.ended(240.0)),
        (followed, lambda m: m.ended(62.0)),
        (asking, lambda m: m.probed("50", 62.0)),
    ],
)
def test_a_restore_that_anybody_noticed_has_everything_read_again_at_the_next_sign(
    begin: Callable[[SharedKnowledge], Machine], do: Callable[[Machine], Any]
) -> None:
    machine = rewritten_elsewhere(begin)
    assert do(machine) is None
    if isinstance(machine.state, Pausing):
        machine.elapsed()
    assert asks(machine) == named(OpenWatch("", initial=True))
    machine.opened(63.0)
    assert machine.bookmark("51", 64.0, ends_initial_events=True) == Full({}, "51", rewound=True)
    machine.event("ADDED", thing("b", 52), 65.0)
    machine.ended(310.0)
    assert asks(machine) == named(OpenWatch("52"))


@pytest.mark.regression
def test_each_restore_is_told_to_the_others_once_whoever_notices_it() -> None:
    shared = SharedKnowledge()
    first, second = asking(shared), asking(shared)
    for machine in (first, second):
        machine.probed("9", 62.0)
        machine.opened(62.0)
        machine.bookmark("9", 62.0, ends_initial_events=True)
        machine.ended(400.0)
        assert asks(machine) == named(OpenWatch("9"))
    assert shared.rewrites == 1


def test_a_restore_that_a_probe_shows_is_told_to_the_others_at_once() -> None:
    """Not when the list that follows is complete: it may take long."""
    shared = SharedKnowledge()
    asking(shared).probed("9", 62.0)
    assert shared.rewrites == 1


@pytest.mark.regression
def test_replays_that_a_probe_has_cleared_are_dropped_until_something_new_comes() -> None:
    machine = in_watch()
    machine.event("ADDED", thing("a", 9), 60.0)
    machine.elapsed()
    machine.probed("12", 61.0)
    machine.opened(62.0)
    machine.event("ADDED", thing("a", 9), 62.0)
    machine.bookmark("10", 62.0, ends_initial_events=False)
    assert isinstance(machine.state, Watching)
    assert machine.event("ADDED", thing("b", 12), 63.0) == Put(thing("b", 12))
    machine.event("ADDED", thing("a", 9), 64.0)
    assert isinstance(machine.state, Pausing)
    assert machine.stale_events == 4


def test_versions_compare_as_numbers() -> None:
    machine = in_watch()
    machine.bookmark("99", 60.0, ends_initial_events=False)
    assert machine.event("ADDED", thing("b", 100), 60.0) == Put(thing("b", 100))


def test_a_short_silent_watch_is_a_failure_and_a_short_busy_one_is_not() -> None:
    silent, busy, long = in_watch(heard=False), in_watch(), in_watch(heard=False)
    silent.ended(0.5)
    busy.ended(0.5)
    long.ended(1.0)
    assert isinstance(silent.state, Pausing)
    assert asks(busy) == asks(long) == named(Probe())


def test_a_watch_that_times_out_at_once_is_a_failure_and_one_that_falls_silent_later_is_not() -> None:
    at_once, later = in_watch(heard=False), in_watch(heard=False)
    at_once.failed(Timeout("nothing was received"), 0.5)
    later.failed(Timeout("nothing was received"), 60.0)
    assert isinstance(at_once.state, Pausing)
    assert not isinstance(later.state, Pausing)


def test_pauses_grow_to_the_cap_and_start_over_after_two_quiet_minutes() -> None:
    machine = in_list()
    pauses = []
    now = 0.0
    for _ in range(8):
        machine.failed(Unavailable("down"), now)
        assert isinstance(machine.request, Pause)
        pauses.append(machine.request.seconds)
        now += machine.request.seconds
        machine.elapsed()
    assert pauses == pytest.approx([1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 60.0, 60.0])  # base + 100 % jitter

    machine.failed(Unavailable("down"), now + 121.0)
    assert asks(machine) == named(FIRST_PAUSE)


def test_a_pause_is_as_long_as_the_server_asks_up_to_a_minute() -> None:
    for asked, pause in ((20.0, 20.0), (0.0, 1.6), (3600.0, 60.0)):
        machine = in_open()
        machine.failed(Throttled("slow down", code=429, retry_after=asked), 0.0)
        assert asks(machine) == named(Pause(pause))


def test_a_kind_that_is_not_installed_is_looked_for_at_least_every_ten_seconds() -> None:
    machine = in_list()
    for turn in range(10):
        machine.failed(NotFound("no such kind"), turn * 10.0)
        assert isinstance(machine.request, Pause)
        assert machine.request.seconds <= 10.0
        machine.elapsed()
    assert isinstance(machine.last_error, NotFound)


def test_the_last_error_is_forgotten_when_listing_or_watching_works_again() -> None:
    machine = in_open()
    machine.failed(Unavailable("down"), 0.0)
    assert isinstance(machine.last_error, Unavailable)
    machine.elapsed()
    machine.probed("10", 2.0)
    machine.opened(2.0)
    assert machine.last_error is None


@pytest.mark.regression
def test_a_server_without_streaming_lists_is_not_a_problem_while_the_list_is_read_in_pages() -> None:
    machine = in_stream()
    machine.failed(Invalid("unknown option"), 0.0)
    assert asks(machine) == named(List())
    assert machine.last_error is None
    machine.failed(Invalid("field label not supported"), 1.0)
    assert isinstance(machine.last_error, Invalid)
