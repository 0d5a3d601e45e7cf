"""ControllerRevisions: the templates that a StatefulSet or DaemonSet has had."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubeshard.core.kinds import GroupResource
from kubeshard_apiserver.controllers.cluster import Account, Cluster
from kubeshard_apiserver.controllers.ownership import Node
from kubeshard_apiserver.controllers.pods import controller_reference, hashed
from kubeshard_apiserver.objects import Object, key_of
from kubeshard_apiserver.steps import Steps

REVISIONS = GroupResource("apps", "controllerrevisions")


def template_of(revision: Object) -> Object:
    template = dict(revision["data"]["spec"]["template"])
    template.pop("$patch", None)
    return template


def revision_for(
    cluster: Cluster, account: Account, owner: Object, hash_label: str
) -> Steps[tuple[Object, list[Object]]]:
    """The revision of the owner's template, and all of its revisions, the newest last.

    One that is there already becomes the newest again; ones too many for `revisionHistoryLimit` are not removed
    here: see `forget`.
    """
    known = sorted(cluster.controlled(owner, REVISIONS), key=lambda each: int(each["revision"]))
    template = owner["spec"]["template"]
    newest = known[-1]["revision"] if known else 0
    same = next((each for each in known if template_of(each) == template), None)
    if same is not None:
        if same["revision"] != newest:
            yield from account.change(
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
    """Removes the oldest revisions beyond the limit; `used` are the names of those that pods still have."""
    unused = [each for each in known if each["metadata"]["name"] not in used]
    limit = owner["spec"].get("revisionHistoryLimit", 10)
    for each in unused[: max(0, len(unused) - limit)]:
        yield from account.delete(each, REVISIONS)
