"""The rights that a manager needs: those of its declarations, in the namespaces where it works, and no more."""

from __future__ import annotations

from typing import Any

import pytest

from kubeshard import (
    CacheSettings,
    ConfigMap,
    Context,
    Controller,
    KubeObject,
    LeaderElection,
    Manager,
    Sharding,
    StatusPages,
    Struct,
    Watch,
)
from kubeshard.cache import Scope
from kubeshard.controller import Finalizer
from kubeshard.controller.generator import Generator
from kubeshard.core import Grant, GroupResource
from kubeshard.core.selectors import Selector
from kubeshard.manager.roles import roles
from kubeshard.shard import DeclaredRing
from kubeshard.sharding.api import RingGroupResource, RingResource
from kubeshard.webhook import Webhooks, converts, validates


class SiteStatus(Struct):
    phase: str = ""


class Site(KubeObject, group="example.com", version="v1"):
    status: SiteStatus | None = None


class OldSite(KubeObject, group="example.com", version="v0", kind="Site"):
    pass


class Theme(KubeObject, group="example.com", version="v1", namespaced=False):
    pass


class Secret(KubeObject, version="v1"):
    pass


class Pod(KubeObject, version="v1"):
    pass


async def reconcile(ctx: Context, site: Site) -> None: ...


def sites(**options: Any) -> Controller[Site]:
    return Controller(name="site", reconciler=reconcile, primary=options.pop("primary", Site), **options)


def granted(manager: Manager, **options: Any) -> dict[str, str]:
    """Yields verbs by role and resource: `Role n leases.coordination.k8s.io own`."""
    found = {}
    for role in roles(manager.grants(), "op", **options):
        if role["kind"].endswith("Binding"):
            continue
        place = " ".join(
            [role["kind"], *([role["metadata"]["namespace"]] if "namespace" in role["metadata"] else [])]
        )
        for rule in role["rules"]:
            for resource in rule["resources"]:
                dotted = f"{resource}.{rule['apiGroups'][0]}".rstrip(".")
                only = " ".join(rule.get("resourceNames", ()))
                found[f"{place} {dotted} {only}".strip()] = " ".join(rule["verbs"])
    return found


def test_what_a_controller_declares_is_granted_and_nothing_else() -> None:
    controller = sites(
        owns=[ConfigMap],
        reads=[Secret],
        watches=[Watch(Theme, to=lambda reader, theme: [])],
    )
    assert granted(Manager([controller])) == {
        "ClusterRole sites.example.com": "get list watch",
        "ClusterRole sites/status.example.com": "patch",
        "ClusterRole sites/finalizers.example.com": "update",
        "ClusterRole configmaps": "get list watch create patch",
        "ClusterRole secrets": "get list watch",
        "ClusterRole themes.example.com": "get list watch",
        "ClusterRole events.events.k8s.io": "create patch",
    }


class Whole(KubeObject, group="example.com", version="v1", complete=True):
    status: SiteStatus | None = None


async def cleaned(ctx: Context, obj: Any) -> None: ...


async def generated(ctx: Context, obj: Any) -> list[KubeObject]:
    return []


def test_finalizers_generators_and_complete_classes_need_rights_of_their_own() -> None:
    whole = Controller(
        name="whole", reconciler=cleaned, primary=Whole, finalizers=[Finalizer("example.com/clean", cleaned)]
    )
    found = granted(Manager([whole]))
    assert found["ClusterRole wholes.example.com"] == "get list watch patch"
    assert found["ClusterRole wholes/status.example.com"] == "update patch"
    pods = Controller(name="pods", reconciler=Generator(generated), primary=Pod, applies=[ConfigMap])
    found = granted(Manager([pods]))
    assert found["ClusterRole pods"] == "get list watch patch"
    assert found["ClusterRole configmaps"] == "get list watch create patch delete"


def test_what_a_controller_applies_it_may_also_delete_and_remember_at_the_owner() -> None:
    scope = Scope(frozenset({"a"}))
    controller = sites(owns=[Secret], applies=[Watch(ConfigMap, scope=scope)])
    assert granted(Manager([controller])) == {
        "ClusterRole sites.example.com": "get list watch patch",
        "ClusterRole sites/status.example.com": "patch",
        "ClusterRole sites/finalizers.example.com": "update",
        "ClusterRole secrets": "get list watch create patch",
        "ClusterRole events.events.k8s.io": "create patch",
        "Role a configmaps": "get list watch create patch delete",
    }
    assert (
        granted(Manager([sites(applies=[ConfigMap])]))["ClusterRole sites/finalizers.example.com"] == "update"
    )


def test_what_the_code_does_beyond_is_declared() -> None:
    controller = sites(
        grants=[Grant.on(Secret, "delete"), Grant.on(Pod, "create", subresource="eviction", namespace="n")]
    )
    found = granted(Manager([controller]))
    assert found["ClusterRole secrets"] == "delete"
    assert found["Role n pods/eviction"] == "create"
    with pytest.raises(TypeError, match=r"grants takes a list, as in grants=\[Grant"):
        sites(grants=[Secret])


