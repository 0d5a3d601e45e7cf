from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest
from msgspec.structs import replace

from kubeshard.cache.deltas import Added, Deleted, Updated
from kubeshard.cache.scope import whole
from kubeshard.cache.store import Store, UndeclaredIndex
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.objects import Form, Key, KubeObject, ObjectMeta, PartialObject, Struct, field, form_of


class PodSpec(Struct):
    node_name: str = ""


class Pod(KubeObject, version="v1"):
    spec: PodSpec = field(default_factory=PodSpec)


POD: Form[Pod] = form_of(Pod)


def pod(key: str, version: int | str, *, node: str = "", uid: str = "") -> Pod:
    namespace, _, name = key.rpartition("/")
    metadata = ObjectMeta(
        namespace=namespace, name=name, uid=uid or f"uid-{name}", resource_version=str(version)
    )
    return Pod(metadata=metadata, spec=PodSpec(node_name=node))


def unreadable(key: str, version: int) -> UndecodableObject:
    return UndecodableObject(POD, "spec: expected object", PartialObject(metadata=pod(key, version).metadata))


def by_node(obj: Pod) -> Iterable[str]:
    return [obj.spec.node_name] if obj.spec.node_name else []


def filled(*pods: Pod) -> Store[Pod]:
    store: Store[Pod] = Store()
    store.replace({obj.key: obj for obj in pods}, "100")
    return store


def test_objects_are_found_by_key_and_namespace() -> None:
    a, b, c = pod("x/a", 1), pod("x/b", 2), pod("y/a", 3)
    store = filled(a, b, c)
    assert store.get(Key("y", "a")) is c
    assert store.get(Key("y", "b")) is None
    assert store.list() == [a, b, c]
    assert store.list("x") == [a, b]
    assert store.list("z") == []
    assert len(store) == 3


def test_a_list_is_a_snapshot() -> None:
    store = filled(pod("x/a", 1))
    snapshot = store.list()
    store.apply(pod("x/b", 101))
    assert [obj.metadata.name for obj in snapshot] == ["a"]


def test_objects_cannot_be_changed() -> None:
    obj = filled(pod("x/a", 1)).list()[0]
    with pytest.raises(AttributeError):
        obj.metadata = ObjectMeta()
    assert msgspec.structs.replace(obj, spec=PodSpec(node_name="n")).spec.node_name == "n"


def test_single_changes_tell_what_they_changed() -> None:
    store = filled()
    old, new = pod("x/a", 101), pod("x/a", 102)
    last = pod("x/a", 103)
    assert store.apply(old) == (Added(old),)
    assert store.apply(new) == (Updated(old, new),)
    assert store.remove(last) == (Deleted(last, final=True),)
    assert store.remove(last) == ()


def test_what_is_here_already_changes_nothing() -> None:
    store = filled(pod("x/a", 50))
    assert store.apply(pod("x/a", 50)) == ()
    assert store.apply(pod("x/a", 49)) == ()


def test_what_happened_before_the_object_that_is_here_changes_nothing() -> None:
    later = pod("x/a", 50, uid="later")
    store = filled(later)
    assert store.remove(pod("x/a", 49, uid="former")) == ()
    assert store.apply(pod("x/a", 48, uid="former")) == ()
    assert store.list() == [later]


@pytest.mark.parametrize(("listed", "then"), [("ff", "0a"), ("0a", "ff"), ("99", "0a"), ("0a", "99")])
def test_of_versions_that_are_no_numbers_each_change_counts(listed: str, then: str) -> None:
    store: Store[Pod] = Store()
    old, new = pod("x/a", listed), pod("x/a", then)
    store.replace({old.key: old}, listed)
    assert store.apply(new) == (Updated(old, new),)
    assert store.apply(new) == ()
    assert store.resource_version == then
    assert store.reached("x", "another")  # nobody can tell, and nobody should wait for it
    assert store.remove(pod("x/a", listed)) == (Deleted(pod("x/a", listed)),)


