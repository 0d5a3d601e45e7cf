"""The cost of reading a request body."""

import asyncio
import json

import pytest
import yaml

from kubeshard.core.yaml_input import DEEPEST
from kubeshard.runtime.transport import HttpRequest
from kubeshard_apiserver import ApiServer, Front, Identity, InMemoryTransport
from kubeshard_apiserver.front import requests
from kubeshard_apiserver.front.bodies import read_yaml
from kubeshard_apiserver.resources.configuration import ConfigMaps
from kubeshard_apiserver.verbs import updating, writing

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
    """One pass over the parser's events yields the document, its duplicate keys and the cost of its aliases."""
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

    monkeypatch.setattr("kubeshard.core.yaml_input._Loader", Counting)
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: '1', a: '2', b: &b x, c: *b}\n"
    answer = sent(method, target, content_type, body)
    assert answer.status == 201
    assert json.loads(answer.body)["data"] == {"a": "2", "b": "x", "c": "x"}
    assert made == [body]
    assert len(events) == len(list(yaml.parse(body))) - 1  # except for the end of the stream


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


def wide(count=5000, **metadata):
    """A ConfigMap of more than 64 KiB."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "wide", **metadata},
        "data": {f"key-{i}": "x" for i in range(count)},
    }


@pytest.mark.regression
@pytest.mark.parametrize(
    ("method", "target", "content_type", "encode", "status"),
    [
        ("POST", MAPS, "application/yaml", yaml.safe_dump, 201),
        ("POST", MAPS, "application/json", json.dumps, 201),
        ("PUT", f"{MAPS}/wide", "application/yaml", yaml.safe_dump, 200),
        ("PATCH", f"{MAPS}/wide", "application/merge-patch+json", json.dumps, 200),
        ("PATCH", f"{MAPS}/wide?fieldManager=one", "application/apply-patch+yaml", yaml.safe_dump, 200),
        ("PATCH", f"{MAPS}/wide?fieldManager=one", "application/apply-patch+yaml", yaml.safe_dump, 201),
        ("POST", MAPS, "application/yaml", lambda body: yaml.safe_dump(body) + "x", 400),
        ("POST", MAPS, "application/json", lambda body: json.dumps(body) + "x", 400),
        (
            "POST",
            MAPS,
            "application/yaml",
            lambda body: yaml.safe_dump({**body, "data": 1, "x": "y" * 70000}),
            400,
        ),
    ],
)
async def test_others_are_answered_while_a_large_body_is_read(
    monkeypatch, method, target, content_type, encode, status
):
    """Long computations run off the event loop, which stays free meanwhile."""
    aside = []

    async def thread(work):
        ticket = object()
        aside.append(ticket)
        await asyncio.sleep(0)
        reply = await front.reply(HttpRequest("GET", f"{MAPS}/small", {}))
        assert reply.status == 200
        working.append(ticket)
        try:
            return work()
        finally:
            working.remove(ticket)

    working = []

    def only_aside(module, name):
        original = getattr(module, name)

        def checked(*args, **kwargs):
            assert working or not large
            return original(*args, **kwargs)

        monkeypatch.setattr(module, name, checked)

    large = False
    front = Front(ApiServer(), offload=thread)
    await front.reply(HttpRequest("POST", MAPS, {}, b'{"metadata": {"name": "small"}}'))
    if status == 200:
        await front.reply(HttpRequest("POST", MAPS, {}, b'{"metadata": {"name": "wide"}}'))
    assert not aside
    for module, name in (
        (requests, "read_yaml"), (requests, "duplicates_in_json"), (updating, "updated"), (writing, "updated"),
        (writing, "applied"), (updating, "validate_metadata"), (ConfigMaps, "validate"),
    ):  # fmt: skip
        only_aside(module, name)
    large = True
    reply = await front.reply(
        HttpRequest(method, target, {"content-type": content_type}, encode(wide()).encode())
    )
    assert reply.status == status, reply.body[:300]
    assert aside
    assert not working
    if status < 300:
        assert len(json.loads(reply.body)["data"]) == 5000


async def test_a_small_change_of_a_large_object_is_worked_out_aside(monkeypatch):
    aside = []

    async def noted(work):
        aside.append(work)
        return work()

    front = Front(ApiServer(), offload=noted)
    for name, count in (("wide", 5000), ("narrow", 1)):
        body = {**wide(count), "metadata": {"name": name}}
        assert (await front.reply(HttpRequest("POST", MAPS, {}, json.dumps(body).encode()))).status == 201
    patch = {"content-type": "application/merge-patch+json"}, b'{"metadata": {"labels": {"a": "b"}}}'
    for name, is_large in (("wide", True), ("narrow", False)):
        aside.clear()
        reply = await front.reply(HttpRequest("PATCH", f"{MAPS}/{name}", *patch))
        assert (reply.status, bool(aside)) == (200, is_large)


async def test_a_body_beyond_the_limit_is_refused_unread(monkeypatch):
    monkeypatch.setattr(requests, "read_yaml", None)
    body = b"a: " + b"x" * requests.LARGEST_BODY
    reply = await Front(ApiServer()).reply(
        HttpRequest("POST", MAPS, {"content-type": "application/yaml"}, body)
    )
    assert (reply.status, json.loads(reply.body)["message"]) == (
        413,
        "Request entity too large: limit is 3145728",
    )


async def test_a_large_body_of_who_may_not_is_not_read(monkeypatch):
    monkeypatch.setattr(requests, "read_yaml", None)
    server = ApiServer()
    front = Front(server, gate=Identity(server, tokens={}))
    body = yaml.safe_dump(wide()).encode()
    reply = await front.reply(HttpRequest("POST", MAPS, {"content-type": "application/yaml"}, body))
    assert reply.status == 403
