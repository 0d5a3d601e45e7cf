import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.client.listing import BATCH_BYTES, ListSplitter
from kubeshard.client.watching import Bookmark, Changed, EventDecoder, Failed
from kubeshard.core import (
    Gone,
    KubeObject,
    ObjectMeta,
    Struct,
    UndecodableObject,
    UnexpectedResponse,
    field,
    metadata_only,
)
from kubeshard.core.objects import form_of


class WidgetSpec(Struct):
    text: str = ""
    parts: tuple[dict[str, str], ...] = ()


class Widget(KubeObject, group="example.com", version="v1"):
    spec: WidgetSpec = field(default_factory=WidgetSpec)


FORM = form_of(Widget)

# A splitter can be confused by strings that look like the structure around them.
texts = st.lists(
    st.sampled_from(["},{", '"', "\\", "]}", '{"metadata":', '"items":[', "ä", "\n", "a"]), max_size=6
).map("".join)
widgets = st.builds(
    lambda name, text, parts: {"metadata": {"name": name}, "spec": {"text": text, "parts": parts}},
    st.text("abc", min_size=1, max_size=3),
    texts,
    st.lists(st.dictionaries(texts, texts, max_size=2) | st.just({"metadata": "x"}), max_size=3),
)


def document(items, *, items_first=False, indent=None, kind="WidgetList", api_version="example.com/v1"):
    meta = {"resourceVersion": "7", "continue": "token"}
    head = {"apiVersion": api_version, "kind": kind, "metadata": meta}
    ordered = {"items": items, **head} if items_first else {**head, "items": items}
    separators = None if indent else (",", ":")
    return json.dumps(ordered, indent=indent, separators=separators, ensure_ascii=False).encode()


def chunked(body, cuts):
    bounds = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    return [body[start:end] for start, end in pairwise(bounds)]


def split(body, cuts, batch):
    splitter = ListSplitter(FORM, batch_bytes=batch)
    objects = [obj for chunk in chunked(body, cuts) for obj in splitter.feed(chunk)]
    return [*objects, *splitter.finish()], splitter


@given(
    st.lists(widgets, max_size=8),
    st.lists(st.integers(0), max_size=12),
    st.integers(1, 200),
    st.booleans(),
    st.sampled_from([None, None, 1]),
)
def test_the_same_objects_however_the_bytes_are_cut(items, cuts, batch, items_first, indent):
    objects, splitter = split(document(items, items_first=items_first, indent=indent), cuts, batch)
    assert [(obj.metadata.name, obj.spec.text, list(obj.spec.parts)) for obj in objects] == [
        (item["metadata"]["name"], item["spec"]["text"], item["spec"]["parts"]) for item in items
    ]
    assert (splitter.metadata.resource_version, splitter.metadata.continue_) == ("7", "token")


@given(st.lists(widgets, min_size=1, max_size=4), st.integers(0), st.integers(1, 50))
def test_a_list_cut_short_is_an_error(items, cut, batch):
    body = document(items)
    with pytest.raises(UnexpectedResponse):
        split(body[: cut % len(body)], [cut], batch)


def test_only_a_batch_is_held_however_long_the_list():
    items = [
        {"metadata": {"name": str(number)}, "spec": {"parts": [{"a": "b"}, {"a": "c"}]}}
        for number in range(5000)
    ]
    body = document(items)
    splitter, held, seen = ListSplitter(FORM, batch_bytes=4096), 0, 0
    for start in range(0, len(body), 1000):
        seen += len(splitter.feed(body[start : start + 1000]))
        held = max(held, splitter.held)
    assert held < 10_000 < len(body)
    assert seen + len(splitter.finish()) == 5000


def test_an_object_that_does_not_fit_leaves_the_others_alone():
    items = [
        {"metadata": {"name": str(number)}, "spec": {"text": 1 if number == 3 else ""}} for number in range(9)
    ]
    for batch in (50, 10_000):
        objects, _ = split(document(items), range(0, 600, 40), batch)
        assert [obj.key.name for obj in objects] == [str(number) for number in range(9)]
        assert [number for number, obj in enumerate(objects) if isinstance(obj, UndecodableObject)] == [3]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"<html></html>",
        b'{"kind":"WidgetList","apiVersion":"example.com/v1"}',
        b'{"kind":"Widget","apiVersion":"example.com/v1","items":[]}',
        b'{"kind":"WidgetList","apiVersion":"other.com/v1","items":[]}',
        b'{"kind":"Status","apiVersion":"v1","status":"Success"}',
    ],
)
def test_what_is_no_list_of_the_kind_is_never_an_empty_list(body):
    with pytest.raises(UnexpectedResponse):
        split(body, [], 10)