def test_where_the_manager_works_in_some_namespaces_it_needs_roles_there_only() -> None:
    scope = Scope(frozenset({"a", "b"}))
    controller = sites(
        owns=[Watch(ConfigMap, scope=Scope(frozenset({"a"})))], watches=[Watch(Theme, to=lambda r, t: [])]
    )
    found = granted(Manager([controller], cache=CacheSettings(default_scope=scope)))
    assert found["Role b sites.example.com"] == "get list watch"
    assert found["Role a events.events.k8s.io"] == "create patch"
    assert found["Role a configmaps"] == "get list watch create patch"
    assert "Role b configmaps" not in found
    assert [place for place in found if place.startswith("ClusterRole")] == ["ClusterRole themes.example.com"]
    one = Manager([sites()], cache=CacheSettings(scopes={Site.KIND: Scope(frozenset({"c"}))}))
    assert granted(one)["Role c sites.example.com"] == "get list watch"


def test_a_watch_of_some_labels_needs_no_rights_beyond_the_managers_namespaces() -> None:
    scope = CacheSettings(default_scope=Scope(frozenset({"a"})))
    labelled = sites(owns=[Watch(ConfigMap, scope=Scope(labels=Selector.parse("app=web")))])
    found = granted(Manager([labelled], cache=scope))
    assert found["Role a configmaps"] == "get list watch create patch"
    assert not [place for place in found if place.startswith("ClusterRole")]


def test_leader_election_needs_its_own_lease() -> None:
    manager = Manager(
        [],
        leader_election=LeaderElection(name="op", namespace="sys"),
        status_pages=StatusPages(metrics_auth=True),
    )
    assert granted(manager) == {
        "Role sys leases.coordination.k8s.io": "create",
        "Role sys leases.coordination.k8s.io op": "get update",
        "ClusterRole tokenreviews.authentication.k8s.io": "create",
        "ClusterRole subjectaccessreviews.authorization.k8s.io": "create",
    }


def test_a_shard_needs_its_lease_its_ring_and_patches_of_what_is_sharded() -> None:
    controller = sites(owns=[ConfigMap])
    found = granted(Manager([controller], sharding=Sharding("ring")), namespace="sys")
    assert found["Role sys leases.coordination.k8s.io"] == "get list watch create update"
    assert found["ClusterRole controllerrings.sharding.timebertt.dev"] == "get"
    assert found["ClusterRole sites.example.com"] == "get list watch patch"
    assert found["ClusterRole configmaps"] == "get list watch create patch"
    given = RingResource(
        group="example.com",
        resource="sites",
        controlled_resources=(RingGroupResource(group="", resource="secrets"),),
    )
    found = granted(
        Manager([controller], sharding=Sharding(DeclaredRing("ring", [given]), namespace="elsewhere"))
    )
    assert found["Role elsewhere leases.coordination.k8s.io"] == "get list watch create update"
    assert found["ClusterRole secrets"] == "get list watch patch"
    assert not [place for place in found if "controllerrings" in place]


def test_a_sharder_in_the_manager_needs_all_leases_and_what_it_assigns() -> None:
    controller = sites(primary=Watch(Site, sharded=True), owns=[Watch(ConfigMap, sharded=True)])
    found = granted(Manager([controller], sharding=Sharding("ring", mode="both")))
    assert found["ClusterRole leases.coordination.k8s.io"] == "list watch create update patch delete"
    assert found["Role leases.coordination.k8s.io"] == "get"
    assert found["ClusterRole namespaces"] == "get list watch"
    assert found["ClusterRole sites.example.com"] == "get list watch patch"


@validates(Site)
def valid(site: Site) -> None: ...


@converts(OldSite, Site)
def up(old: OldSite) -> Site:
    return Site()


@converts(Site, OldSite)
def down(site: Site) -> OldSite:
    return OldSite()


def test_webhooks_need_their_registration_and_their_certificate() -> None:
    found = granted(Manager(servers=[Webhooks("op", [valid, up, down])]))
    assert found == {
        "ClusterRole mutatingwebhookconfigurations.admissionregistration.k8s.io": "create",
        "ClusterRole mutatingwebhookconfigurations.admissionregistration.k8s.io op": "get patch",
        "ClusterRole validatingwebhookconfigurations.admissionregistration.k8s.io": "create",
        "ClusterRole validatingwebhookconfigurations.admissionregistration.k8s.io op": "get patch",
        "ClusterRole customresourcedefinitions.apiextensions.k8s.io sites.example.com": "get patch",
        "Role secrets": "create",
        "Role secrets op-webhook-cert": "get update",
    }
    assert granted(Manager(servers=[Webhooks("op", [valid], url="https://a", register=False)])) == {}


def test_a_role_has_nothing_that_another_rule_grants_already() -> None:
    leases = GroupResource("coordination.k8s.io", "leases")
    (everywhere, own) = roles(
        [
            Grant.on(leases, "get"),
            Grant.on(leases, "get", "update", namespace=None),
            Grant.on(leases, "update", namespace=None, name="a"),
        ],
        "op",
        namespace="sys",
    )
    assert [rule["verbs"] for rule in everywhere["rules"]] == [["get"]]
    assert own["rules"] == [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["update"]}
    ]


def test_a_service_account_is_bound_to_every_role() -> None:
    manager = Manager([sites()], leader_election=LeaderElection(name="op", namespace="sys"))
    found = list(roles(manager.grants(), "op", account=("sys", "bot")))
    assert [role["kind"] for role in found] == ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]
    assert found[3]["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "op"}
    assert found[3]["metadata"] == {"name": "op", "namespace": "sys"}
    assert found[3]["subjects"] == [{"kind": "ServiceAccount", "namespace": "sys", "name": "bot"}]
