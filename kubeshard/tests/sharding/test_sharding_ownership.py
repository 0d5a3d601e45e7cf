"""One rule says whose an object is: the planner, the shard's fence and the webhook answer from the same table.

Every combination of scopes, levels, ways to name the owner, and places: see `cases`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import NamedTuple

import pytest

from kubeshard.core.kinds import GroupResource, Kind, TypeMeta
from kubeshard.core.objects import ObjectMeta, OwnerReference
from kubeshard.core.owners import NOTED_OWNER
from kubeshard.sharding.api import RingGroupResource, RingResource
from kubeshard.sharding.hash_ring import HashRing
from kubeshard.sharding.names import shard_label
from kubeshard.sharding.planner import Action, RingView, plan
from kubeshard.sharding.ring_resources import Belongs, RingResources, belongs, owner_kinds

GROUP = "example.com"
SHARDS = ("a", "b", "c", "d")
SELECTED, OTHER = "team", "elsewhere"


class Case(NamedTuple):
    """A main object (App), one that it may control (Release), and the object in question (Job), whose owner is named in
    this way.
    """

    app_namespaced: bool
    release_namespaced: bool
    job_namespaced: bool
    names: str
    selected: bool
    """Whether the ring selects the Job's namespace."""


def cases() -> Iterator[Case]:
    scopes = (True, False)
    ways = ("app", "release", "note", "note of a release", "foreign", "nobody", "orphaned release")
    for case in map(Case._make, product(scopes, scopes, scopes, ways, scopes)):
        if case.selected or case.job_namespaced:  # else it is in no namespace
            yield case


def kinds(case: Case) -> Mapping[GroupResource, Kind]:
    scopes = {"App": case.app_namespaced, "Release": case.release_namespaced, "Job": case.job_namespaced}
    found = [Kind(GROUP, "v1", name, f"{name.lower()}s", scope) for name, scope in scopes.items()]
    return {kind.group_resource: kind for kind in found}


def controller(kind: str, name: str) -> OwnerReference:
    return OwnerReference(
        api_version=f"{GROUP}/v1", kind=kind, name=name, uid=f"uid of {name}", controller=True
    )


RESOURCES = RingResources(
    [
        RingResource(
            group=GROUP,
            resource="apps",
            controlled_resources=tuple(
                RingGroupResource(group=GROUP, resource=r) for r in ("releases", "jobs")
            ),
        )
    ]
)
JOBS = RESOURCES.entry(GroupResource(GROUP, "jobs"))
APPS = RESOURCES.entry(GroupResource(GROUP, "apps"))
KNOWN = {"uid of release": controller("App", "app"), "uid of orphan": None}
RING_LABEL = shard_label("ring")


def job(case: Case, **labels: str) -> ObjectMeta:
    namespace = (SELECTED if case.selected else OTHER) if case.job_namespaced else ""
    place = f"{SELECTED}/" if case.app_namespaced else "/"
    note = {
        "note": f"App.{GROUP} {place}app",
        "note of a release": f"Release.{GROUP} {SELECTED}/release",
    }.get(case.names)
    reference = {
        "app": controller("App", "app"),
        "release": controller("Release", "release"),
        "orphaned release": controller("Release", "orphan"),
        "foreign": controller("Cron", "cron"),
    }.get(case.names)
    return ObjectMeta(
        name="job",
        namespace=namespace,
        uid="uid of job",
        labels=labels or None,
        annotations={NOTED_OWNER: note} if note else None,
        owner_references=(reference,) if reference else (),
    )


def legal(case: Case) -> bool:
    """Whether the garbage collector lets such an object be: an owner is cluster-scoped or in the same namespace."""
    if case.names == "app" and case.app_namespaced:
        return case.job_namespaced
    if case.names == "release" and case.app_namespaced and not case.release_namespaced:
        return False
    if case.names in ("release", "orphaned release") and case.release_namespaced:
        return case.job_namespaced
    return True


LEGAL = [case for case in cases() if legal(case)]