def test_the_metadata_form_takes_a_list_of_partial_objects():
    splitter = ListSplitter(metadata_only(Widget))
    splitter.feed(
        document(
            [{"metadata": {"name": "a"}}], kind="PartialObjectMetadataList", api_version="meta.k8s.io/v1"
        )
    )
    assert splitter.finish() == [metadata_only(Widget).type(metadata=ObjectMeta(name="a"))]


def test_a_batch_is_a_few_milliseconds_of_work():
    assert BATCH_BYTES <= 1 << 20


def line(type_, item, kind="Widget"):
    return (
        json.dumps(
            {"type": type_, "object": {"apiVersion": "example.com/v1", "kind": kind, **item}},
            separators=(",", ":"),
        ).encode()
        + b"\n"
    )


@given(st.lists(widgets, max_size=6), st.lists(st.integers(0), max_size=12))
def test_events_are_the_same_however_the_bytes_are_cut(items, cuts):
    decoder = EventDecoder(FORM)
    events = [
        event
        for chunk in chunked(b"".join(line("ADDED", item) for item in items), cuts)
        for event in decoder.feed(chunk)
    ]
    decoder.finish()
    assert [event.object.spec.text for event in events] == [item["spec"]["text"] for item in items]


def test_a_line_may_have_any_length():
    text = "x" * 3_000_000
    body = line("MODIFIED", {"metadata": {"name": "a"}, "spec": {"text": text}})
    decoder = EventDecoder(FORM)
    events = [
        event for start in range(0, len(body), 65536) for event in decoder.feed(body[start : start + 65536])
    ]
    assert [event.object.spec.text for event in events] == [text]


def test_a_bookmark_carries_a_version_and_may_end_the_initial_events():
    (bookmark, ending) = EventDecoder(FORM).feed(
        line("BOOKMARK", {"metadata": {"resourceVersion": "5"}, "spec": None})
        + line(
            "BOOKMARK",
            {"metadata": {"resourceVersion": "6", "annotations": {"k8s.io/initial-events-end": "true"}}},
        )
    )
    assert (bookmark, ending) == (Bookmark("5"), Bookmark("6", ends_initial_events=True))


def test_an_error_event_is_raised_by_its_cause():
    status = {
        "metadata": {},
        "status": "Failure",
        "message": "too old resource version",
        "reason": "Expired",
        "code": 410,
    }
    with pytest.raises(Gone, match="too old"):
        list(EventDecoder(FORM).feed(line("ERROR", status, kind="Status")))


def test_an_object_that_does_not_fit_does_not_end_the_watch():
    poison, stranger, sound = EventDecoder(FORM).feed(
        line("ADDED", {"metadata": {"name": "a"}, "spec": {"text": 5}})
        + line("ADDED", {"metadata": {"name": "b"}}, kind="Gadget")
        + line("ADDED", {"metadata": {"name": "c"}})
    )
    assert isinstance(poison, Failed)
    assert poison.error.key == ("", "a")
    assert isinstance(stranger, Failed)
    assert "its kind is 'Gadget'" in str(stranger.error)
    assert isinstance(sound, Changed)
    assert isinstance(sound.object, Widget)


@pytest.mark.parametrize("body", [b"<html>\n", b'{"type":"NEW","object":{}}\n', b"{}\n"])
def test_what_is_no_event_is_an_error(body):
    with pytest.raises(UnexpectedResponse):
        list(EventDecoder(FORM).feed(body))


def test_a_stream_that_ends_within_an_event_is_an_error():
    decoder = EventDecoder(FORM)
    list(decoder.feed(b'{"type":"ADD'))
    with pytest.raises(UnexpectedResponse):
        decoder.finish()
