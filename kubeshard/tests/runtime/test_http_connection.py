"""The state machine of an HTTP connection, without sockets and without waiting."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.runtime.asgi import Limits
from kubeshard.runtime.http_connection import (
    BUFFERED,
    Aborted,
    Body,
    Closed,
    HalfClosed,
    Head,
    Heads,
    HttpConnection,
    Idle,
    Refused,
    Request,
    Trailers,
)

LIMITS = Limits(header_timeout=5, body_timeout=10, keep_alive=120, max_header_bytes=1000, max_pipelined=4)
MANY = Limits(max_pipelined=1000)

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: x\r\n"
SIZED = POST + b"content-length: 5\r\n\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
EXPECTING = POST + b"content-length: 5\r\nexpect: 100-continue\r\n\r\n"


def connection(*received: bytes, limits: Limits = LIMITS, heads: Heads | None = None) -> HttpConnection:
    http = HttpConnection(limits, 0, heads)
    for each in received:
        http.receive(each, 0)
    return http


def written(http: HttpConnection) -> bytes:
    out = b"".join(http.out)
    http.out.clear()
    return out


def state_of(http: HttpConnection) -> type[object]:
    return type(http.client)


def reads(http: HttpConnection) -> bool:
    return http.reading


def statuses(out: bytes) -> list[int]:
    return [int(line[9:12]) for line in out.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


def answer(http: HttpConnection, body: bytes = b"", *, now: float = 0, status: int = 200) -> bytes:
    """Answers the first request."""
    request = http.due[0]
    http.respond(request, status, [(b"content-length", b"%d" % len(body))])
    http.send(request, body, False, now)
    return written(http)


def served(reads: list[bytes], heads: Heads | None = None) -> tuple[list[Any], bytes, type]:
    """The requests, what is written, and how it ends, with an application that returns each complete body."""
    http, requests, out = connection(limits=MANY, heads=heads), [], b""
    for read in reads:
        http.receive(read, 0)
        while http.due and http.due[0].part != "some":
            request = http.due[0]
            taken = http.take(request)
            assert taken is not None
            head = request.head
            requests.append((head.method, head.path, head.query, head.headers, taken[0]))
            answer_with = [(b"content-length", b"%d" % len(taken[0]))]
            http.respond(request, 200, answer_with)
            http.send(request, taken[0], False, 0)
        out += written(http)
    return requests, out, state_of(http)


def cut(data: bytes, at: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(each % (len(data) + 1) for each in at)})
    return [data[start:end] for start, end in pairwise(places)]


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    method = draw(st.sampled_from([b"GET", b"POST", b"HEAD", b"PUT"]))
    lines = [b"%b /a%%20b?c=d HTTP/1.%d" % (method, draw(st.sampled_from([1, 1, 1, 0]))), b"Host: x"]
    lines += draw(
        st.lists(st.sampled_from([b"A: b", b"Expect: 100-continue", b"Connection: close"]), max_size=2)
    )
    parts = draw(st.lists(st.binary(min_size=1, max_size=20), max_size=3))
    if draw(st.booleans()):
        lines.append(b"content-length: %d" % sum(map(len, parts)))
        body = b"".join(parts)
    else:
        lines.append(b"transfer-encoding: chunked")
        trailers = draw(st.sampled_from([b"", b"t: u\r\n"]))
        body = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in parts) + b"0\r\n" + trailers + b"\r\n"
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


CUTS = st.lists(st.integers(0, 2000), max_size=8)


@given(st.lists(requests(), min_size=1, max_size=4), CUTS)
def test_the_same_bytes_are_the_same_requests_and_responses_however_they_arrive(
    sent: list[bytes], at: list[int]
) -> None:
    whole, heads = b"".join(sent), Heads()
    expected = served([whole])
    assert served(cut(whole, at)) == served([whole[i : i + 1] for i in range(len(whole))]) == expected
    # With heads that are remembered from one connection to the next, too, and with one request in each read.
    assert [served(sent, heads) for _ in range(2)] == [expected, expected]


LINES = st.tuples(
    st.sampled_from([b"GET", b"POST", b"PATCH", b"HEAD", b"CONNECT", b"get", b"G T", b"", b"\r\nGET"]),
    st.one_of(
        st.text("/a-._~%4!$&'()*+,;=:@?#[]{}|^ \\\"<>\x7f\x00\n\r\u00e4*", max_size=12).map(
            lambda text: b"/" + text.encode("latin-1")
        ),
        st.sampled_from([b"", b"*", b"a", b"http://x/a?b", b"x:1", b"/?", b"//?/?", b"/" + b"x" * 3000]),
    ),
    st.sampled_from([b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"http/1.1", b"HTTP/1.1 ", b"", b"HTTP/1.1\n"]),
).map(b" ".join)


@given(LINES, requests(), requests())
def test_header_fields_that_are_known_mean_the_same_behind_another_request_line(
    line: bytes, known: bytes, other: bytes
) -> None:
    heads = Heads()
    for sent in (known, known, other):
        alike = line + sent[sent.index(b"\r\n") :]
        assert served([alike], heads) == served([alike])
        assert served([sent], heads) == served([sent])


@given(requests(), CUTS, st.integers(0, 500), st.binary(max_size=3))
def test_of_spoilt_bytes_the_client_gets_the_same_responses_however_they_arrive(
    sent: bytes, at: list[int], where: int, spoilt: bytes
) -> None:
    where %= len(sent)
    whole = GET + sent[:where] + spoilt + sent[where + len(spoilt) :] + GET
    _, out, _ = expected = served([whole])
    assert served(cut(whole, at)) == expected
    assert set(statuses(out)) <= {100, 200, 400}
    assert 400 not in statuses(out)[:-1]


STATES: dict[type, list[bytes]] = {
    Idle: [b"", GET, SIZED + b"hello", CHUNKED + b"0\r\n\r\n"],
    Head: [b"G", GET[:-1], GET + b"POST"],
    Body: [SIZED, SIZED + b"hell", CHUNKED, CHUNKED + b"5\r\nhel"],
    Trailers: [CHUNKED + b"5\r\n", CHUNKED + b"0\r\n", CHUNKED + b"0\r\nt: u\r\n"],
}
SENT = [(state, each) for state, sent in STATES.items() for each in sent]
WITHIN: dict[type, int] = {Idle: 120, Head: 5, Body: 10, Trailers: 10}


@pytest.mark.parametrize(("state", "sent"), SENT)
def test_what_a_client_owes_is_known_after_any_bytes_and_each_state_has_its_time(
    state: type, sent: bytes
) -> None:
    http = connection(sent)
    assert state_of(http) is state
    if state is Idle and sent:
        assert http.wake_at == math.inf  # it is our turn
        answer(http, now=3)
        assert http.wake_at == 123
        return
    assert http.wake_at == WITHIN[state]
    http.wake(WITHIN[state] - 0.1)
    assert state_of(http) is state
    http.wake(WITHIN[state])
    assert state_of(http) is (Closed if state is Idle else Aborted)
    assert (http.wake_at, http.reading, written(http)) == (math.inf, False, b"")


@pytest.mark.parametrize(
    ("sent", "more"), [(b"G", b"E"), (SIZED, b"h"), (CHUNKED, b"5\r\nh"), (CHUNKED, b"0\r\n")]
)
def test_more_bytes_of_the_same_part_give_a_client_no_more_time(sent: bytes, more: bytes) -> None:
    http = connection(sent)
    deadline = http.wake_at
    http.receive(more, 1)
    assert http.wake_at == deadline


@pytest.mark.parametrize(("state", "sent"), SENT)
def test_after_its_half_is_closed_a_client_gets_the_responses_to_complete_requests(
    state: type, sent: bytes
) -> None:
    http = connection(GET, sent)
    http.end()
    if issubclass(state, Body):
        assert state_of(http) is Closed
        return
    assert state_of(http) is HalfClosed
    http.receive(GET, 0)
    count = len(http.due)
    for left in range(count, 0, -1):
        assert (b"connection: close" in answer(http)) is (left == 1)
    assert state_of(http) is Closed
    empty = connection()
    empty.end()
    assert state_of(empty) is Closed


@pytest.mark.parametrize(("state", "sent"), SENT)
def test_a_connection_that_is_drained_ends_with_the_responses_that_are_due(state: type, sent: bytes) -> None:
    http = connection(sent)
    due = len(http.due)
    http.drain()
    for _ in range(due):
        assert b"connection: close" in answer(http)
    assert state_of(http) is Closed


REFUSED = [
    (b"\x00\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n", 400),
    (b"POST /\xff HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    (b"CONNECT x:1 HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    (POST + b"connection: upgrade\r\nupgrade: h2c\r\ncontent-length: 5\r\n\r\nhello", 400),
    (POST + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n", 400),
    (CHUNKED + b"no length\r\n", 400),
    (b"GET /" + b"x" * 1000 + b" HTTP/1.1\r\nhost: x\r\n\r\n", 431),
    (POST + b"x: " + b"y" * 1000, 431),
    (POST + b"x: y\r\n" * 200 + b"\r\n", 431),
]


@pytest.mark.parametrize("due", [0, 1, 2])
@pytest.mark.parametrize(("sent", "status"), REFUSED)
def test_a_refusal_follows_the_responses_that_are_due(sent: bytes, status: int, due: int) -> None:
    http = connection(*[GET] * due, sent)
    assert len(http.due) == due
    if due:
        assert state_of(http) is Refused
        assert (http.reading, http.wake_at, http.out) == (False, math.inf, [])
    http.receive(GET, 0)
    out = [*(answer(http) for _ in range(due)), written(http)]
    assert statuses(b"".join(out)) == [200] * due + [status]
    assert state_of(http) is Closed


def test_an_invalid_body_is_refused_unless_its_response_has_begun() -> None:
    for begun in (False, True):
        http = connection(CHUNKED)
        request = http.due[0]
        if begun:
            http.respond(request, 200, [])
        written(http)
        http.receive(b"no length\r\n", 0)
        assert statuses(written(http)) == ([] if begun else [400])
        assert state_of(http) is Closed
        with pytest.raises(EOFError):
            http.take(request)
        http.respond(request, 200, [])
        http.send(request, b"late", False, 0)
        assert http.out == []


def test_what_has_been_read_with_something_else_does_not_count_to_a_head() -> None:
    large = POST + b"content-length: 60000\r\n\r\n" + b"x" * 60_000
    http = connection(large + POST, b"x: y\r\n\r\n")
    assert len(http.due) == 2
    http = connection(large + POST, b"x: " + b"y" * 990, b"y" * 20)
    answer(http)
    assert state_of(http) is Closed


@pytest.mark.parametrize("at_once", [True, False])
def test_trailers_are_dropped_and_limited(at_once: bool) -> None:
    def sent(trailers: bytes) -> HttpConnection:
        last = b"0\r\n", trailers
        return connection(CHUNKED, *([b"".join(last)] if at_once else last))

    http = sent(b"authorization: x\r\n\r\n")
    assert {name for name, _ in http.due[0].head.headers} == {b"host", b"transfer-encoding"}
    if not at_once:  # otherwise the size of a read limits them
        assert statuses(written(sent(b"t: " + b"u" * 1000))) == [431]


def test_what_follows_a_request_for_an_upgrade_is_a_request() -> None:
    upgrade = POST + b"connection: upgrade\r\nupgrade: h2c\r\n"
    http = connection((upgrade + b"\r\n") * 2 + GET)
    assert [each.head.method for each in http.due] == [b"POST", b"POST", b"GET"]


def test_what_follows_the_last_request_does_not_make_it_invalid() -> None:
    for behind in (GET, b"\r\n", b"\x00"):
        http = connection(GET.replace(b"host", b"connection: close\r\nhost") + behind)
        assert statuses(answer(http)) == [200]
        assert (state_of(http), http.out) == (Closed, [])


def test_more_requests_than_may_be_due_are_refused() -> None:
    http = connection(GET * 4)
    assert len(http.due) == 4
    assert state_of(http) is Idle
    http.receive(GET, 0)
    assert statuses(b"".join([*(answer(http) for _ in range(4)), written(http)])) == [200] * 4 + [400]


def test_a_slow_application_stops_its_client() -> None:
    http = connection(SIZED.replace(b"5", b"1000000"))
    request = http.due[0]
    assert reads(http)
    http.receive(b"x" * (BUFFERED + 1), 0)
    assert not reads(http)
    assert http.take(request) == (b"x" * (BUFFERED + 1), True)
    assert reads(http)
    assert http.take(request) is None
    http = connection(GET)
    assert reads(http)  # it may leave
    http.receive(GET, 0)
    assert not reads(http)
    assert http.take(http.due[0]) == (b"", False)
    assert not reads(http)
    assert http.take(http.due[0]) is None  # it waits for the end of its client
    assert reads(http)
    http.receive(SIZED.replace(b"5", b"1000000") + b"x" * (BUFFERED + 1), 0)
    assert not reads(http)


def test_a_body_is_taken_in_parts_and_its_end_once() -> None:
    http = connection(SIZED)
    request = http.due[0]
    assert http.take(request) is None
    http.receive(b"hel", 0)
    assert http.take(request) == (b"hel", True)
    http.receive(b"lo", 0)
    assert http.take(request) == (b"lo", False)
    assert http.take(request) is None
    http.end()
    with pytest.raises(EOFError):
        http.take(request)
    assert statuses(answer(http)) == [200]


def test_a_body_that_arrives_after_its_response_is_dropped() -> None:
    http = connection(SIZED)
    request = http.due[0]
    answer(http)
    assert http.wake_at == 10
    http.receive(b"hello" + GET, 1)
    assert request.body == b""
    assert [each.head.method for each in http.due] == [b"GET"]


@pytest.mark.parametrize(("version", "asked"), [(b"1.1", True), (b"1.0", False)])
def test_a_client_is_asked_for_its_body_once_and_not_after_the_response_has_begun(
    version: bytes, asked: bool
) -> None:
    http = connection(EXPECTING.replace(b"1.1", version))
    for _ in range(2):
        assert http.take(http.due[0]) is None
    assert statuses(written(http)) == [100] * asked
    http = connection(EXPECTING.replace(b"1.1", version))
    http.respond(http.due[0], 200, [])
    assert http.take(http.due[0]) is None
    assert statuses(written(http)) == [200]


@pytest.mark.parametrize(
    ("request_line", "status", "headers", "parts", "framed"),
    [
        (b"GET / HTTP/1.1", 200, [(b"content-length", b"2")], [b"ab"], b"content-length: 2\r\n\r\nab"),
        (b"GET / HTTP/1.1", 200, [], [b"a", b"", b"b"], b"\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n"),
        (
            b"GET / HTTP/1.1",
            200,
            [(b"transfer-encoding", b"chunked")],
            [b"a"],
            b": chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        ),
        (b"GET / HTTP/1.0", 200, [], [b"a", b"b"], b"connection: close\r\n\r\nab"),
        (b"HEAD / HTTP/1.1", 200, [(b"content-length", b"2")], [b"ab"], b"content-length: 2\r\n\r\n"),
        (b"HEAD / HTTP/1.1", 200, [], [b"ab"], b"\r\n\r\n"),
        (b"GET / HTTP/1.1", 204, [], [b""], b"204 No Content\r\n\r\n"),
        (b"GET / HTTP/1.1", 304, [(b"content-length", b"2")], [b""], b"content-length: 2\r\n\r\n"),
        (
            b"GET / HTTP/1.1",
            299,
            [(b"Content-Length", b"0")],
            [b""],
            b"HTTP/1.1 299 \r\ncontent-length: 0\r\n\r\n",
        ),
        (b"GET / HTTP/1.1", 200, [(b"connection", b"x, Close")], [b""], b"x, Close\r\n0\r\n\r\n"),
    ],
)
def test_a_client_knows_where_a_response_ends(
    request_line: bytes, status: int, headers: list[tuple[bytes, bytes]], parts: list[bytes], framed: bytes
) -> None:
    http = connection(request_line + b"\r\nhost: x\r\n\r\n")
    request = http.due[0]
    http.respond(request, status, headers)
    for number, part in enumerate(parts, 1):
        http.send(request, part, number < len(parts), 0)
    out = written(http)
    assert out.replace(b"transfer-encoding: chunked\r\n\r\n0", b"0").endswith(framed)
    kept = b"connection: " not in out
    assert state_of(http) is (Idle if kept else Closed)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda http, it: http.send(it, b"", False, 0),
        lambda http, it: [http.respond(it, 200, []) for _ in range(2)],
        lambda http, it: http.respond(it, 200, [(b"a", b"b\r\nc: d")]),
        lambda http, it: http.respond(it, 200, [(b"a b", b"c")]),
        lambda http, it: [http.respond(it, 200, [(b"content-length", b"2")]), http.send(it, b"a", False, 0)],
        lambda http, it: [http.respond(it, 200, [(b"content-length", b"2")]), http.send(it, b"abc", True, 0)],
        lambda http, it: [
            http.respond(it, 204, []),
            http.send(it, b"", False, 0),
            http.send(it, b"", False, 0),
        ],
    ],
    ids=["no head", "two heads", "a line break", "a space in a name", "too short", "too long", "two ends"],
)
def test_a_response_that_would_mislead_its_client_is_an_error(wrong: Any) -> None:
    http = connection(GET)
    with pytest.raises(RuntimeError):
        wrong(http, http.due[0])


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
def test_a_failure_is_a_500_if_nothing_else_was_said_and_the_end_in_any_case(method: bytes) -> None:
    for begun in (False, True):
        http = connection(GET.replace(b"GET", method))
        request = http.due[0]
        if begun:
            http.respond(request, 200, [(b"content-length", b"2")])
        http.fail(request)
        out = written(http)
        assert statuses(out) == [200 if begun else 500]
        assert out.endswith(b"Internal Server Error") is (not begun and method == b"GET")
        assert state_of(http) is Closed


def test_a_connection_waits_for_its_client_unless_a_response_is_due() -> None:
    http = connection()
    assert http.waiting_since == 0
    http.receive(GET, 1)
    assert http.waiting_since == math.inf
    answer(http, now=2)
    assert http.waiting_since == 2
    http.receive(GET + b"POST", 3)
    assert http.waiting_since == 3  # it owes the rest of that
    http.end()
    assert http.waiting_since == math.inf
    answer(http, now=4)
    assert http.waiting_since == 3  # it may not read what was written


def test_a_head_is_remembered_only_if_its_request_arrived_alone_and_is_as_long() -> None:
    def arrived(*reads: bytes) -> Request:
        http = connection(*reads, limits=MANY, heads=heads)
        return http.due[-1]

    heads = Heads()
    for apart in (GET + GET, CHUNKED + b"0\r\n\r\n", SIZED, GET.replace(b"/ ", b"/%b " % (b"x" * 2048))):
        arrived(apart)
    arrived(SIZED, b"hello")
    assert not heads
    head = arrived(SIZED + b"hello").head
    again = arrived(SIZED + b"world")
    assert again.head is head
    assert (again.body, again.part, again.keep_alive) == (b"world", "all", True)
    assert arrived(SIZED + b"hell").part == "some"
    assert arrived(SIZED + b"hello" + GET).head.method == b"GET"
    arrived(GET)
    assert statuses(written(connection(b"POST / HT", GET, heads=heads))) == [
        400
    ]  # the rest of a head is no head
    for number in range(2 * Heads.MOST):
        arrived(GET.replace(b"x", b"%d" % number))
    assert len(heads) <= Heads.MOST


PIECES = [
    GET,
    SIZED,
    CHUNKED,
    EXPECTING,
    b"hello",
    b"5\r\nhello\r\n",
    b"0\r\n",
    b"\r\n",
    b"POST / HT",
    b"x" * 70_000,
    b"\x00",
]
APPLICATION = ["take", "respond", "part", "last", "answer", "fail"]
STEPS = st.one_of(
    st.tuples(st.just("receive"), st.sampled_from(PIECES)),
    st.tuples(st.sampled_from([*APPLICATION, *APPLICATION, "end", "wake", "drain", "close"]), st.just(b"")),
)


@given(st.lists(STEPS, max_size=40))
def test_in_any_order_of_events_memory_is_bounded_responses_are_whole_and_the_end_is_the_end(
    steps: list[tuple[str, bytes]],
) -> None:
    http, now, running, out = connection(limits=LIMITS, heads=Heads()), 0.0, None, b""
    act: dict[str, Any] = {
        "take": lambda request: http.take(request),
        "respond": lambda request: http.respond(request, 200, []),
        "part": lambda request: http.send(request, b"ab", True, now),
        "last": lambda request: http.send(request, b"ab", False, now),
        "answer": lambda it: (
            http.answer(it, b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab")
            if it in http.due and it.response == "no head yet"
            else None
        ),
        "fail": lambda request: http.fail(request),
    }
    for step, data in steps:
        now += 1
        ended = isinstance(http.client, Closed)
        running = http.due[0] if http.due else running
        if step == "receive" and reads(http):
            http.receive(data, now)
        elif step == "wake":
            now = min(http.wake_at, now + 1000)
            http.wake(now)
        elif step in act and running is not None:
            try:
                act[step](running)
            except (RuntimeError, EOFError):
                http.close()
        elif step in ("end", "drain", "close"):
            getattr(http, step)()
        new = written(http)
        assert not (ended and new)
        out += new
        over = isinstance(http.client, Closed | HalfClosed | Refused)
        assert (http.wake_at == math.inf) is (over or bool(http.due and isinstance(http.client, Idle)))
        assert not (over and not isinstance(http.client, Closed) and not http.due)
        assert not (isinstance(http.client, Closed) and http.due)
        assert len(http.due) <= LIMITS.max_pipelined
        assert all(len(each.body) <= BUFFERED + 70_000 for each in http.due)
    for head in out.split(b"HTTP/1.1 ")[1:-1]:  # each response but the last is whole
        assert head.endswith((b"0\r\n\r\n", b"\r\n\r\nab", b"Continue\r\n\r\n"))
