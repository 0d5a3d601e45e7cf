"""A restart keeps every acknowledged write, whatever ended the process."""

import asyncio
import base64
import json
import random
import re
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import contextmanager

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.core import Key
from kubeshard.core.errors import ApiError, ConfigurationError
from kubeshard.core.kinds import GroupResource
from kubeshard.runtime.http import HttpTransport
from kubeshard.runtime.tls import Tls
from kubeshard.runtime.transport import HttpRequest, TransportError
from kubeshard_apiserver import ApiServer, InMemoryTransport
from kubeshard_apiserver.model import Target
from kubeshard_apiserver.persistence import Database, DatabaseJournal, Row
from kubeshard_apiserver.serving import EmbeddedServer
from kubeshard_apiserver.store import Store
from kubeshard_apiserver.verbs.reading import ListOptions

MAPS = GroupResource("", "configmaps")
PATH = "/api/v1/namespaces/default/configmaps"


class Kept:
    """The objects that were acknowledged to a client, by name."""

    def __init__(self):
        self.there = {}
        self.gone = set()
        self.unsure = set()
        self.highest = 0

    def saw(self, obj):
        self.highest = max(self.highest, version(obj))


def version(obj):
    return int(obj["metadata"]["resourceVersion"])


@contextmanager
def running(folder):
    """Runs the command on a free port; yields the process and its kubeconfig."""
    path = folder / "kubeconfig"
    command = [sys.executable, "-m", "kubeshard", "apiserver", "--port", "0", "--data", str(folder / "data")]
    process = subprocess.Popen(
        [*command, "--no-controllers", "--kubeconfig", str(path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert re.search(r"https://127.0.0.1:\d+", process.stdout.readline())
        yield process, yaml.safe_load(path.read_text())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class Asking:
    def __init__(self, config):
        cluster = config["clusters"][0]["cluster"]
        ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self.transport = HttpTransport(cluster["server"], Tls(ca=ca))
        self.headers = {"Authorization": "Bearer " + config["users"][0]["user"]["token"]}

    async def __call__(self, method, path, body=None):
        headers = {**self.headers, "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        answer = await self.transport.request(HttpRequest(method, path, headers, data, 10))
        return answer.status, json.loads(answer.body)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.transport.close()


async def write(ask, worker, kept, chance):
    """Creates, changes and deletes objects until the server is gone, and records what was acknowledged."""
    number = 0
    while True:
        name = f"{worker}-{number}"
        try:
            if name not in kept.there:
                kept.unsure.add(name)
                code, obj = await ask("POST", PATH, {"metadata": {"name": name}, "data": {"n": "0"}})
                assert code == 201, obj
                kept.there[name] = obj
            elif chance.random() < 0.4:
                kept.unsure.add(name)
                body = {
                    "metadata": {"name": name},
                    "data": {"n": str(int(kept.there[name]["data"]["n"]) + 1)},
                }
                code, obj = await ask("PUT", f"{PATH}/{name}", body)
                assert code == 200, obj
                kept.there[name] = obj
            elif chance.random() < 0.3:
                kept.unsure.add(name)
                code, obj = await ask("DELETE", f"{PATH}/{name}")
                assert code == 200, obj
                del kept.there[name]
                kept.gone.add(name)
                number += 1
            else:
                number += 1
            kept.unsure.discard(name)
        except TransportError:
            return
        if name in kept.there:
            kept.saw(kept.there[name])


async def watch(ask, kept, seen):
    request = HttpRequest("GET", f"{PATH}?watch=1", ask.headers, None, 10, 10)
    rest = b""
    try:
        async with ask.transport.stream(request) as stream:
            async for chunk in stream.chunks():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    kept.saw(event["object"])
                    seen[event["object"]["metadata"]["name"]] = event
    except TransportError:
        return


@pytest.mark.system
@pytest.mark.parametrize("seed", range(3))
async def test_a_killed_server_has_every_acknowledged_write_and_forgets_no_version(tmp_path, seed):
    chance, kept, seen = random.Random(seed), Kept(), {}
    writes = chance.randint(100, 400)
    with running(tmp_path) as (process, first):
        async with Asking(first) as ask:
            enough = int((await ask("GET", PATH))[1]["metadata"]["resourceVersion"]) + writes
            tasks = [asyncio.create_task(watch(ask, kept, seen))]
            tasks += [asyncio.create_task(write(ask, f"w{n}", kept, chance)) for n in range(8)]
            async with asyncio.timeout(30):
                while kept.highest < enough:  # noqa: ASYNC110 - what changes is on the other side
                    await asyncio.sleep(0.01)
            process.send_signal(signal.SIGKILL)
            await asyncio.gather(*tasks)
    assert len(kept.there) > 20
    with running(tmp_path) as (_, second):
        for section in ("users", "contexts"):
            assert first[section] == second[section]
        ca = [config["clusters"][0]["cluster"]["certificate-authority-data"] for config in (first, second)]
        assert ca[0] == ca[1]
        async with Asking(second) as ask:
            _, page = await ask("GET", PATH)
            found = {obj["metadata"]["name"]: obj for obj in page["items"]}
            for name, told in kept.there.items():
                if name not in kept.unsure:
                    assert found[name] | {"kind": "ConfigMap", "apiVersion": "v1"} == told
            assert not (kept.gone - kept.unsure) & found.keys()
            for name, event in seen.items():
                if event["type"] == "DELETED":
                    assert name not in found
                elif name in found:
                    assert version(found[name]) >= version(event["object"])
                else:  # a watch may lag behind the response to the delete
                    assert name in kept.gone | kept.unsure
            assert int(page["metadata"]["resourceVersion"]) >= kept.highest
            code, new = await ask("POST", PATH, {"metadata": {"name": "after"}})
            assert code == 201
            assert int(new["metadata"]["resourceVersion"]) > kept.highest
            code, refusal = await ask("GET", f"{PATH}?watch=1&resourceVersion=5&timeoutSeconds=1")
            assert (refusal["type"], refusal["object"]["code"]) == ("ERROR", 410)


async def test_a_watch_goes_on_after_a_restart_where_nothing_was_missed(tmp_path):
    async with EmbeddedServer(data=tmp_path) as served:
        created = served.server.create(maps(served.server), {"metadata": {"name": "a"}}).object
    async with EmbeddedServer(data=tmp_path) as served:
        events = served.server.watch(maps(served.server), options(created["metadata"]["resourceVersion"]))
        served.server.create(maps(served.server), {"metadata": {"name": "b"}})
        assert [(event.type, event.object["metadata"]["name"]) for event in events.take()] == [("ADDED", "b")]


def options(version):
    return ListOptions(resource_version=version)


def maps(server):
    return Target(server.registry.find("", "v1", "configmaps"), "default")


async def test_kinds_of_definitions_and_their_objects_are_served_again(tmp_path):
    definition = {
        "metadata": {"name": "sites.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "sites", "kind": "Site"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {"type": "object", "properties": {"a": {"type": "integer"}}}
                    },
                }
            ],
        },
    }
    async with EmbeddedServer(data=tmp_path) as served:
        crds = served.server.registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        served.server.create(Target(crds), definition)
        sites = served.server.registry.find("example.com", "v1", "sites")
        body = {"apiVersion": "example.com/v1", "kind": "Site", "metadata": {"name": "s"}, "a": 1}
        site = served.server.create(Target(sites, "default"), body).object
    async with EmbeddedServer(data=tmp_path) as served:
        sites = served.server.registry.find("example.com", "v1", "sites")
        assert served.server.get(Target(sites, "default", "s")) == site
        with pytest.raises(ApiError, match="must be of type integer"):
            served.server.create(Target(sites, "default"), {**body, "metadata": {"name": "t"}, "a": "x"})


async def test_credentials_count_on_and_nothing_is_made_twice(tmp_path):
    async with EmbeddedServer(data=tmp_path) as served:
        before = served.credentials
        objects = {name: len(served.server.store.objects(name)) for name in resources(served.server)}
        revision = served.server.store.revision
    async with EmbeddedServer(data=tmp_path) as served:
        after = served.credentials
        assert {name: len(served.server.store.objects(name)) for name in resources(served.server)} == objects
        assert served.server.store.revision == revision
    assert (before.token, before.ca, before.signing_key) == (after.token, after.ca, after.signing_key)


def resources(server):
    return {resource.group_resource for resource in server.registry}


def test_the_folder_is_for_its_owner_only(tmp_path):
    DatabaseJournal(tmp_path / "data")
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "data" / "apiserver.db").stat().st_mode) == 0o600


