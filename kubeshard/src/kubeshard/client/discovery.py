"""Discovery: which kinds the server serves, and their names.

Guaranteed: uses the group's preferred version if none is given, or the next version that has the kind; results are
cached, and read once more before a kind counts as missing, so a CRD created a moment ago is found. Not guaranteed:
that cached kinds are still served. RBAC: none beyond `system:discovery`, which every authenticated user has.

Aggregated discovery, where the server has it, returns all kinds in one document for `/api` and one for `/apis`. The API
server has collected what extension API servers serve. A version whose server does not answer is marked as stale; the
document's information about it is outdated or missing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, NamedTuple

from kubeshard.core.encoding import UNREADABLE, decoder
from kubeshard.core.errors import ApiError, NotFound, Unavailable, UnexpectedResponse
from kubeshard.core.kinds import GroupResource, Kind
from kubeshard.core.objects import Struct

Fetch = Callable[[str, str], Awaitable[bytes]]
"""GETs a path with an Accept header and returns the JSON body."""

_PLAIN = "application/json"


class KindNotServed(NotFound):
    """The server has no such kind (or not in this version): its CRD is not installed."""


class _Kind(Struct):
    kind: str = ""


class _Version(Struct):
    version: str = ""


class _Group(Struct):
    versions: tuple[_Version, ...] = ()
    preferred_version: _Version = _Version()

    @property
    def in_order(self) -> tuple[str, ...]:
        """Its versions, the preferred one first."""
        preferred = self.preferred_version.version
        return (preferred, *(entry.version for entry in self.versions if entry.version != preferred))


class _NamedGroup(_Group):
    name: str = ""


class _Groups(Struct):
    groups: tuple[_NamedGroup, ...] = ()


class _Resource(Struct):
    name: str = ""
    kind: str = ""
    namespaced: bool = False
    verbs: tuple[str, ...] = ()


class _ResourceList(Struct):
    resources: tuple[_Resource, ...] = ()


class Discovery:
    """The kinds of one server, cached."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._versions: dict[str, tuple[str, ...]] = {}
        self._kinds: dict[tuple[str, str], tuple[Kind, ...]] = {}

    async def kind(
        self, group: str, *, kind: str | None = None, resource: str | None = None, version: str | None = None
    ) -> Kind:
        """The kind of that name (`Website`) or resource (`websites`). `group` is `""` for the core group. Raises
        KindNotServed, TypeError unless exactly one of `kind` and `resource` is given.
        """
        if (kind is None) == (resource is None):
            raise TypeError("name the kind by either kind= or resource=")
        known = (group, version or "") in self._kinds or group in self._versions
        found = await self._find(group, version, kind, resource)
        if found is None and known:
            self.forget(group)
            found = await self._find(group, version, kind, resource)
        if found is None:
            name = f"{kind or resource}{f'.{group}' if group else ''}{f'/{version}' if version else ''}"
            advice = (
                "is its CRD installed?" if group else "it is not in the core group (`kubectl api-resources`)"
            )
            raise KindNotServed(f"the server does not serve {name}: {advice}", code=404, reason="NotFound")
        return found

    async def all_kinds(self, *verbs: str) -> tuple[list[Kind], dict[str, ApiError]]:
        """Every served kind that supports the verbs, once, in its group's preferred version, without the cache. And the
        groups and versions whose discovery failed, such as those of an extension API server that is down, with the
        errors.

        Two requests where the server has aggregated discovery (Kubernetes 1.30), else one for each group's version.
        """
        found: dict[GroupResource, Kind] = {}
        silent: dict[str, ApiError] = {}
        async for group, version, kinds in self._all_served():
            if isinstance(kinds, ApiError):
                silent[f"{group}/{version}"] = kinds
                continue
            for kind, supported in kinds:
                if set(verbs) <= set(supported):
                    found.setdefault(kind.group_resource, kind)
        return list(found.values()), silent

    def forget(self, group: str) -> None:
        """Drops what is cached of the group."""
        self._versions.pop(group, None)
        for key in [key for key in self._kinds if key[0] == group]:
            del self._kinds[key]

    async def _all_served(self) -> AsyncIterator[Served]:
        groups: _Aggregated | _Groups | None = await self._get(
            "/apis", {"APIGroupList": _Groups, _AGGREGATED: _Aggregated}
        )
        if groups is None:  # each API server has groups: this is something else
            raise UnexpectedResponse("GET /apis: there are no groups")
        if isinstance(groups, _Aggregated):
            try:
                core: _Aggregated | Struct | None = await self._get(
                    "/api", {"APIVersions": _Kind, _AGGREGATED: _Aggregated}
                )
            except ApiError as error:
                yield Served("", "v1", error)
            else:
                of_core = _versions(core) if isinstance(core, _Aggregated) else [await self._served("", "v1")]
                for each in of_core:
                    yield each
            for each in _versions(groups):
                yield each
            return
        yield await self._served("", "v1")
        for group in groups.groups:
            for version in group.in_order:
                yield await self._served(group.name, version)

    async def _served(self, group: str, version: str) -> Served:
        try:
            return Served(group, version, await self._read_kinds(group, version))
        except ApiError as error:
            return Served(group, version, error)

    async def _find(
        self, group: str, version: str | None, kind: str | None, resource: str | None
    ) -> Kind | None:
        for candidate in (version,) if version else await self._versions_of(group):
            for served in await self._kinds_of(group, candidate):
                if served.kind == kind or served.plural == resource:
                    return served
        return None

    async def _versions_of(self, group: str) -> tuple[str, ...]:
        if group not in self._versions:
            self._versions[group] = await self._read_versions(group) if group else ("v1",)
        return self._versions[group]

    async def _read_versions(self, group: str) -> tuple[str, ...]:
        answer: _Group | None = await self._get(f"/apis/{group}", {"APIGroup": _Group})
        return () if answer is None else answer.in_order

    async def _kinds_of(self, group: str, version: str) -> tuple[Kind, ...]:
        key = (group, version)
        if key not in self._kinds:
            self._kinds[key] = tuple(kind for kind, _ in await self._read_kinds(group, version))
        return self._kinds[key]

    async def _read_kinds(self, group: str, version: str) -> list[tuple[Kind, tuple[str, ...]]]:
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        answer: _ResourceList | None = await self._get(path, {"APIResourceList": _ResourceList})
        return [
            (Kind(group, version, entry.kind, entry.name, entry.namespaced), entry.verbs)
            for entry in (answer.resources if answer else ())
            if "/" not in entry.name
        ]

    async def _get(self, path: str, forms: Mapping[str, type[Struct]]) -> Any:
        """The document, which has one of these kinds, or None."""
        try:
            body = await self._fetch(path, _ACCEPT_AGGREGATED if _AGGREGATED in forms else _PLAIN)
            kind = decoder(_Kind).decode(body).kind
            form = forms.get(kind)
            if form is not None:
                return decoder(form).decode(body)
        except NotFound:
            return None
        except UNREADABLE as error:
            raise UnexpectedResponse(f"GET {path}: {error}") from error
        raise UnexpectedResponse(f"GET {path}: asked for {next(iter(forms))}, got {kind or 'no kind'}")


