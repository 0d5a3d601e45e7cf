"""The writing verbs: create, replace, patch, apply, delete."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeVar, Unpack, overload

from kubeshard.client.connection import Connection, Guard
from kubeshard.client.fence import Proof, Standing
from kubeshard.client.requests import (
    JSON,
    Patch,
    accept,
    creation_path,
    object_path,
    patch_body,
    patch_content_type,
    query,
    selectors,
    server_timeout,
    write_query,
)
from kubeshard.client.terminating_namespaces import is_terminating
from kubeshard.client.view import View
from kubeshard.client.write_records import (
    DeleteOptions,
    DeletionOptions,
    PatchOptions,
    Preconditions,
    Propagation,
    WriteRecord,
    apply_body,
    entered,
    is_known,
    record_of,
    record_of_deletion,
    record_of_lost,
)
from kubeshard.core.encoding import encode
from kubeshard.core.errors import ApiError, Forbidden, NotFound, NotOurs
from kubeshard.core.kinds import Kind, split_api_version
from kubeshard.core.namespaces import namespace_of
from kubeshard.core.objects import Form, Key, KubeObject, ObjectMeta, PartialObject, form_of, metadata_only
from kubeshard.core.patches import ApplyPatch
from kubeshard.core.selectors import FieldSelector, Selector
from kubeshard.runtime.transport import HttpRequest

T = TypeVar("T", bound=KubeObject)

COLLECTION_TIMEOUT = 60.0


@dataclass(slots=True)
class _Counts:
    """Counts of writes. As a context manager, it counts a NotOurs that leaves the block."""

    unfenced: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    refused_by_server: int = 0

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, NotOurs):
            if error.code:
                self.refused_by_server += 1
            else:
                self.refused += 1


class Writes(View):
    """Every method takes `dry_run` (the server does everything except storing) and `unfenced` (see
    `kubeshard.client.fence`).

    RBAC: each method needs the verb of its name on the resource (`<resource>/<subresource>`): `replace` needs
    `update`, `apply` needs `patch`, and `create` if it creates; `delete_collection` needs `deletecollection`.
    """

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._counts = _Counts()

    @property
    def unfenced_writes(self) -> int:
        """The number of writes of fenced views with `unfenced=True`."""
        return self._counts.unfenced.total()

    @property
    def unfenced_kinds(self) -> Mapping[str, int]:
        """The same, by kind."""
        return dict(self._counts.unfenced)

    @property
    def refused_writes(self) -> tuple[int, int]:
        """How many writes were refused as not ours: before anything was sent, and by the API server."""
        return self._counts.refused, self._counts.refused_by_server

    def standing(self, obj: KubeObject, *, shown: bool = False) -> Standing | None:
        """What the object, as read or about to be created, is to the shard that this view is fenced for. None if its
        kind is not sharded. `shown`: a cache shows it, although perhaps because of a label that is not the right one.
        """
        proof = None if self._fence is None else self._fence.proof(type(obj).KIND)
        return None if proof is None else proof.standing(obj.metadata, shown=shown)

    async def create(
        self, obj: T, *, dry_run: bool = False, field_manager: str | None = None, unfenced: bool = False
    ) -> T:
        """Returns the created object. Raises AlreadyExists, ValueError for an object that already has a
        resourceVersion; Forbidden also for a namespace that is being deleted.
        """
        if obj.metadata.resource_version:
            raise ValueError(
                f"{obj.KIND} {obj.key} was read from the server: an object to create has no resourceVersion"
            )
        form = form_of(type(obj))
        with self._counts:
            proof = self._enter_fence(form.kind, unfenced)
            if proof is not None:
                obj = proof.created(obj)
            namespace = obj.metadata.namespace
            path = creation_path(form.kind, obj.metadata.name, namespace)
            if self._spares:
                self._terminating.check(namespace)
            try:
                created = await self._write(
                    form,
                    "POST",
                    path,
                    encode(obj),
                    obj.metadata.name,
                    namespace,
                    dry_run=dry_run,
                    field_manager=field_manager,
                    unfenced=unfenced,
                )
            except Forbidden as error:
                if is_terminating(error):
                    self._terminating.refused(namespace, error)
                raise
            except NotFound:
                self._terminating.answered(namespace)
                raise
            self._terminating.answered(namespace)
            return created

    async def replace(
        self,
        obj: T,
        *,
        subresource: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
        unfenced: bool = False,
    ) -> T:
        """PUT of the whole object. With `metadata.resource_version` only if that is the current version (Conflict),
        otherwise unconditionally.

        Raises TypeError for a class that is not `complete`: the fields it does not declare would be lost.
        """
        if not obj.COMPLETE:
            name = type(obj).__name__
            raise TypeError(
                f"{name} does not declare every field: patch or apply it, or declare it complete=True"
            )
        form = form_of(type(obj))
        with self._counts:
            proof = self._enter_fence(form.kind, unfenced)
            if proof is not None:
                proof.require(obj)
            path = object_path(form.kind, obj.metadata.name, obj.metadata.namespace, subresource)
            return await self._write(
                form,
                "PUT",
                path,
                encode(obj),
                obj.metadata.name,
                obj.metadata.namespace,
                dry_run=dry_run,
                field_manager=field_manager,
                subresource=subresource,
                unfenced=unfenced,
            )

    async def patch(
        self,
        target: type[T] | Form[T],
        name: str,
        namespace: str | None,
        patch: Patch,
        *,
        base: KubeObject | None = None,
        subresource: str | None = None,
        field_manager: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        unfenced: bool = False,
    ) -> T:
        """Returns the patched object. `base` is the object as read, which fenced views need; others ignore it.

        Raises Conflict (resourceVersion in the patch, or a field of another manager without `force`),
        PatchTestFailed, NotOurs for a fenced view, ValueError if a fence has no proof, TypeError and ValueError for
        values that cannot be sent (`kubeshard.core.encoding.to_json`).
        """
        form, content_type = form_of(target), patch_content_type(patch)
        path = object_path(form.kind, name, namespace, subresource)
        with self._counts:
            proof = self._enter_fence(form.kind, unfenced)
            if proof is not None:
                patch = proof.patched(patch, base, subresource=subresource, force=force)
            body = patch_body(patch, form.kind.kind)
            try:
                return await self._write(
                    form,
                    "PATCH",
                    path,
                    body,
                    name,
                    namespace,
                    content_type=content_type,
                    dry_run=dry_run,
                    field_manager=field_manager,
                    force=force and isinstance(patch, ApplyPatch),
                    subresource=subresource,
                    unfenced=unfenced,
                )
            except ApiError as error:
                if proof is None:
                    raise
                raise proof.refusal(patch, error) from error

    @overload
    async def apply(self, obj: Mapping[str, Any], **options: Unpack[PatchOptions]) -> PartialObject: ...

    @overload
    async def apply(self, obj: T, **options: Unpack[PatchOptions]) -> T: ...

    async def apply(self, obj: Any, **options: Unpack[PatchOptions]) -> Any:
        """Server-side apply of exactly the given fields, of an object or a manifest; creates it if it is missing.

        For options see `patch`. The kind of a manifest is looked up with discovery, and only its metadata is returned.
        Raises Conflict naming the managers whose fields differ, unless `force`.
        """
        if isinstance(obj, Mapping):
            return await self.apply_manifest(obj, **options)
        meta, body = obj.metadata, ApplyPatch(apply_body(obj, options.get("subresource")))
        return await self.patch(type(obj), meta.name, meta.namespace, body, **options)

    async def apply_manifest(
        self, manifest: Mapping[str, Any], **options: Unpack[PatchOptions]
    ) -> PartialObject:
        """Server-side apply of a manifest of any kind. Raises KindNotServed, ValueError for a manifest without kind or
        name or where these are not text, WrongNamespace for one of a namespaced kind without a namespace.
        """
        api_version, kind_name, name, namespace = _whose(manifest)
        group, version = split_api_version(api_version)
        kind = await self.discovery.kind(group, kind=kind_name, version=version)
        return await self.patch(metadata_only(kind), name, namespace, ApplyPatch(manifest), **options)

    async def delete(
        self,
        target: type[KubeObject] | Form[Any],
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: Propagation | None = None,
        grace_period: int | None = None,
        dry_run: bool = False,
        unfenced: bool = False,
    ) -> None:
        """Requests the deletion, which finalizers may delay: afterwards the object may still be there.

        `uid` and `resource_version` are preconditions (Conflict); a fenced view needs both, of an object that was ours:
        see `delete_object`. `grace_period` is in seconds. Raises NotFound.
        """
        kind = form_of(target).kind
        with self._counts:
            proof = self._enter_fence(kind, unfenced)
            if proof is not None:
                if not (uid and resource_version):
                    raise ValueError(
                        f"{kind} is sharded: use delete_object, or pass uid and resource_version"
                    )
                proof.deleting(
                    ObjectMeta(
                        name=name, namespace=namespace or "", uid=uid, resource_version=resource_version
                    )
                )
        options = DeleteOptions(
            preconditions=Preconditions(uid=uid, resource_version=resource_version)
            if uid or resource_version
            else None,
            propagation_policy=propagation,
            grace_period_seconds=grace_period,
            dry_run=("All",) if dry_run else (),
        )
        path = object_path(kind, name, namespace)
        path += query({"timeout": server_timeout(self._timeout)})
        request = self._request("DELETE", path, JSON, options.encode())
        try:
            with self._counts, entered(() if dry_run else self._ledgers, math.ceil(self._timeout)):
                answer = await self._connection.send(request, self._guards(unfenced))
        except BaseException as error:
            if not dry_run and not is_known(error):
                self._tell(record_of_lost(kind, name, namespace, uid, deleted=True))
            raise
        if self._write_observers and not dry_run:
            self._tell(record_of_deletion(kind, Key(namespace or "", name), uid, answer))

    async def delete_object(
        self, obj: KubeObject, *, kind: Kind | None = None, **options: Unpack[DeletionOptions]
    ) -> None:
        """Deletes exactly the object that was read, in the state in which it was read; for options see `delete`.

        `kind` is needed for an object that has none. Raises Conflict if it has changed, NotFound, and NotOurs if it
        belongs to another shard.
        """
        form = metadata_only(kind) if kind is not None else form_of(type(obj))
        meta = obj.metadata
        proof = None if self._fence is None else self._fence.proof(form.kind)
        if proof is not None and not options.get("unfenced"):
            with self._counts:
                proof.require(obj)
        version = meta.resource_version or None
        await self.delete(
            form, meta.name, meta.namespace, uid=meta.uid or None, resource_version=version, **options
        )

    async def delete_collection(
        self,
        target: type[KubeObject] | Form[Any],
        namespace: str | None = None,
        *,
        label_selector: Selector | None = None,
        field_selector: FieldSelector | None = None,
        propagation: Propagation | None = None,
        dry_run: bool = False,
        unfenced: bool = False,
    ) -> None:
        """Deletes all selected objects of a namespace, or of a cluster-scoped kind; without selectors, all of them."""
        kind = form_of(target).kind
        proof = self._enter_fence(kind, unfenced)
        selector = label_selector or Selector()
        if proof is not None:
            selector = proof.collection(selector)
        options = DeleteOptions(propagation_policy=propagation, dry_run=("All",) if dry_run else ())
        chosen = {"timeout": server_timeout(COLLECTION_TIMEOUT), **selectors(selector, field_selector)}
        path = kind.path(namespace_of(kind, "", namespace)) + query(chosen)
        request = self._request("DELETE", path, JSON, options.encode())
        with entered(() if dry_run else self._ledgers, COLLECTION_TIMEOUT):
            await self._connection.send(request._replace(timeout=COLLECTION_TIMEOUT), self._guards(unfenced))

    def _enter_fence(self, kind: Kind, unfenced: bool) -> Proof | None:
        """What writes of the kind have to prove."""
        if self._fence is None:
            return None
        if unfenced:
            self._counts.unfenced[str(kind)] += 1
            return None
        return self._fence.proof(kind)

    def _guards(self, unfenced: bool) -> Sequence[Guard]:
        """Whether this process may still write, just before each attempt: a write that waited for credentials or a
        throttling server may be too late.
        """
        if self._fence is None or unfenced:
            return self._checks
        return self._fence.check, *self._checks

    async def _write(
        self,
        form: Form[T],
        method: str,
        path: str,
        body: bytes,
        name: str,
        namespace: str | None,
        *,
        content_type: str = JSON,
        dry_run: bool,
        field_manager: str | None,
        force: bool = False,
        subresource: str | None = None,
        unfenced: bool,
    ) -> T:
        target = path + write_query(self._timeout, field_manager or self._field_manager, force, dry_run)
        request = HttpRequest(method, target, self._headers(accept(form), content_type), body, self._timeout)
        guards = self._guards(unfenced)
        try:
            if not self._ledgers or dry_run:  # as `entered` does, at no cost
                answer = await self._connection.send(request, guards)
            else:
                with entered(self._ledgers, math.ceil(self._timeout)):
                    answer = await self._connection.send(request, guards)
        except BaseException as error:
            if not dry_run and not is_known(error):
                self._tell(record_of_lost(form.kind, name, namespace, None, deleted=False))
            raise
        written = self._decoded(form, request, answer, subresource)
        if self._write_observers and not dry_run and written.metadata.resource_version:
            record = record_of(form.kind, written.metadata)
            for observer in self._write_observers:
                observer(record)
        return written

    def _tell(self, record: WriteRecord) -> None:
        for observer in self._write_observers:
            observer(record)


def _whose(manifest: Mapping[str, Any]) -> tuple[str, str, str, str | None]:
    """The manifest's apiVersion, kind, name and namespace. Raises ValueError."""
    given = manifest.get("metadata")
    meta = given if isinstance(given, Mapping) else {}
    api_version, kind, name = manifest.get("apiVersion"), manifest.get("kind"), meta.get("name")
    namespace = meta.get("namespace")
    found = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata.name": name,
        "metadata.namespace": namespace,
    }
    for path, value in found.items():
        if not isinstance(value, str | None):
            raise ValueError(f"{path} of a manifest is text, and this is {value!r}")
    if not (api_version and kind and name):
        raise ValueError("a manifest needs apiVersion, kind and metadata.name")
    return api_version, kind, name, namespace
