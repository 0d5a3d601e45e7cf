"""ControllerRevisions: the template history of a StatefulSet or DaemonSet, and the base class of their controllers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard_apiserver.controllers.cluster import Account, ClusterView, service_account
from kubeshard_apiserver.controllers.controller import Controller
from kubeshard_apiserver.controllers.controller_refs import claim_dependents, claimants
from kubeshard_apiserver.controllers.events import Recorder
from kubeshard_apiserver.controllers.ownership import Node, owners_key
from kubeshard_apiserver.controllers.pods import PODS, controller_reference, hashed, split_available
from kubeshard_apiserver.history import Event
from kubeshard_apiserver.objects import Object, is_deleting, key_of
from kubeshard_apiserver.steps import Steps

REVISIONS = GroupResource("apps", "controllerrevisions")


def template_of(revision: Object) -> Object:
    template = dict(revision["data"]["spec"]["template"])
    template.pop("$patch", None)
    return template


def revision_for(
    cluster: ClusterView, account: Account, owner: Object, hash_label: str
) -> Steps[tuple[Object, list[Object]]]:
    """Return the revision of the owner's current template, and all revisions with the newest last.

    A matching revision that already exists becomes the newest again. Revisions beyond `revisionHistoryLimit` are not
    removed here: see `forget`.
    """
    known = sorted(cluster.controlled(owner, REVISIONS), key=lambda each: int(each["revision"]))
    template = owner["spec"]["template"]
    newest = known[-1]["revision"] if known else 0
    same = next((each for each in known if template_of(each) == template), None)
    if same is not None:
        if same["revision"] != newest:
            yield from account.update(
                Node(REVISIONS, key_of(same)), lambda live: {**live, "revision": newest + 1}
            )
            known = sorted(cluster.controlled(owner, REVISIONS), key=lambda each: int(each["revision"]))
            same = known[-1]
        return same, known
    meta = owner["metadata"]
    hash_ = hashed(template, meta["uid"])
    labels = {**((template.get("metadata") or {}).get("labels") or {}), hash_label: hash_}
    body: dict[str, Any] = {
        "metadata": {
            "name": f"{meta['name']}-{hash_}",
            "namespace": meta["namespace"],
            "labels": labels,
            "ownerReferences": [controller_reference(owner)],
        },
        "data": {"spec": {"template": {"$patch": "replace", **template}}},
        "revision": newest + 1,
    }
    created = yield from account.create(REVISIONS, body)
    return created, [*known, created]


def forget(account: Account, owner: Object, known: Sequence[Object], used: Sequence[str]) -> Steps[None]:
    """Remove the oldest revisions beyond the limit, except those in `used`, the names that pods still refer to."""
    unused = [each for each in known if each["metadata"]["name"] not in used]
    limit = owner["spec"].get("revisionHistoryLimit", 10)
    for each in unused[: max(0, len(unused) - limit)]:
        yield from account.delete(each, REVISIONS)


RolloutState = tuple[Object, float | None, Sequence[str]]
"""A status, the seconds until the next reconcile, and the names of the revisions that pods still use."""


class RevisionController(Controller[Key]):
    """Controls a kind whose pods follow the revisions of its template. Adopts pods and revisions first."""

    resource: GroupResource
    kind: str
    hash_label: str
    """The label of a revision that contains the hash of its template."""
    account_name: str
    component: str
    """The source of its Events."""

    def __init__(self, cluster: ClusterView) -> None:
        super().__init__(cluster)
        self.watched = (self.resource, PODS)
        self._account = Account(cluster, service_account(self.account_name))
        self._recorder = Recorder(cluster, self._account, self.component)

    @abstractmethod
    def work(
        self, found: Object, newest: Object, known: Sequence[Object]
    ) -> Steps[Callable[[Object], RolloutState]]:
        """Bring the pods of an object closer to the newest of its `known` revisions. The returned function computes the
        status of the object from its state after these writes. Raises ApiError.
        """

    def suits(self, owner: Object, pod: Object) -> bool:
        """Report whether the owner may adopt this pod, in addition to matching its selector."""
        return True

    def concerned(self, resource: GroupResource, event: Event) -> Iterable[Key]:
        if resource == self.resource:
            return (event.key,)
        return (*owners_key(event, self.kind), *claimants(self.cluster, self.resource, event))

    def reconcile(self, key: Key) -> Steps[float | None]:
        node = Node(self.resource, key)
        found = self.cluster.get(node)
        if found is None or is_deleting(found):
            return None
        yield from claim_dependents(self.cluster, self._account, found, REVISIONS)
        newest, known = yield from revision_for(self.cluster, self._account, found, self.hash_label)
        yield from claim_dependents(
            self.cluster, self._account, found, PODS, suits=lambda pod: self.suits(found, pod)
        )
        judge = yield from self.work(found, newest, known)
        live = self.cluster.get(node)
        if live is None:
            return None
        status, again, used = judge(live)
        yield from self._account.set_status(node, status)
        yield from forget(self._account, live, known, used)
        return again

    def is_available(self, owner: Object, pod: Object) -> bool:
        min_ready = owner["spec"].get("minReadySeconds", 0)
        return bool(split_available([pod], min_ready, self.cluster.wall())[0]) and not is_deleting(pod)