_AGGREGATED = "APIGroupDiscoveryList"
_ACCEPT_AGGREGATED = f"application/json;g=apidiscovery.k8s.io;v=v2;as={_AGGREGATED},application/json"
"""A server without aggregated discovery responds with the plain document."""


class _Name(Struct):
    name: str = ""


class _ResponseKind(Struct):
    kind: str = ""


class _AggregatedResource(Struct):
    resource: str = ""
    response_kind: _ResponseKind | None = None
    """The kind; None for a resource that only has subresources."""
    scope: str = ""
    verbs: tuple[str, ...] = ()


class _AggregatedVersion(Struct):
    version: str = ""
    resources: tuple[_AggregatedResource, ...] = ()
    freshness: str = ""


class _AggregatedGroup(Struct):
    metadata: _Name = _Name()
    versions: tuple[_AggregatedVersion, ...] = ()


class _Aggregated(Struct):
    kind: str = ""
    items: tuple[_AggregatedGroup, ...] = ()


class Served(NamedTuple):
    """What a version of a group serves: its kinds with their verbs, or why that is not known."""

    group: str
    version: str
    kinds: list[tuple[Kind, tuple[str, ...]]] | ApiError


def _versions(document: _Aggregated) -> Iterator[Served]:
    """The versions of a group come in the order of its preference."""
    for item in document.items:
        group = item.metadata.name
        for version in item.versions:
            yield Served(group, version.version, _stale(group, version) or _kinds(group, version))


def _stale(group: str, version: _AggregatedVersion) -> ApiError | None:
    if version.freshness != "Stale":
        return None
    return Unavailable(f"the API server cannot reach the extension API server of {group}/{version.version}")


def _kinds(group: str, version: _AggregatedVersion) -> list[tuple[Kind, tuple[str, ...]]]:
    return [
        (
            Kind(
                group, version.version, entry.response_kind.kind, entry.resource, entry.scope == "Namespaced"
            ),
            entry.verbs,
        )
        for entry in version.resources
        if entry.response_kind is not None
    ]
