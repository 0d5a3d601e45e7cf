"""Classes of storagemigration.k8s.io/v1 in Kubernetes 1.37, written by `make types`. The descriptions are
those of the Kubernetes authors (Apache License 2.0).
"""

from __future__ import annotations

from kubeshard.core.conditions import Condition
from kubeshard.core.objects import KubeObject, Struct, field


class GroupResource(Struct):
    """GroupResource specifies a Group and a Resource, but does not force a version."""

    group: str
    resource: str


class StorageVersionMigrationSpec(Struct):
    """Spec of the storage version migration."""

    resource: GroupResource
    """The resource that is being migrated."""


class StorageVersionMigrationStatus(Struct):
    """Status of the storage version migration."""

    conditions: tuple[Condition, ...] | None = None
    """The latest available observations of the migration's current state."""
    resource_version: str | None = None
    """ResourceVersion to compare with the GC cache for performing the migration."""


class StorageVersionMigration(KubeObject, group="storagemigration.k8s.io", version="v1", namespaced=False):
    """StorageVersionMigration represents a migration of stored data to the latest storage version."""

    spec: StorageVersionMigrationSpec
    """Specification of the migration."""
    status: StorageVersionMigrationStatus = field(default_factory=StorageVersionMigrationStatus)
    """Status of the migration."""