def view(case: Case, *, known: bool = True, shards: tuple[str, ...] = SHARDS) -> RingView:
    return RingView(
        "ring",
        RESOURCES,
        HashRing(shards),
        namespaces=frozenset({SELECTED}),
        owner_kinds=owner_kinds(RESOURCES, kinds(case)),
        controllers=KNOWN if known else {},
    )


def of_app(case: Case) -> ObjectMeta:
    """The App that the Job belongs to: where it is in a namespace, and names it by a reference, in that of the Job."""
    by_reference = case.names in ("app", "release")
    mine = (SELECTED if case.selected else OTHER) if by_reference and case.job_namespaced else SELECTED
    return ObjectMeta(name="app", namespace=mine if case.app_namespaced else "")


def whose(case: Case) -> Belongs:
    entry = JOBS
    return belongs(entry, owner_kinds(RESOURCES, kinds(case)).get(entry.resource), job(case))


@pytest.mark.parametrize("case", LEGAL, ids=str)
def test_an_object_of_which_the_label_is_the_fence_is_one_that_every_sharder_moves_with_its_owner(
    case: Case,
) -> None:
    decided = plan(view(case), JOBS, TypeMeta(f"{GROUP}/v1", "Job"), job(case, **{RING_LABEL: "gone"}))
    owner = plan(view(case), APPS, TypeMeta(f"{GROUP}/v1", "App"), of_app(case))
    match whose(case):
        case Belongs.OWNER:
            if owner.action is Action.NOTHING:  # the ring does not select it, and no shard works on it
                assert decided.action is Action.NOTHING
            else:
                assert (decided.action, decided.key, decided.target) == (Action.MOVE, owner.key, owner.target)
            blind = plan(
                view(case, known=False),
                JOBS,
                TypeMeta(f"{GROUP}/v1", "Job"),
                job(case, **{RING_LABEL: "gone"}),
            )
            assert blind == decided, "its own metadata suffice"
        case Belongs.FAR:
            assert decided.key in (owner.key, ""), "with its owner, or left to the owner's shard"
        case _:
            assert (decided.action, decided.key) == (Action.NOTHING, "")


@pytest.mark.parametrize("case", LEGAL, ids=str)
def test_whose_an_object_is(case: Case) -> None:
    near = (not case.app_namespaced and not case.job_namespaced) or case.app_namespaced
    expected = {
        "app": Belongs.OWNER if near else Belongs.FAR,
        "release": Belongs.FAR,
        "orphaned release": Belongs.FAR,
        "note": Belongs.FAR,
        "note of a release": Belongs.NOBODY,
        "foreign": Belongs.NOBODY,
        "nobody": Belongs.NOBODY,
    }[case.names]
    assert whose(case) is expected


@pytest.mark.parametrize("case", LEGAL, ids=str)
def test_where_the_namespace_is_selected_an_object_is_placed_with_the_main_object_that_it_belongs_to(
    case: Case,
) -> None:
    belongs_to_app = case.names in ("app", "release", "note")
    decided = plan(view(case), JOBS, TypeMeta(f"{GROUP}/v1", "Job"), job(case))
    owner = plan(view(case), APPS, TypeMeta(f"{GROUP}/v1", "App"), of_app(case))
    if belongs_to_app and case.selected:
        assert (decided.action, decided.key, decided.target) == (Action.ASSIGN, owner.key, owner.target)
    else:
        assert decided.action is Action.NOTHING


@pytest.mark.parametrize("case", LEGAL, ids=str)
def test_without_the_kinds_as_in_go_only_the_controller_counts_in_the_objects_own_namespace(
    case: Case,
) -> None:
    go = RingView("ring", RESOURCES, HashRing(SHARDS))
    decided = plan(go, JOBS, TypeMeta(f"{GROUP}/v1", "Job"), job(case))
    reference = next(iter(job(case).owner_references), None)
    key = f"{GROUP}/{reference.kind}/{job(case).namespace}/{reference.name}" if reference else ""
    assert decided.key == key


def test_what_controls_the_controller_is_looked_up_before_anything_is_decided() -> None:
    case = Case(True, True, True, "release", True)
    decided = plan(view(case, known=False), JOBS, TypeMeta(f"{GROUP}/v1", "Job"), job(case))
    assert decided.action is Action.LOOK_UP