def test_a_replacement_tells_deletions_first_then_the_rest() -> None:
    gone, changed, same = pod("x/gone", 1), pod("x/changed", 2), pod("x/same", 3)
    store = filled(gone, changed, same)
    now, new = pod("x/changed", 110), pod("x/new", 111)

    deltas = store.replace({obj.key: obj for obj in (new, now, same)}, "120")

    relisted = Updated(changed, now, relisted=True)
    assert deltas == [Deleted(gone, final=False), Added(new, initial=False), relisted]


def test_after_a_restore_every_object_is_an_update_even_one_that_is_the_same() -> None:
    same, other = pod("x/same", 3), pod("x/other", 4, node="n1")
    store = filled(same, other)
    again, changed = pod("x/same", 3), pod("x/other", 4, node="n2")

    deltas = store.replace({obj.key: obj for obj in (again, changed)}, "90", rewound=True)

    assert deltas == [Updated(same, again, relisted=True), Updated(other, changed, relisted=True)]
    assert store.apply(pod("x/same", 91)) == (Updated(again, pod("x/same", 91)),)


def test_the_first_replacement_is_initial_and_later_ones_are_not() -> None:
    store: Store[Pod] = Store()
    a, b = pod("x/a", 1), pod("x/b", 2)
    assert store.replace({a.key: a}, "10") == [Added(a, initial=True)]
    assert store.replace({a.key: a, b.key: b}, "20") == [Added(b, initial=False)]


@pytest.mark.parametrize("how", ["replace", "apply"])
def test_an_object_recreated_in_a_gap_is_a_deletion_and_an_addition(how: str) -> None:
    old, new = pod("x/a", 1, uid="first", node="n1"), pod("x/a", 110, uid="second", node="n2")
    store = filled(old)
    store.add_index("node", by_node)
    deltas = store.replace({new.key: new}, "120") if how == "replace" else store.apply(new)
    assert list(deltas) == [Deleted(old, final=False), Added(new, initial=False)]
    assert store.by_index("node", "n2") == [new]
    assert store.by_index("node", "n1") == []


def test_indexes_follow_every_change() -> None:
    store = filled(pod("x/a", 1, node="n1"), pod("y/b", 2, node="n1"), pod("x/c", 3))
    store.add_index("node", by_node)
    assert [obj.metadata.name for obj in store.by_index("node", "n1")] == ["a", "b"]
    assert [obj.metadata.name for obj in store.by_index("node", "n1", "x")] == ["a"]

    moved = pod("x/a", 101, node="n2")
    store.apply(moved)
    assert store.by_index("node", "n2") == [moved]
    assert [obj.metadata.name for obj in store.by_index("node", "n1")] == ["b"]

    touched = pod("x/a", 102, node="n2")
    store.apply(touched)
    assert store.by_index("node", "n2")[0] is touched

    store.remove(pod("x/a", 103, node="n3"))
    assert store.by_index("node", "n2") == []
    store.replace({}, "200")
    assert store.by_index("node", "n1") == []


def test_an_index_name_is_taken_once_and_an_unknown_one_is_an_error() -> None:
    store = filled()
    store.add_index("node", by_node)
    with pytest.raises(ValueError, match="node"):
        store.add_index("node", by_node)
    with pytest.raises(UndeclaredIndex, match=r"no index 'owner': declare it.*there are node"):
        store.by_index("owner", "x")


