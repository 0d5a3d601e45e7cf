"""The resources that a ring shards: declared by controllers, or by a ControllerRing, with which the declarations must
agree.
"""

from __future__ import annotations

from typing import Any

import pytest

from kubeshard.controller import Context, Controller, Watch
from kubeshard.core import ConfigMap, KubeObject, Secret
from kubeshard.core.errors import ConfigurationError
from kubeshard.core.kinds import GroupResource
from kubeshard.shard.declared_resources import check_agreement, declared_resources
from kubeshard.sharding.api import RingGroupResource, RingResource
from kubeshard.sharding.ring_resources import RingResources


class Site(KubeObject, group="example.com", version="v1"):
    pass


class Page(KubeObject, group="example.com", version="v1"):
    pass


class Lease(KubeObject, group="coordination.k8s.io", version="v1"):
    pass


def sharded(kind: type[KubeObject]) -> Watch[Any]:
    return Watch(kind, sharded=True)


def mapped(kind: type[KubeObject], *, sharded: bool) -> Watch[Any]:
    return Watch(kind, to=lambda reader, obj: (), sharded=sharded)


def controller(name: str, primary: Any, **more: Any) -> Controller[Any]:
    async def reconcile(ctx: Context, obj: Any) -> None: ...

    return Controller(name=name, reconciler=reconcile, primary=primary, **more)


def main(resource: str, *controlled: str) -> RingResource:
    followers = tuple(RingGroupResource(group="", resource=each) for each in controlled)
    return RingResource(group="example.com", resource=resource, controlled_resources=followers)


def test_the_primary_kind_is_main_and_what_is_owned_or_mapped_is_controlled_by_it() -> None:
    sites = controller(
        "sites",
        sharded(Site),
        owns=[sharded(ConfigMap), Watch(Page)],
        watches=[mapped(Secret, sharded=True)],
    )
    assert declared_resources([sites]) == (main("sites", "configmaps", "secrets"),)


def test_nothing_is_declared_where_no_watch_says_so() -> None:
    sites = controller("sites", Site, owns=[ConfigMap], watches=[mapped(Secret, sharded=False)])
    assert declared_resources([sites]) == ()


def test_a_kind_that_another_controller_reconciles_is_main_also_for_who_owns_it() -> None:
    sites = controller("sites", sharded(Site), owns=[sharded(Page), sharded(ConfigMap)])
    pages = controller("pages", sharded(Page), owns=[sharded(ConfigMap)])
    expected = (main("pages", "configmaps"), main("sites", "configmaps"))
    assert declared_resources([sites, pages]) == declared_resources([pages, sites]) == expected
    entry = RingResources(expected).entry(GroupResource("", "configmaps"))
    assert len(entry.owners) == 2


def test_owned_kinds_cannot_be_sharded_without_their_owner() -> None:
    with pytest.raises(
        ConfigurationError, match=r"controller sites: configmaps cannot be sharded without sites"
    ):
        declared_resources([controller("sites", Site, owns=[sharded(ConfigMap)])])


def test_what_no_ring_may_shard_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"leases.coordination.k8s.io. cannot be sharded"):
        declared_resources([controller("leases", sharded(Lease))])


@pytest.mark.parametrize("given", [(main("pages"),), (main("pages", "secrets"), main("sites"))])
def test_a_controllerring_of_other_main_resources_or_roles_is_refused(
    given: tuple[RingResource, ...],
) -> None:
    with pytest.raises(ConfigurationError, match="correct the ControllerRing, or the watches"):
        check_agreement("ring", RingResources([main("sites"), main("books")]), RingResources(given))
    with pytest.raises(ConfigurationError, match="is declared as a controlled resource"):
        check_agreement(
            "ring",
            RingResources([main("sites", "secrets")]),
            RingResources([main("sites"), RingResource(group="", resource="secrets")]),
        )


def test_a_controllerring_may_shard_more_and_leave_out_what_is_controlled() -> None:
    declared = RingResources([main("sites", "secrets")])
    assert check_agreement("ring", declared, RingResources([main("sites", "secrets"), main("pages")])) == ()
    assert check_agreement("ring", declared, RingResources([main("sites")])) == (
        "secrets is declared as sharded, but not in the ControllerRing",
    )
