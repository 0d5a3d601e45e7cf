"""Examines an installation: whether it is complete, current, permitted and at work.

The sharder service is examined unless there is no trace of it and all rings have their sharders inside their operators.

Every part is examined for itself, so a right that the user lacks leaves out one part, and the diagnosis says which.

| part | what must hold |
|---|---|
| definition | the CustomResourceDefinition of ControllerRing is served, and knows all fields |
| deployment | its pods are available, and of the version of this program |
| leader | a sharder holds and renews the Lease of the election; left out where the Deployment wants no pods |
| rights | the sharder's account may do what the sharder does |
| policies | the admission policies that confine this account are installed, bound and current |
| clocks | this machine, the leader and the shards have the API server's time |
| ring | what `kubectl shard status` reports: conditions, shards, objects without a shard, stuck drains |
| rights on a ring | the sharder may assign the objects of the ring's resources; inside an operator: all that it needs |
| selection of a ring | by ranges: the API server sends each shard its own objects only |
| webhook of a ring | the API server calls it (`webhook_call`), and its certificates are valid |
| deleted rings | no shards wait for the objects of a ring that does not exist, and no webhook is called for one |

Guaranteed: nothing is written. Not guaranteed: that everything works if nothing is found; networks between nodes, for
example, are seen through the webhook only.

RBAC: see `cluster`, `counts` and `webhook_call`; get on customresourcedefinitions, deployments, secrets and the
policies, and on the pod of a sharder inside an operator; create on subjectaccessreviews.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from kubeshard.client.client import Client
from kubeshard.core.builtin import Lease, Secret
from kubeshard.core.errors import ApiError, Forbidden, NotFound
from kubeshard.core.grants import Grant
from kubeshard.core.kinds import GroupResource
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import Form, Key, KubeObject, field
from kubeshard.core.partial_kinds import CustomResourceDefinition, MutatingWebhookConfiguration, Pod
from kubeshard.inspection.cluster import (
    SILENT,
    ClusterSnapshot,
    Sharder,
    read_cluster,
    read_leader,
    read_sharder,
    server_time,
)
from kubeshard.inspection.diagnosis import Diagnosis, Finding, Unchecked
from kubeshard.inspection.errors import Unanswerable, needing
from kubeshard.inspection.field_times import TOLERATED, wrong_clocks
from kubeshard.inspection.ranges import SeenRanges
from kubeshard.inspection.ring import SeenRing, see
from kubeshard.inspection.status import EXAMINE, Severity, status_of
from kubeshard.inspection.webhook_call import causes, is_called
from kubeshard.kinds import Deployment, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding
from kubeshard.manifests.policies import sharder_policies
from kubeshard.manifests.rights import ring_grants, sharder_grants
from kubeshard.manifests.template import resolved
from kubeshard.shard.range_driver import FEATURE
from kubeshard.shard.settings import DeclaredRing, Ranges
from kubeshard.shard.sharding import Sharding
from kubeshard.sharder.webhook_config import SECRET_NAME, keeper_of
from kubeshard.sharding.api import VERSION
from kubeshard.sharding.conditions import OPTIONAL_VERBS
from kubeshard.sharding.crd import NAME as DEFINITION
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard.sharding.names import RING_LABEL, SYSTEM_NAMESPACE, WEBHOOK_PATH_PREFIX, webhook_config_name
from kubeshard.version import __version__

SHARDER = "sharder"
"""The name of the Deployment, the container, the account and the election."""
APPLY = "kubectl apply --server-side --force-conflicts -f -"
"""Also over what somebody else has changed."""
AT_ONCE = 8

_REVIEWS = GroupResource("authorization.k8s.io", "subjectaccessreviews")
POLICY = ValidatingAdmissionPolicy.KIND.kind


class Specified(KubeObject):
    """A kind of which the specification is compared with the manifests."""

    spec: Mapping[str, Any] = field(default_factory=dict)


async def examine(client: Client, namespace: str = SYSTEM_NAMESPACE) -> Diagnosis:
    """Examines the installation whose sharder is in that namespace. Raises ApiError if the cluster does not answer."""
    now = await server_time(client)
    doctor = _Doctor(client, namespace, now)
    await doctor.examine()
    return Diagnosis(namespace, doctor.examined, doctor.findings, doctor.unchecked)


Account = tuple[str, str]
"""The namespace and name of a service account."""


class _Lacking(NamedTuple):
    """Verbs that an account may not do with a resource; `where` is a namespace, or "" for all."""

    resource: GroupResource
    where: str
    verbs: list[str]

    def __str__(self) -> str:
        return f"{', '.join(self.verbs)} {self.resource}{f' in {self.where}' if self.where else ''}"

    @property
    def severity(self) -> Severity:
        return "warning" if _is_optional(self.resource, self.verbs) else "error"

    def grant(self, account: Account) -> str:
        namespace, name = account
        role = f"{name}-sharder-{self.resource.resource.replace('/', '-')}"
        kind, place = ("role", f" --namespace {self.where}") if self.where else ("clusterrole", "")
        return (
            f"kubectl create {kind} {role}{place} --verb={','.join(self.verbs)} --resource={self.resource}"
            f" && kubectl create {kind}binding {role}{place} --{kind}={role} --serviceaccount={namespace}:{name}"
        )


class _Doctor:
    def __init__(self, client: Client, namespace: str, now: float) -> None:
        self._client = client
        self._namespace = namespace
        self._now = now
        self._election = Key(namespace, SHARDER)
        self._account = SHARDER
        self._wants_pods = True
        """Whether there is a Deployment that is not scaled to zero, as far as one may see it."""
        self._kubectl = f"kubectl --namespace {namespace}"
        self.examined: list[str] = []
        self.findings: list[Finding] = []
        self.unchecked: list[Unchecked] = []

    async def examine(self) -> None:
        try:
            cluster = await read_cluster(self._client, self._election)
        except (Unanswerable, ApiError) as error:
            cluster = None
            self.unchecked.append(Unchecked("rings", str(error)))
        if cluster and await self._is_empty(cluster):
            self.examined.append("installation")
            problem = (
                "nothing is sharded here: there is neither a ring nor a sharder. An operator with Sharding(..., "
                'mode="both") needs nothing installed; if a sharder service is to do it, install that'
            )
            self.findings.append(Finding("installation", "warning", problem, self._install("")))
            return
        if cluster is None or await self._has_service(cluster):
            await self._part("definition", self._definition)
            await self._part("deployment", self._deployment)
            if not self._wants_pods:
                self.unchecked.append(Unchecked("leader", "without pods of the Deployment, none can lead"))
            elif cluster and cluster.defined:
                await self._part("leader", self._leader, cluster)
            account = (self._namespace, self._account)
            await self._part("rights", self._rights, sharder_grants(), account, self._install("rights"))
            await self._part("policies", self._policies)
        await self._part("clocks", self._clocks, cluster)
        if cluster:
            for name in cluster.rings:
                await self._ring(cluster, name)
            self.unchecked += [Unchecked(f"ring {name}", SILENT) for name in cluster.silent()]
            await self._part("deleted rings", self._deleted_rings, cluster)

    async def _is_empty(self, cluster: ClusterSnapshot) -> bool:
        """Whether there is no trace of sharding, as far as one may see it."""
        if cluster.rings or cluster.defined or cluster.inside:
            return False
        for kind in Lease, Deployment:
            try:
                await self._client.get(kind, SHARDER, self._namespace)
                return False
            except NotFound:
                continue
            except Forbidden:
                return False
        return True

    async def _has_service(self, cluster: ClusterSnapshot) -> bool:
        """Whether a sharder service should be here, or something of one is."""
        if not cluster.rings and not cluster.inside:
            return True
        if any(not cluster.leads_inside(each) for each in cluster.rings):
            return any(not cluster.is_declared(each) for each in cluster.rings)
        with suppress(NotFound, Forbidden):
            await self._client.get(Lease, SHARDER, self._namespace)
            return True
        return False

    async def _part(self, name: str, check: Callable[..., AsyncIterator[Finding]], *arguments: Any) -> None:
        self.examined.append(name)
        try:
            async for finding in check(name, *arguments):
                self.findings.append(finding)
        except (Unanswerable, ApiError) as error:
            self.unchecked.append(Unchecked(name, str(error)))

    def _install(self, part: str, *settings: str) -> str:
        chosen = [
            *([] if self._namespace == SYSTEM_NAMESPACE else [f"namespace={self._namespace}"]),
            *([] if self._account == SHARDER else [f"serviceAccount.name={self._account}"]),
            *settings,
        ]
        values = "".join(f" --set {each}" for each in chosen)
        return f"kubeshard manifests sharder{f' --part {part}' if part else ''}{values} | {APPLY}"

    async def _definition(self, part: str) -> AsyncIterator[Finding]:
        install = self._install("crd")
        with needing("get", CustomResourceDefinition.KIND.group_resource):
            try:
                found = await self._client.get(CustomResourceDefinition, DEFINITION)
            except NotFound:
                yield Finding(part, "error", f"the CustomResourceDefinition {DEFINITION} is missing", install)
                return
        conditions = {each.get("type"): each.get("status") for each in found.status.get("conditions") or ()}
        if conditions.get("Established") != "True":
            yield Finding(
                part, "error", f"{DEFINITION} is not established", f"kubectl describe crd {DEFINITION}", False
            )
        served = [each for each in found.spec.get("versions") or () if each.get("served")]
        ours = next((each for each in served if each.get("name") == VERSION), None)
        if ours is None:
            names = ", ".join(str(each.get("name")) for each in served) or "none"
            yield Finding(
                part, "error", f"version {VERSION} of {DEFINITION} is not served, but {names}", install
            )
            return
        (wanted,) = controller_ring_crd()["spec"]["versions"]
        if lacking := list(_lacking(wanted["schema"]["openAPIV3Schema"], _schema_of(ours))):
            yield Finding(part, "error", f"{DEFINITION} is old: it lacks {', '.join(lacking)}", install)

    async def _leader(self, part: str, cluster: ClusterSnapshot) -> AsyncIterator[Finding]:
        with needing("get", GroupResource("coordination.k8s.io", "leases")):
            if leaderless := await read_leader(self._client, cluster):
                yield Finding(
                    part, "error", leaderless, f"{self._kubectl} rollout restart deployment/{SHARDER}"
                )

    async def _deployment(self, part: str) -> AsyncIterator[Finding]:
        with needing("get", Deployment.KIND.group_resource):
            try:
                found = await self._client.get(Deployment, SHARDER, self._namespace)
            except NotFound:
                self._wants_pods = False
                yield Finding(
                    part,
                    "error",
                    f"there is no Deployment {self._namespace}/{SHARDER}",
                    self._install("sharder").replace(" |", " --set image=REGISTRY/kubeshard:TAG |"),
                )
                return
        wanted = 1 if found.spec.replicas is None else found.spec.replicas
        available = found.status.available_replicas or 0
        if not wanted:
            self._wants_pods = False
            scale = f"{self._kubectl} scale deployment/{SHARDER} --replicas=2"
            yield Finding(part, "error", f"the Deployment {SHARDER} is scaled to zero", scale)
        elif available < wanted:
            yield Finding(
                part,
                "warning" if available else "error",
                f"{available} of {wanted} pods of the Deployment {SHARDER} are available",
                f"{self._kubectl} describe pods -l app.kubernetes.io/component={SHARDER}",
                fixes=False,
            )
        if (pod := found.spec.template.spec) is None:
            return
        self._account = pod.service_account_name or SHARDER
        for container in pod.containers:
            if container.name == SHARDER:
                for finding in self._version(part, str(container.image)):
                    yield finding

    def _version(self, part: str, image: str) -> Iterator[Finding]:
        repository, tag = split_image(image)
        if not repository.endswith("kubeshard"):
            return  # another sharder, with versions of its own
        if not _VERSION.match(tag):
            self.unchecked.append(Unchecked(part, f"the image {image} does not say which version it is"))
        elif tag.removeprefix("v") != __version__:
            yield Finding(
                part,
                "warning",
                f"the sharder is of version {tag.removeprefix('v')}, this program of {__version__}",
                f"{self._kubectl} set image deployment/{SHARDER} {SHARDER}={repository}:{__version__}",
            )

    async def _rights(
        self, part: str, grants: Iterable[Grant], account: Account, command: str
    ) -> AsyncIterator[Finding]:
        for lack in await self._lacking(grants, account):
            yield Finding(part, lack.severity, f"the sharder may not {lack}", command)

    async def _lacking(self, grants: Iterable[Grant], account: Account) -> list[_Lacking]:
        """What of it the account may not do."""
        asked = [(grant, verb) for grant in grants for verb in sorted(grant.verbs)]
        places = asyncio.Semaphore(AT_ONCE)

        async def may(grant: Grant, verb: str) -> bool:
            async with places:
                return await self._may(account, grant, verb)

        with needing("create", _REVIEWS):
            answers = await asyncio.gather(*(may(grant, verb) for grant, verb in asked))
        lacking: dict[tuple[GroupResource, str], list[str]] = {}
        for (grant, verb), allowed in zip(asked, answers, strict=True):
            if not allowed:
                where = "" if grant.namespace is ALL or grant.namespace is None else str(grant.namespace)
                lacking.setdefault((grant.resource, where), []).append(verb)
        return [_Lacking(resource, where, verbs) for (resource, where), verbs in lacking.items()]

    async def _may(self, account: Account, grant: Grant, verb: str) -> bool:
        namespace, name = account
        resource, _, subresource = grant.resource.resource.partition("/")
        spec = {
            "user": f"system:serviceaccount:{namespace}:{name}",
            "groups": [
                "system:serviceaccounts",
                f"system:serviceaccounts:{namespace}",
                "system:authenticated",
            ],
            "resourceAttributes": {
                "verb": verb,
                "group": grant.resource.group,
                "resource": resource,
                "subresource": subresource,
                "namespace": grant.namespace if isinstance(grant.namespace, str) else "",
                "name": grant.name,
            },
        }
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        answer = json.loads((await self._client.raw("POST", path, json.dumps(body).encode())).body)
        return bool((answer.get("status") or {}).get("allowed"))

    async def _policies(self, part: str) -> AsyncIterator[Finding]:
        variants = [_policies_as_made(self._account, pods) for pods in (False, True)]
        found: dict[tuple[str, str], Mapping[str, Any] | None] = {}
        for manifest in variants[0]:
            kind, name = manifest["kind"], manifest["metadata"]["name"]
            form = Form(
                (ValidatingAdmissionPolicy if kind == POLICY else ValidatingAdmissionPolicyBinding).KIND,
                Specified,
            )
            with needing("get", form.kind.group_resource):
                try:
                    found[kind, name] = (await self._client.get(form, name)).spec
                except NotFound:
                    found[kind, name] = None

        def wrong(wanted: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
            places = [(each["kind"], each["metadata"]["name"], each["spec"]) for each in wanted]
            return [(kind, name) for kind, name, spec in places if not as_made(found[kind, name], spec)]

        pods, changed = min(enumerate(map(wrong, variants)), key=lambda each: len(each[1]))
        install = self._install("policies", *(["policies.pods=true"] if pods else ()))
        replace = install.replace(APPLY, "kubectl replace -f -")
        for kind, name in changed:
            if found[kind, name] is None:
                effect = (
                    "a stolen credential can do more harm" if kind == POLICY else "its policy does nothing"
                )
                yield Finding(part, "warning", f"the {kind} {name} is missing: {effect}", install)
            else:
                yield Finding(part, "warning", f"the {kind} {name} is not that of {__version__}", replace)

    async def _clocks(self, part: str, cluster: ClusterSnapshot | None) -> AsyncIterator[Finding]:
        ahead = self._client.world.clock.wall() - self._now
        if abs(ahead) > TOLERATED:
            yield Finding(
                part, "warning", f"this machine's clock is {_off(ahead)}", "timedatectl set-ntp true"
            )
        inside = [lease.key for lease in cluster.inside.values()] if cluster else []
        async for clock in wrong_clocks(self._client, [self._election, *inside]):
            yield Finding(
                part,
                "warning",
                f"the clock of the holder of the Lease {clock.namespace}/{clock.name} is {_off(clock.ahead)}:"
                " set that of its node",
                f"kubectl --namespace {clock.namespace} get pods -o wide",
                fixes=False,
            )

    async def _ring(self, cluster: ClusterSnapshot, name: str) -> None:
        ring: SeenRing | None = None
        sharder = await read_sharder(self._client, cluster, name)
        known = sharder if sharder.inside else sharder._replace(problem=None)  # the leader was examined

        async def state(part: str) -> AsyncIterator[Finding]:
            nonlocal ring
            ring = await see(self._client, cluster, name)
            for place in sorted((ring.resource.shard_namespaces or frozenset()) - cluster.namespaces.keys()):
                yield Finding(
                    part,
                    "warning",
                    f"ring {name} expects shards in the namespace {place}, which does not exist",
                    f"kubectl create namespace {place}",
                )
            for trouble in (await status_of(self._client, cluster, name, known)).troubles:
                if trouble.command == EXAMINE:
                    continue  # that is under way
                if trouble.severity == "unknown":
                    self.unchecked.append(Unchecked(part, f"{trouble.problem}: {trouble.remedy}"))
                    continue
                yield Finding(part, trouble.severity, trouble.problem, trouble.command, trouble.fixes)

        await self._part(f"ring {name}", state)
        if ring is not None and ring.ranges is not None:
            await self._part(f"selection of ring {name}", self._selection, name, ring.ranges)
        if sharder.inside:
            ranges = None if ring is None else ring.ranges
            await self._part(f"rights on ring {name}", self._rights_inside, cluster, name, sharder, ranges)
            return
        grant = (
            f"kubectl get controllerring {name} -o yaml"
            f" | kubeshard manifests ring - --sharder {self._namespace}:{self._account}"
            f" | {APPLY}"
        )
        grants, account = ring_grants(cluster.rings[name]), (self._namespace, self._account)
        await self._part(f"rights on ring {name}", self._rights, grants, account, grant)
        if ring is not None and ring.ranges is None and not ring.resource.by_ranges:
            await self._part(f"webhook of ring {name}", self._webhook, ring)
            await self._part(f"certificates of ring {name}", self._certificates, ring)

    async def _rights_inside(
        self, part: str, cluster: ClusterSnapshot, name: str, sharder: Sharder, ranges: SeenRanges | None
    ) -> AsyncIterator[Finding]:
        place, ring = sharder.election.namespace, cluster.rings[name]
        with needing("get", Pod.KIND.group_resource):
            try:
                pod = await self._client.get(Pod, sharder.leader, place) if sharder.leader else None
            except NotFound:
                pod = None
        if pod is None:
            raise Unanswerable("the sharder does not lead in a pod, so its account is not known")
        account = (place, pod.spec.service_account_name or "default")
        grants = Sharding(
            name if ranges and ranges.by_cluster else DeclaredRing(name, ring.spec.resources),
            namespace=place,
            mode="both",
            delivery="labels"
            if ranges is None
            else Ranges(by=ranges.buckets.by, buckets=ranges.buckets.count),
        ).grants((), lambda _: None)
        for lack in await self._lacking(grants, account):
            yield Finding(
                part,
                lack.severity,
                f"the operator's account {place}/{account[1]} may not {lack}",
                lack.grant(account),
            )

    async def _selection(self, part: str, name: str, ranges: SeenRanges) -> AsyncIterator[Finding]:
        if not ranges.selected and not ranges.by_cluster:
            yield Finding(
                part,
                "warning",
                f"the API server ignores shardSelector, so each shard of ring {name} receives all objects, and leaves "
                f"out those of others: it selects as of Kubernetes 1.38, before with the feature gate {FEATURE}",
                "kubectl get --raw /metrics | grep kubernetes_feature_enabled",
                fixes=False,
            )

    async def _webhook(self, part: str, ring: SeenRing) -> AsyncIterator[Finding]:
        try:
            if await is_called(self._client, ring):
                return
        except (Unanswerable, ApiError):
            async for finding in causes(self._client, ring.name, self._namespace, part):
                yield finding
            raise
        found = 0
        async for finding in causes(self._client, ring.name, self._namespace, part):
            found += 1
            yield finding
        if not found:
            yield Finding(
                part,
                "error",
                f"the API server does not call the webhook of ring {ring.name}, though it could:"
                " its certificate, the network or a NetworkPolicy prevents it",
                "kubectl --namespace kube-system logs -l component=kube-apiserver --tail=-1"
                " | grep 'Failed calling webhook'",
                fixes=False,
            )

    async def _certificates(self, part: str, ring: SeenRing) -> AsyncIterator[Finding]:
        from kubeshard.inspection.certificates import bundle_problem, serving_problems, trusts

        name = webhook_config_name(ring.name)
        with needing("get", MutatingWebhookConfiguration.KIND.group_resource):
            try:
                config = await self._client.get(MutatingWebhookConfiguration, name)
            except NotFound:
                return  # a trouble of the ring
        keeper = keeper_of(config)
        if keeper is not None and keeper.namespace != self._namespace:
            there = f"kubectl shard doctor --namespace {keeper.namespace}"
            text = (
                f"the webhook of ring {ring.name} is kept by the sharder in the namespace {keeper.namespace}"
            )
            yield Finding(part, "warning", f"{text}: this is another installation", there, fixes=False)
            return
        again = f"kubectl delete mutatingwebhookconfiguration {name}"
        bundles = [_bundle(each.get("clientConfig") or {}) for each in config.webhooks]
        for bundle in bundles:
            if bundle and (problem := bundle_problem(bundle, self._now)):
                yield Finding(part, "error", f"the caBundle of ring {ring.name}'s webhook {problem}", again)
                return
        managed = config.metadata.annotation("cert-manager.io/inject-ca-from")
        secret = managed.rpartition("/")[2] if managed else SECRET_NAME
        with needing("get", Secret.KIND.group_resource):
            try:
                found = await self._client.get(Secret, secret, self._namespace)
            except NotFound:
                return  # its certificate is in files
        serving, own = (base64.b64decode((found.data or {}).get(key, "")) for key in ("tls.crt", "ca.crt"))
        foreign = [bundle for bundle in bundles if bundle and not trusts(bundle, serving)]
        if foreign and trusts(own, serving):
            text = f"the caBundle of ring {ring.name}'s webhook is not that of the sharder's certificate"
            yield Finding(part, "error", f"{text}: somebody else has set it", again)
            bundles = [own]
        renew = (
            f"cmctl renew --namespace {self._namespace} {secret}"
            if managed
            else f"{self._kubectl} delete secret {secret}"
        )
        host = next((_host(each.get("clientConfig") or {}) for each in config.webhooks), "")
        for useless, problem in serving_problems(serving, next(iter(bundles), b""), host, self._now):
            yield Finding(
                part,
                "error" if useless else "warning",
                f"the certificate in the Secret {self._namespace}/{secret} {problem}",
                renew,
            )

    async def _deleted_rings(self, part: str, cluster: ClusterSnapshot) -> AsyncIterator[Finding]:
        unled = cluster.unled()
        for name, each in unled.items():
            problem = f"ring {name}: {each.problem}; {each.remedy}"
            yield Finding(part, "warning", problem, each.command, fixes=False)
        for name in cluster.orphans():
            if name in unled:
                continue
            runs = cluster.runs(name)  # it would make its Lease again
            does = "get" if runs else "delete"
            yield Finding(
                part,
                "warning",
                f"{'shards run for' if runs else 'Leases of shards name'} the ring {name}, which does not exist:"
                " nobody assigns its objects",
                f"kubectl {does} leases --all-namespaces -l {RING_LABEL}={name}"
                f"{'' if runs else '  # if it was deleted on purpose'}",
                fixes=not runs,
            )
        with needing("list", MutatingWebhookConfiguration.KIND.group_resource):
            found = await self._client.list_all(MutatingWebhookConfiguration)
        wanted = {webhook_config_name(ring) for ring in cluster.rings if not cluster.is_declared(ring)}
        for config in found:
            called = [each.get("clientConfig") or {} for each in config.webhooks]
            if config.metadata.name not in wanted and any(map(_is_of_a_ring, called)):
                name = config.metadata.name
                yield Finding(
                    part,
                    "warning",
                    f"the webhook configuration {name} belongs to no ring: the sharder is called in vain",
                    f"kubectl delete mutatingwebhookconfiguration {name}",
                )


def _policies_as_made(account: str, pods: bool) -> list[Mapping[str, Any]]:
    """The policies and their bindings, for an account of that name. `pods`: the sharder may have webhooks for pods."""
    values = {"policies": {"pods": pods}, "serviceAccount": {"name": account}}
    return [resolved(each, values) for each in sharder_policies("policies.pods")]


def _bundle(called: Mapping[str, Any]) -> bytes:
    try:
        return base64.b64decode(called.get("caBundle") or "", validate=True)
    except binascii.Error:
        return b"?"


def _host(called: Mapping[str, Any]) -> str:
    """The name that API servers verify."""
    if service := called.get("service"):
        return f"{service.get('name')}.{service.get('namespace')}.svc"
    return urlsplit(str(called.get("url", ""))).hostname or ""


def _is_of_a_ring(called: Mapping[str, Any]) -> bool:
    path = (called.get("service") or {}).get("path") or urlsplit(str(called.get("url", ""))).path
    return WEBHOOK_PATH_PREFIX in path


_DEFAULTS: Mapping[str, Any] = {"matchPolicy": "Equivalent", "scope": "*", "failurePolicy": "Fail"}
"""Of fields of policies and bindings; of all others it is that they are empty."""


def as_made(found: Any, wanted: Any, key: str = "") -> bool:
    """Whether this is what the manifests say, and nothing more than that but for defaults."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(
            as_made(found.get(each), wanted.get(each), each) for each in {*found, *wanted}
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(as_made, found, wanted))
    if wanted is None:
        if isinstance(found, Mapping):
            return as_made(found, {})
        return not found or found == _DEFAULTS.get(key)
    return bool(found == wanted)


