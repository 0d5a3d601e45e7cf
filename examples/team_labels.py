"""Team labels: objects of every kind, even kinds that are defined later, get the label that an annotation requests.

    metadata:
      annotations: {examples.kubeshard.dev/team: blue}

results in the label `team.examples.kubeshard.dev: blue`, with which `kubectl get all -l` finds what belongs to a team.
The label is removed with the annotation. It only reads metadata, whatever the kind.

    kubeshard run examples/team_labels.py
"""

import re
from typing import Any

from kubeshard import (
    Context,
    Controller,
    EveryKind,
    LeaderElection,
    Manager,
    errors,
    metadata_only,
    safe_name,
)
from kubeshard.core import Kind, MergePatch, PartialObject

ANNOTATION, LABEL = "examples.kubeshard.dev/team", "team.examples.kubeshard.dev"
NO_TEAMS = {"coordination.k8s.io", "discovery.k8s.io", "events.k8s.io", "metrics.k8s.io"}
"""Groups whose objects change every second and belong to no team."""
TEAM = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


async def reconcile(ctx: Context, obj: PartialObject) -> None:
    meta = obj.metadata
    team = meta.annotation(ANNOTATION)
    if meta.deleting or meta.label(LABEL) == team:
        return
    if team and not TEAM.fullmatch(team):
        ctx.event(obj, "Warning", "NoTeam", f"{ANNOTATION}: {team!r} cannot be a label", action="Label")
        raise errors.Terminal(f"{team!r} cannot be a label")
    patch = MergePatch({"metadata": {"labels": {LABEL: team or None}}})
    await ctx.client.patch(ctx.form, meta.name, meta.namespace or None, patch)


def labels(kind: Kind) -> Controller[Any] | None:
    if kind.group in NO_TEAMS or (kind.group, kind.kind) == ("", "Event"):
        return None
    name = safe_name("team-labels", kind.plural, kind.group)
    return Controller(name=name, reconciler=reconcile, primary=metadata_only(kind))


def manager() -> Manager:
    return Manager([EveryKind(labels)], leader_election=LeaderElection(name="team-labels"))
