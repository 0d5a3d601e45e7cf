"""The store: versions, history, snapshots."""

import asyncio
from copy import deepcopy
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.core import Key
from kubeshard.core.kinds import GroupResource
from kubeshard.core.patches import JsonPatch, MergePatch
from kubeshard_apiserver import ApiServer
from kubeshard_apiserver.history import FEWEST, History, StoredEvent, TooOld
from kubeshard_apiserver.model import Target, WriteOptions
from kubeshard_apiserver.states import DecodedCache
from kubeshard_apiserver.store import EXPIRY, Store
from kubeshard_lab.virtual_time import virtual_time
from kubeshard_lab.virtual_world import virtual_world

MAPS = GroupResource("", "configmaps")
OTHERS = GroupResource("", "secrets")

writes = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["put", "remove"]), st.sampled_from([MAPS, OTHERS]))
)


def store(window=10_000, **options):
    made = Store(window=window, **options)
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


def test_states_that_share_a_set_of_fields_do_not_share_its_changes():
    server = ApiServer()
    target = Target(server.registry.find("", "v1", "configmaps"), "default", "a")
    server.create(replace(target, name=""), {"metadata": {"name": "a"}, "data": {"k": "v"}})
    first = server.get(target)
    labelled = MergePatch({"metadata": {"labels": {"a": "b"}}})
    second = server.patch(target, labelled, WriteOptions(manager="other")).object
    before = deepcopy((first, second))
    (entry,) = first["metadata"]["managedFields"]
    others = [other["fieldsV1"] for other in second["metadata"]["managedFields"]]
    (place,) = (place for place, fields in enumerate(others) if fields is entry["fieldsV1"])
    removal = JsonPatch([{"op": "remove", "path": f"/metadata/managedFields/{place}/fieldsV1/f:data"}])
    changed = server.patch(target, removal, WriteOptions(manager="other")).object
    assert all("f:data" not in left["fieldsV1"] for left in changed["metadata"]["managedFields"])
    assert (first, second) == before


@given(st.lists(st.integers(0, 5000), max_size=80), st.integers(0, 20_000))
def test_of_large_objects_a_history_keeps_fewer_and_never_has_a_hole(sizes, most_bytes):
    history, cache = History(0, window=1000), DecodedCache()
    for revision, size in enumerate(sizes, 1):
        history.append(StoredEvent(revision, Key("ns", "a"), None, cache.state({"data": "x" * size})))
        history.shrink(most_bytes)
    kept = history.after(history.since)
    assert [event.revision for event in kept] == list(range(history.since + 1, len(sizes) + 1))
    assert len(kept) <= FEWEST or sum(len(event.event.new["data"]) for event in kept) <= most_bytes
    assert len(kept) >= min(len(sizes), FEWEST)


@given(st.lists(st.tuples(st.sampled_from([MAPS, OTHERS]), st.integers(0, 3000)), max_size=80))
def test_all_histories_together_keep_a_bounded_number_of_bytes(steps):
    model = store(most_bytes=20_000)
    for resource, size in steps:
        model.put(resource, Key("ns", "a"), {"metadata": {"name": "a"}, "data": "x" * size})
        kept = [model.history(each) for each in (MAPS, OTHERS)]
        assert sum(history.bytes for history in kept) <= 20_000 or any(
            len(history.after(history.since)) <= FEWEST for history in kept
        )


def test_a_store_keeps_few_objects_decoded_and_still_returns_all():
    model = store()
    model._decoded_cache = DecodedCache(most_bytes=10_000)
    for number in range(1000):
        model.put(MAPS, Key("ns", f"a{number}"), {"metadata": {"name": f"a{number}"}, "data": "x" * 100})
        assert len(model._decoded_cache) <= 100
    for number in range(1000):
        assert model.get(MAPS, Key("ns", f"a{number}"))["metadata"]["name"] == f"a{number}"
        assert len(model._decoded_cache) <= 100


@virtual_time
async def test_events_expire_as_after_a_compaction_and_a_quiet_resource_keeps_its_watches():
    model = store(clock=virtual_world().clock)
    write(model, "a", "put", OTHERS)
    then = model.revision
    write(model, "a", "put")
    for _ in range(2):
        assert model.history(MAPS).after(then)
        await asyncio.sleep(EXPIRY)
        write(model, "b", "put", OTHERS)
    with pytest.raises(TooOld):
        model.history(MAPS).after(then)
    latest = model.history(MAPS).since
    await asyncio.sleep(10 * EXPIRY)
    write(model, "b", "put", OTHERS)
    assert model.history(MAPS).after(latest) == []
