"""What a client makes of bytes, however they are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.runtime.http1 import MAX_HEAD, Answer, Malformed, encode_request

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\n0A;why=not\r\n, cruel ke\r\n3\r\neps\r\n0\r\nTrailer: x\r\n\r\n"
)
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + PLAIN
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"


def read(*chunks: bytes, method: str = "GET", closed: bool = False) -> Answer:
    answer = Answer(method)
    for chunk in chunks:
        answer.feed(chunk)
    if closed:
        answer.finish()
    return answer


def body(answer: Answer) -> bytes:
    return b"".join(answer.pieces)


@given(
    st.sampled_from([(PLAIN, b"hello"), (CHUNKED, b"hello, cruel keeps"), (INTERIM, b"hello"), (EMPTY, b"")]),
    st.lists(st.integers(0, 200)),
)
def test_the_answer_is_the_same_however_its_bytes_are_cut(case: tuple[bytes, bytes], cuts: list[int]) -> None:
    data, expected = case
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    answer = read(*(data[begin:end] for begin, end in pairwise(edges)))
    assert (answer.ended, answer.reusable, body(answer)) == (True, True, expected)


def test_headers_have_lower_case_names_and_repeated_ones_are_joined() -> None:
    answer = read(b"HTTP/1.1 429 Slow Down\r\nWARNING: a\r\nWarning:  b \r\nContent-Length: 0\r\n\r\n")
    assert answer.status == 429
    assert answer.headers == {"warning": "a, b", "content-length": "0"}


def test_without_a_length_the_answer_ends_with_the_connection_and_that_is_not_reused() -> None:
    answer = read(b"HTTP/1.1 200 OK\r\n\r\nhel", b"lo")
    assert not answer.ended
    answer.finish()
    assert (answer.ended, answer.reusable, body(answer)) == (True, False, b"hello")


@pytest.mark.parametrize(
    ("head", "method"),
    [(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HEAD"), (b"HTTP/1.1 200 OK\r\n\r\n", "CONNECT")],
)
def test_answers_to_head_and_connect_have_no_body(head: bytes, method: str) -> None:
    assert read(head, method=method).ended


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nConnection: close", b"HTTP/1.0 200 OK"])
def test_a_server_that_will_close_is_not_asked_again(head: bytes) -> None:
    answer = read(head + b"\r\nContent-Length: 0\r\n\r\n")
    assert answer.ended
    assert not answer.reusable


@pytest.mark.parametrize("part", [b"", PLAIN[:10], PLAIN[:-1], CHUNKED[:-1], CHUNKED[:60]])
def test_an_answer_that_ends_early_is_an_error(part: bytes) -> None:
    with pytest.raises(Malformed):
        read(part, closed=True)


@pytest.mark.parametrize(
    "data",
    [
        b"\x15\x03\x01\x00\x02\x02\x28\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nname : x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello!\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * MAX_HEAD,
        PLAIN + b"HTTP/1.1 200 OK\r\n",
    ],
)
def test_what_is_no_answer_is_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        read(data)


def test_a_request_says_how_long_its_body_is() -> None:
    assert encode_request("PATCH", "/a?b=c", "k:6443", {"Accept": "x"}, b"{}") == (
        b"PATCH /a?b=c HTTP/1.1\r\nHost: k:6443\r\nAccept: x\r\nContent-Length: 2\r\n\r\n{}"
    )
    assert b"Content-Length: 0\r\n" in encode_request("POST", "/", "k", {}, None)
    assert b"Content-Length" not in encode_request("GET", "/", "k", {}, None)


@pytest.mark.parametrize(
    ("target", "headers"),
    [("/a b\r\nX: y", {}), ("/", {"Authorization": "x\r\nX: y"}), ("/", {"A\nB": "x"}), ("/", {"A": "\r"})],
)
def test_nothing_in_a_request_can_begin_another_line(target: str, headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="line break"):
        encode_request("GET", target, "k", headers, None)
