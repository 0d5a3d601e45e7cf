"""Rollout of apps/v1, as far as it is used here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeshard import KubeObject, ObjectMeta, Struct, field


class Task(Struct):
    """Task is a unit of work."""

    name: str
    image: str | None = None
    """Image to run."""
    port: int | str | None = None
    limits: Mapping[str, str] | None = None


class Template(Struct):
    metadata: ObjectMeta | None = None
    tasks: tuple[Task, ...] | None = None


class Tree(Struct):
    leaves: tuple[Any, ...] | None = None
    since: str | None = None


class RolloutSpec(Struct):
    """RolloutSpec is the specification of the desired behaviour."""

    template: Template
    replicas: int | None = None
    """Number of desired tasks."""
    first: Task | None = None
    tree: Tree | None = None


class RolloutStatus(Struct):
    ready_replicas: int | None = None


class Rollout(KubeObject, group="apps", version="v1"):
    """Rollout runs Tasks."""

    spec: RolloutSpec
    status: RolloutStatus = field(default_factory=RolloutStatus)
    """What is known."""