@pytest.mark.system
def test_a_folder_in_use_is_refused(tmp_path):
    with (
        running(tmp_path),
        pytest.raises(
            ConfigurationError, match=r"another process is using .*; stop it, or use another folder"
        ),
    ):
        DatabaseJournal(tmp_path / "data")


def foreign(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE mine (a)")
    connection.close()


def newer(path):
    Database(path.parent).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()


def torn(path):
    made = Database(path.parent)
    made.write([Row("", "configmaps", "ns", str(n), b"{}" * 500) for n in range(200)], [])
    made.close()
    content = bytearray(path.read_bytes())
    content[len(content) // 3 : len(content) // 3 + 20_000] = b"\xff" * 20_000
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.write_bytes(b"no database at all" * 100), "is damaged"),
        (lambda path: path.mkdir(), "cannot keep data in .*: Is a directory"),
        (foreign, "belongs to another program"),
        (newer, "was written by another version of kubeshard .its format is 99"),
        (torn, "is damaged"),
    ],
    ids=["garbage", "a folder", "foreign", "newer", "torn"],
)
def test_a_file_that_cannot_be_used_is_refused_and_left_as_it_is(tmp_path, spoil, words):
    path = tmp_path / "apiserver.db"
    spoil(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(ConfigurationError, match=words):
        list(DatabaseJournal(tmp_path).objects())
    assert (path.read_bytes() if path.is_file() else None) == before


async def test_what_cannot_be_kept_is_not_acknowledged_nor_shown(tmp_path, monkeypatch, caplog):
    async with EmbeddedServer(data=tmp_path) as served:
        config = yaml.safe_load(served.kubeconfig)
        async with Asking(config) as ask:
            assert (await ask("POST", PATH, {"metadata": {"name": "a"}}))[0] == 201

            def full(*_):
                raise ConfigurationError("cannot use it: database or disk is full")

            monkeypatch.setattr(Database, "write", full)
            code, status = await ask("POST", PATH, {"metadata": {"name": "b"}})
            assert (code, status["message"]) == (500, "cannot use it: database or disk is full")
            assert (await ask("GET", f"{PATH}/b"))[0] == 500
            assert (await ask("GET", f"{PATH}/a"))[0] == 500
            assert "all requests are refused from now on, reads too" in caplog.text
            async with asyncio.timeout(5):
                assert "disk is full" in await served.failed()
    monkeypatch.undo()
    async with EmbeddedServer(data=tmp_path) as served:
        names = [key.name for key in served.server.store.objects(MAPS) if key.namespace == "default"]
        assert names == ["a"]


async def test_who_waits_no_longer_leaves_the_others_waiting_in_peace(tmp_path):
    async with DatabaseJournal(tmp_path) as journal:
        journal.put(MAPS, Key("ns", "a"), b"{}", 2)
        impatient, patient = asyncio.create_task(journal.settled()), asyncio.create_task(journal.settled())
        await asyncio.sleep(0)
        impatient.cancel()
        async with asyncio.timeout(5):
            await patient
    assert impatient.cancelled()


async def test_a_transport_in_memory_waits_for_the_journal_too(tmp_path):
    journal = DatabaseJournal(tmp_path)
    async with journal:
        transport = InMemoryTransport(ApiServer(journal=journal))
        body = json.dumps({"metadata": {"name": "a"}}).encode()
        assert (await transport.request(HttpRequest("POST", PATH, {}, body))).status == 201
        written = Database.rows(journal._database)
        assert ("default", "a") in [(row.namespace, row.name) for row in written]


writes = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from(["put", "remove", "settle", "restart"])), max_size=40
)


@given(writes)
def test_after_any_restarts_the_store_holds_what_it_held(tmp_path_factory, steps):
    asyncio.run(_same_after_restarts(tmp_path_factory.mktemp("data"), steps))


async def _same_after_restarts(folder, steps):
    expected, revision = {}, 1
    rest = list(steps)
    while True:
        journal, store = DatabaseJournal(folder), Store()
        store.resume(journal)
        assert store.revision == revision
        store.open(MAPS)
        assert store.objects(MAPS) == expected
        async with journal:
            while rest and (step := rest.pop(0)) and step[1] != "restart":
                key = Key("ns", step[0])
                if step[1] == "put":
                    expected[key] = store.put(MAPS, key, {"metadata": {"name": step[0]}, "n": len(rest)})
                elif step[1] == "remove" and key in expected:
                    store.remove(MAPS, key)
                    del expected[key]
                elif step[1] == "settle":
                    await store.settled()
            revision = store.revision
        if not rest:
            return
