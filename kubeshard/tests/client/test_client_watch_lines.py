"""A watch turns any line that no API server sends into an ApiError, and nothing else."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.client import watching
from kubeshard.client.listing import ListSplitter
from kubeshard.client.watching import Bookmark, Changed, EventDecoder, Failed, WatchEvent
from kubeshard.core import (
    ApiError,
    ConfigMap,
    Gone,
    KubeObject,
    Unavailable,
    UndecodableObject,
    UnexpectedResponse,
    metadata_only,
)
from kubeshard.core.objects import form_of

pytestmark = pytest.mark.regression

FORM = form_of(ConfigMap)

NO_EVENTS = {
    "an ERROR of null": b'{"type":"ERROR","object":null}',
    "an ERROR of a string": b'{"type":"ERROR","object":"rate limited"}',
    "an ERROR without an object": b'{"type":"ERROR"}',
    "an ERROR with a code that is not a number": b'{"type":"ERROR","object":{"kind":"Status","code":"410"}}',
    "a bookmark of null": b'{"type":"BOOKMARK","object":null}',
    "a bookmark without a version": b'{"type":"BOOKMARK","object":{"kind":"ConfigMap","metadata":{}}}',
    "a bookmark with a number": b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":12}}}',
    "a bookmark at version 0": b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"0"}}}',
    "an unknown type": b'{"type":"RENAMED","object":{"kind":"ConfigMap","metadata":{"name":"a"}}}',
    "a type that is not a string": b'{"type":7,"object":{"kind":"ConfigMap","metadata":{"name":"a"}}}',
    "cut off": b'{"type":"ADDED","object":{"kind":"ConfigMap","metadata":{"na',
    "no JSON": b"<html>502 Bad Gateway</html>",
    "no object": b"[]",
    "nested too deep": b'{"type":"ADDED","object":{"kind":"ConfigMap","x":' + b"[" * 100_000 + b"}}",
    "no UTF-8": b'{"type":"\xff\xfe","object":{"kind":"ConfigMap"}}',
}

NO_OBJECTS = {
    "null": (b"null", None),
    "without a name": (b'{"kind":"ConfigMap","metadata":{"resourceVersion":"7"}}', None),
    "a kind that is a number": (b'{"kind":7,"metadata":{"name":"a","resourceVersion":"7"}}', ("", "a")),
    "labels that are not strings": (
        b'{"kind":"ConfigMap","metadata":{"name":"a","labels":{"x":1},"resourceVersion":"7"}}',
        ("", "a"),
    ),
    "data that is not UTF-8": (
        b'{"kind":"ConfigMap","metadata":{"name":"a","resourceVersion":"7"},"data":{"x":"\xff"}}',
        ("", "a"),
    ),
    "a name that is not UTF-8": (b'{"kind":"ConfigMap","metadata":{"name":"\xff"}}', None),
}


class Picky(KubeObject, version="v1", kind="ConfigMap"):
    data: dict[str, str] | None = None

    def __post_init__(self) -> None:
        if self.data is not None:
            _ = self.data["must"]


def read(line: bytes, form=FORM) -> list[WatchEvent]:
    decoder = EventDecoder(form)
    events = list(decoder.feed(line + b"\n"))
    decoder.finish()
    return events


@pytest.mark.parametrize("line", NO_EVENTS.values(), ids=NO_EVENTS.keys())
def test_a_line_that_is_no_event_is_an_unexpected_response(line: bytes) -> None:
    for form in (FORM, metadata_only(ConfigMap)):
        with pytest.raises(UnexpectedResponse):
            read(line, form)


@pytest.mark.parametrize(("raw", "key"), NO_OBJECTS.values(), ids=NO_OBJECTS.keys())
def test_an_object_that_cannot_be_read_is_an_event_and_keeps_its_name(raw: bytes, key: object) -> None:
    (event,) = read(b'{"type":"MODIFIED","object":' + raw + b"}")
    assert isinstance(event, Failed)
    assert event.type == "MODIFIED"
    assert event.error.key == key


def test_an_error_without_a_code_is_an_internal_error_and_its_reason_still_counts() -> None:
    with pytest.raises(Unavailable) as plain:
        read(b'{"type":"ERROR","object":{"kind":"Status","message":"etcd is gone"}}')
    assert plain.value.code == 500
    with pytest.raises(Gone) as expired:
        read(b'{"type":"ERROR","object":{"kind":"Status","reason":"Expired"}}')
    assert expired.value.code == 500


@pytest.mark.parametrize("asked", [b'"soon"', b"{}", b"-1", b"true", b"null"])
def test_an_error_that_asks_to_wait_in_a_strange_way_is_still_the_error(asked: bytes) -> None:
    with pytest.raises(ApiError) as raised:
        read(b'{"type":"ERROR","object":{"code":429,"details":{"retryAfterSeconds":' + asked + b"}}}")
    assert raised.value.retry_after in (None, 1.0)


def test_a_class_that_raises_anything_makes_its_object_undecodable() -> None:
    line = b'{"type":"ADDED","object":{"kind":"ConfigMap","metadata":{"name":"a"},"data":{}}}'
    (event,) = read(line, form_of(Picky))
    assert isinstance(event, Failed)
    assert "KeyError: 'must'" in str(event.error)

    items = b'{"metadata":{"name":"a"},"data":{}},{"metadata":{"name":"b"},"data":{"must":"1"}}'
    body = b'{"kind":"ConfigMapList","apiVersion":"v1","items":[' + items + b"]}"
    splitter = ListSplitter(form_of(Picky), batch_bytes=10)
    first, second = [*splitter.feed(body), *splitter.finish()]
    assert isinstance(first, UndecodableObject)
    assert isinstance(second, Picky)


def test_a_list_with_an_object_that_is_no_utf8_has_the_others() -> None:
    items = b'{"metadata":{"name":"a"},"data":{"x":"\xff"}},{"metadata":{"name":"b"}}'
    body = b'{"kind":"ConfigMapList","apiVersion":"v1","items":[' + items + b"]}"
    for batch in (10, 1_000_000):
        splitter = ListSplitter(FORM, batch_bytes=batch)
        first, second = [*splitter.feed(body), *splitter.finish()]
        assert isinstance(first, UndecodableObject)
        assert first.key == ("", "a")
        assert second.metadata.name == "b"


def test_a_line_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watching.LONGEST_LINE >= 32 * 1024 * 1024
    monkeypatch.setattr(watching, "LONGEST_LINE", 100_000)
    decoder = EventDecoder(FORM)
    for _ in range(10):
        assert not list(decoder.feed(b"x" * 10_000))
    with pytest.raises(UnexpectedResponse, match="more than 100000 bytes"):
        list(decoder.feed(b"x" * 10_000))


# Anything: bytes, JSON of any shape, and valid events in which something was replaced.
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)
metadata = st.fixed_dictionaries(
    {},
    optional={
        name: st.one_of(st.just("7"), st.just(""), values)
        for name in ("name", "namespace", "resourceVersion", "uid", "labels", "annotations", "finalizers")
    },
)
objects = st.one_of(
    values,
    st.fixed_dictionaries(
        {},
        optional={
            "kind": st.one_of(st.sampled_from(["ConfigMap", "Status", "PartialObjectMetadata"]), values),
            "apiVersion": values,
            "metadata": st.one_of(metadata, values),
            "data": values,
            "code": st.one_of(st.integers(0, 600), values),
            "reason": st.one_of(st.sampled_from(["Expired", "Timeout"]), values),
            "details": st.one_of(st.fixed_dictionaries({"retryAfterSeconds": values}), values),
        },
    ),
)
types = st.one_of(st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]), values)
events = st.fixed_dictionaries({}, optional={"type": types, "object": objects}).map(
    lambda event: json.dumps(event, separators=(",", ":")).encode()
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Returns an event with some of its bytes replaced or removed."""
    line = bytearray(draw(events))
    at = draw(st.integers(0, len(line)))
    line[at : at + draw(st.integers(0, 4))] = draw(st.binary(max_size=4))
    return bytes(line)


any_line = st.one_of(st.binary(max_size=64), events, damaged())


@pytest.mark.long
@given(st.lists(any_line, max_size=4), st.booleans())
def test_whatever_the_lines_are_an_api_error_is_the_worst(lines: list[bytes], only_metadata: bool) -> None:
    form = metadata_only(ConfigMap) if only_metadata else FORM
    decoder = EventDecoder(form)
    try:
        for event in decoder.feed(b"\n".join(lines)):
            match event:
                case Bookmark(version):
                    assert version not in ("", "0")
                case Changed(type_, obj):
                    assert type_ in ("ADDED", "MODIFIED", "DELETED")
                    assert obj.metadata.name
                case Failed(type_, error):
                    assert type_ in ("ADDED", "MODIFIED", "DELETED")
                    assert error.key is None or error.key.name
        decoder.finish()
    except ApiError:
        pass
