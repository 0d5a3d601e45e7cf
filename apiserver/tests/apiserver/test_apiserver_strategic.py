"""Strategic merge without a server: properties of all patches."""

from copy import deepcopy

from hypothesis import given
from hypothesis import strategies as st

from kubeshard_apiserver.apply.strategic import strategic_merge
from kubeshard_apiserver.schema.catalog import struct

POD = struct("core.v1.Pod")
NAMES = st.sampled_from("abcde")
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": NAMES}, optional={"image": st.sampled_from(["i", "j"]), "tty": st.booleans()}
    ),
    unique_by=lambda item: item["name"],
    max_size=5,
)
ITEMS = st.one_of(
    st.fixed_dictionaries({"name": NAMES, "image": st.sampled_from(["n", "m"])}),
    st.fixed_dictionaries({"name": NAMES, "$patch": st.just("delete")}),
)
CONTAINER_PATCHES = st.lists(ITEMS, unique_by=lambda item: item["name"], max_size=5)
FINALIZERS = st.lists(NAMES, unique=True, max_size=5)


def pod(containers, finalizers=()):
    return {"metadata": {"finalizers": list(finalizers)}, "spec": {"containers": containers}}


def by_name(containers):
    return {item["name"]: item for item in containers}


@given(CONTAINERS, CONTAINER_PATCHES)
def test_every_item_is_merged_added_or_deleted_by_its_key(live, patch):
    merged = by_name(strategic_merge(POD, pod(live), {"spec": {"containers": patch}})["spec"]["containers"])
    wanted = by_name(live)
    for item in patch:
        if "$patch" in item:
            wanted.pop(item["name"], None)
        else:
            wanted[item["name"]] = {**wanted.get(item["name"], {}), **item}
    assert merged == wanted


@given(CONTAINERS, CONTAINER_PATCHES)
def test_the_same_patch_again_changes_nothing(live, patch):
    body = {"spec": {"containers": patch}}
    once = strategic_merge(POD, pod(live), body)
    assert by_name(strategic_merge(POD, once, body)["spec"]["containers"]) == by_name(
        once["spec"]["containers"]
    )


@given(CONTAINERS, CONTAINER_PATCHES, FINALIZERS)
def test_arguments_are_not_changed(live, patch, finalizers):
    before = pod(live, finalizers)
    body = {
        "metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "$setElementOrder/finalizers": ["b", "c"]},
        "spec": {"containers": patch},
    }
    copies = deepcopy(before), deepcopy(body)
    strategic_merge(POD, before, body)
    assert (before, body) == copies


@given(CONTAINERS, st.permutations("abcde"))
def test_a_stated_order_is_the_order(live, order):
    body = {"spec": {"$setElementOrder/containers": [{"name": name} for name in order]}}
    names = [item["name"] for item in strategic_merge(POD, pod(live), body)["spec"]["containers"]]
    assert names == [name for name in order if name in by_name(live)]


@given(FINALIZERS, FINALIZERS, FINALIZERS)
def test_texts_are_added_and_removed_once(live, added, removed):
    both = {"finalizers": added, "$deleteFromPrimitiveList/finalizers": removed}
    left = strategic_merge(POD, pod([], live), {"metadata": both})["metadata"]["finalizers"]
    assert len(left) == len(set(left))
    assert set(left) == (set(live) | set(added)) - set(removed)


@given(CONTAINERS)
def test_a_replaced_list_is_the_one_of_the_patch(live):
    patch = [{"$patch": "replace"}, {"name": "z", "image": "n"}]
    merged = strategic_merge(POD, pod(live), {"spec": {"containers": patch}})
    assert merged["spec"]["containers"] == [{"name": "z", "image": "n"}]
