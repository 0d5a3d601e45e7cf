"""The store: versions, history, snapshots."""

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.core import Key
from kubeshard.core.kinds import GroupResource
from kubeshard.core.patches import JsonPatch
from kubeshard_apiserver import ApiServer
from kubeshard_apiserver.history import FEWEST, Event, History, TooOld
from kubeshard_apiserver.model import Target
from kubeshard_apiserver.store import Store

MAPS = GroupResource("", "configmaps")
OTHERS = GroupResource("", "secrets")

writes = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["put", "remove"]), st.sampled_from([MAPS, OTHERS]))
)


def store(window=10_000):
    made = Store(window=window)
    made.open(MAPS)
    made.open(OTHERS)
    return made


def write(to, name, action, resource=MAPS):
    key = Key("ns", name)
    if action == "put":
        to.put(resource, key, {"metadata": {"name": name, "namespace": "ns"}})
    elif to.get(resource, key) is not None:
        to.remove(resource, key)


@given(writes)
def test_every_state_of_the_past_is_exact(steps):
    model = store()
    states = {model.revision: {}}
    for name, action, resource in steps:
        write(model, name, action, resource)
        states[model.revision] = dict(model.objects(MAPS))
    for revision, state in states.items():
        assert model.at(MAPS, revision) == state


@given(writes, st.integers(1, 5))
def test_a_history_is_complete_or_too_old(steps, window):
    model, complete = store(window), store()
    for step in steps:
        write(model, *step)
        write(complete, *step)
    for revision in range(1, model.revision + 1):
        try:
            seen = model.history(MAPS).after(revision)
        except TooOld:
            continue
        assert seen == complete.history(MAPS).after(revision)


def test_a_snapshot_before_a_compaction_is_too_old():
    model = store()
    write(model, "a", "put")
    then = model.revision
    write(model, "b", "put")
    model.compact()
    with pytest.raises(TooOld):
        model.at(MAPS, then)
    assert set(model.at(MAPS, model.revision)) == {Key("ns", "a"), Key("ns", "b")}


def test_writing_does_not_change_what_was_handed_out():
    model = store()
    first = model.put(MAPS, Key("ns", "a"), {"metadata": {"name": "a"}})
    kept = dict(first)
    model.put(MAPS, Key("ns", "a"), {"metadata": {"name": "a"}, "data": {}})
    assert first == kept


@given(st.lists(st.tuples(st.sampled_from(["a", "a-b", "b"]), st.sampled_from("xyz"), st.booleans())))
def test_keys_stay_in_the_order_of_lists(steps):
    model = store()
    for namespace, name, stays in steps:
        key = Key(namespace, name)
        if stays:
            model.put(MAPS, key, {"metadata": {"name": name, "namespace": namespace}})
        elif model.get(MAPS, key) is not None:
            model.remove(MAPS, key)
        ordered = [key for _, key in model.ordered(MAPS)]
        assert ordered == sorted(model.objects(MAPS), key=lambda key: f"{key.namespace}/{key.name}")


def test_objects_that_share_a_set_of_fields_do_not_share_its_changes():
    server = ApiServer()
    maps = server.registry.find("", "v1", "configmaps")
    for name in "ab":
        server.create(Target(maps, "default"), {"metadata": {"name": name}, "data": {"k": "v"}})
    mine, other = (server.get(Target(maps, "default", name)) for name in "ab")
    before = deepcopy(other)
    (entry,) = mine["metadata"]["managedFields"]
    assert entry["fieldsV1"] is other["metadata"]["managedFields"][0]["fieldsV1"]
    removal = JsonPatch([{"op": "remove", "path": "/metadata/managedFields/0/fieldsV1/f:data"}])
    changed = server.patch(Target(maps, "default", "a"), removal).object
    assert "managedFields" not in changed["metadata"]
    assert server.get(Target(maps, "default", "b")) == before


@given(st.lists(st.integers(0, 5000), max_size=80), st.integers(0, 20_000))
def test_of_large_objects_a_history_keeps_fewer_and_never_has_a_hole(sizes, most_bytes):
    history = History(0, window=1000, most_bytes=most_bytes)
    for revision, size in enumerate(sizes, 1):
        history.append(Event(revision, Key("ns", "a"), None, {"data": "x" * size}))
    kept = history.after(history.since)
    assert [event.revision for event in kept] == list(range(history.since + 1, len(sizes) + 1))
    assert len(kept) <= FEWEST or sum(len(event.new["data"]) for event in kept) <= most_bytes
    assert len(kept) >= min(len(sizes), FEWEST)