@pytest.mark.regression
def test_an_index_that_fails_on_an_object_finds_the_others_and_the_object_stays_readable() -> None:
    failures: list[tuple[str, Key, str]] = []
    store: Store[Pod] = Store(index_failed=lambda name, key, error: failures.append((name, key, str(error))))

    def by_annotation(pod: Pod) -> Iterable[str]:
        return (pod.metadata.annotations["must"],) if pod.metadata.annotations else by_nothing()

    def by_nothing() -> Iterable[str]:
        raise RuntimeError("no annotations")

    sound = replace(pod("x/a", 1), metadata=replace(pod("x/a", 1).metadata, annotations={"must": "v"}))
    store.replace({sound.key: sound}, "10")
    store.add_index("must", by_annotation)
    broken = pod("x/b", 11)
    assert store.apply(broken) == (Added(broken),)
    assert failures == [("must", broken.key, "no annotations")]
    assert store.get(broken.key) is broken
    assert store.by_index("must", "v") == [sound]
    assert store.unfiled("must") == {broken.key}

    worse = pod("x/a", 12)
    store.apply(worse)
    assert store.by_index("must", "v") == []
    better = replace(pod("x/b", 13), metadata=replace(pod("x/b", 13).metadata, annotations={"must": "v"}))
    store.apply(better)
    assert store.by_index("must", "v") == [better]
    assert store.unfiled("must") == {worse.key}
    store.remove(pod("x/a", 14))
    assert store.unfiled("must") == frozenset()


@pytest.mark.regression
def test_an_index_that_begins_to_fail_leaves_no_ghosts() -> None:
    fails = False

    def moody(pod: Pod) -> Iterable[str]:
        if fails:
            raise RuntimeError("not today")
        return by_node(pod)

    store = filled(pod("x/a", 1, node="n1"), pod("x/b", 2, node="n1"))
    store.add_index("node", moody)
    fails = True
    store.apply(pod("x/a", 101, node="n2"))
    store.remove(pod("x/b", 102))
    fails = False
    assert store.by_index("node", "n1") == []


@pytest.mark.regression
@pytest.mark.parametrize("answer", ["n1", None, [7], [["n1"]]])
def test_an_index_function_returns_strings_and_says_so(answer: object) -> None:
    failures: list[str] = []
    store: Store[Pod] = Store(
        index_failed=lambda name, key, error: failures.append(f"{type(error).__name__}")
    )
    store.add_index("node", lambda pod: answer)  # type: ignore[arg-type,return-value]  # the mistake
    store.apply(pod("x/a", 101))
    assert failures == ["TypeError"]


def test_the_version_follows_lists_events_and_bookmarks_and_only_a_list_sets_it_back() -> None:
    store: Store[Pod] = Store()
    assert store.resource_version == ""
    store.replace({}, "99")
    store.apply(pod("x/a", 100))
    assert store.resource_version == "100"
    store.remove(pod("x/a", 101))
    store.advance("105")
    store.advance("104")
    assert store.resource_version == "105"
    store.replace({}, "9")
    assert store.resource_version == "9"


def test_parts_are_replaced_one_by_one_and_the_store_is_as_old_as_its_oldest_part() -> None:
    store: Store[Pod] = Store(whole("xy"))
    a, b = pod("x/a", 1), pod("y/b", 2)
    store.replace({a.key: a}, "10", "x")
    assert store.resource_version == ""
    store.replace({b.key: b}, "9", "y")
    assert store.resource_version == "9"
    assert store.complete_up_to("x") == "10"
    assert store.replace({}, "20", "x") == [Deleted(a, final=False)]
    assert store.list() == [b]


def test_an_unreadable_object_is_neither_present_nor_absent() -> None:
    store = filled(good := pod("x/a", 1))
    assert store.apply(unreadable("x/a", 101)) == (Deleted(good, final=False),)
    assert store.list() == []
    with pytest.raises(UndecodableObject):
        store.get(Key("x", "a"))

    mended = pod("x/a", 102)
    assert store.apply(mended) == (Added(mended),)
    assert store.get(Key("x", "a")) is mended

    store.apply(unreadable("x/b", 103))
    assert store.remove(unreadable("x/b", 104)) == ()
    assert store.get(Key("x", "b")) is None


def test_an_unreadable_object_does_not_hide_its_neighbours_in_a_list() -> None:
    store = filled(pod("x/a", 1))
    fine = pod("x/b", 2)
    deltas = store.replace({Key("x", "a"): unreadable("x/a", 101), fine.key: fine}, "110")
    assert [type(delta) for delta in deltas] == [Deleted, Added]
    assert store.list() == [fine]
    assert Key("x", "a") in store.undecodable
    store.replace({}, "120")
    assert not store.undecodable
