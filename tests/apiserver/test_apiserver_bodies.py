"""What it takes to read a body."""

import asyncio
import json

import pytest
import yaml

from kubeshard.apiserver import ApiServer, InMemoryTransport
from kubeshard.apiserver.front.yaml_bodies import DEEPEST, read_yaml
from kubeshard.runtime.transport import HttpRequest

MAPS = "/api/v1/namespaces/default/configmaps"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def sent(method, target, content_type, body):
    transport = InMemoryTransport(ApiServer())
    request = HttpRequest(method, target, {"content-type": content_type}, body)
    return asyncio.run(transport.request(request))


@pytest.mark.parametrize(
    ("method", "target", "content_type"),
    [
        ("POST", MAPS, "application/yaml"),
        ("POST", f"{MAPS}?fieldValidation=Ignore", "application/yaml"),
        ("PATCH", f"{MAPS}/a?fieldManager=one", "application/apply-patch+yaml"),
    ],
)
def test_yaml_is_read_once(monkeypatch, method, target, content_type):
    """Its document, the keys that it has twice and what its aliases cost: by one parser, event by event."""
    made, events = [], []

    class Counting(LOADER):
        def __init__(self, stream):
            made.append(stream)
            super().__init__(stream)

        def get_event(self):
            event = super().get_event()
            events.append(event)
            return event

        def get_single_node(self):
            raise AssertionError("a second form of the document")

        get_node = get_single_data = get_data = get_single_node

    monkeypatch.setattr("kubeshard.apiserver.front.yaml_bodies._Loader", Counting)
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: '1', a: '2', b: &b x, c: *b}\n"
    answer = sent(method, target, content_type, body)
    assert answer.status == 201
    assert json.loads(answer.body)["data"] == {"a": "2", "b": "x", "c": "x"}
    assert made == [body]
    assert len(events) == len(list(yaml.parse(body))) - 1  # but for the end of the stream


def test_the_deepest_document_is_read_and_a_deeper_one_is_not():
    document, _ = read_yaml(b"[" * DEEPEST + b"]" * DEEPEST)
    depth = 0
    while document:
        document, depth = document[0], depth + 1
    assert depth == DEEPEST - 1
    with pytest.raises(yaml.YAMLError, match="exceeded max depth"):
        read_yaml(b"[" * (DEEPEST + 1) + b"]" * (DEEPEST + 1))


@pytest.mark.parametrize("use", [b"[%s]", b"{<<: [%s]}"])
def test_aliases_cost_what_they_stand_for(use):
    named = b"- &a {" + b", ".join(b"k%d: v" % n for n in range(1000)) + b"}\n- "
    few, many = (named + use % b", ".join([b"*a"] * times) for times in (10, 1000))
    assert read_yaml(few)[0]
    with pytest.raises(yaml.YAMLError, match="excessive aliasing"):
        read_yaml(many)
