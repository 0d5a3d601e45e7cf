"""Rollout of apps/v1, as far as it is used here."""

from __future__ import annotations

from kubeshard import KubeObject, Struct


class Task(Struct):
    """Task is a unit of work."""

    image: str | None = None
    """Image to run."""
    port: int | str | None = None


class Template(Struct):
    tasks: tuple[Task, ...] | None = None


class RolloutSpec(Struct):
    """RolloutSpec is the specification of the desired behaviour."""

    template: Template
    replicas: int | None = None
    """Number of desired tasks."""
    first: Task | None = None


class Rollout(KubeObject, group="apps", version="v1"):
    """Rollout runs Tasks."""

    spec: RolloutSpec