_VERSION = re.compile(r"v?\d+\.\d+")


def split_image(image: str) -> tuple[str, str]:
    """Repository and tag; "" without a tag."""
    name = image.partition("@")[0]
    repository, colon, tag = name.rpartition(":")
    return (repository, tag) if colon and "/" not in tag else (name, "")


def _schema_of(version: Mapping[str, Any]) -> Mapping[str, Any]:
    schema: Mapping[str, Any] = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    return schema


def _lacking(wanted: Mapping[str, Any], found: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Fields that a schema does not have."""
    there = found.get("properties") or {}
    for name, schema in (wanted.get("properties") or {}).items():
        place = f"{path}.{name}" if path else name
        if name in there:
            yield from _lacking(schema, there[name], place)
        elif found.get("x-kubernetes-preserve-unknown-fields") is not True:
            yield place
    if "items" in wanted:
        yield from _lacking(wanted["items"], found.get("items") or {}, f"{path}[]")


def _is_optional(resource: GroupResource, verbs: Iterable[str]) -> bool:
    """Whether the sharder works without it, only worse (docs/configuration.md)."""
    optional = _OPTIONAL.get(resource.resource)
    return set(verbs) <= (OPTIONAL_VERBS if optional is None else optional)


_NEEDED = frozenset[str]()
_OPTIONAL: Mapping[str, frozenset[str]] = {
    "events": frozenset({"create", "patch"}),
    "mutatingwebhookconfigurations": frozenset({"list", "watch"}),
    "leases": frozenset({"create"}),
    "controllerrings": _NEEDED,
    "controllerrings/status": _NEEDED,
    "controllerrings/finalizers": _NEEDED,
    "namespaces": _NEEDED,
}
"""The verbs that are optional, by resource; of others, those of a ring, it is `OPTIONAL_VERBS`."""


def _off(ahead: float) -> str:
    return f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the API server's"
