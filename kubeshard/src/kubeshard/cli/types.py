"""The command `kubeshard types`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kubeshard.cli.yaml_files import read_documents
from kubeshard.commands.options import CLUSTER_VARIABLE, Command, cluster_options
from kubeshard.core.errors import ConfigurationError

if TYPE_CHECKING:
    from kubeshard.client.client import Client
    from kubeshard.core.kinds import Kind
    from kubeshard.crd.codegen import Described
    from kubeshard.crd.schema import Schema


@click.command(
    "types",
    cls=Command,
    short_help="Write classes for kinds, from definitions or a cluster.",
    environment=CLUSTER_VARIABLE,
    examples=(
        "kubeshard types crds/certificates.yaml --fields spec.secretName,status.conditions > certificates.py",
        "kubeshard types Gateway.gateway.networking.k8s.io HTTPRoute.gateway.networking.k8s.io > gateways.py",
    ),
)
@click.argument("targets", metavar="(FILE[:KIND]|KIND[.GROUP])...", nargs=-1, required=True)
@click.option(
    "--fields",
    metavar="PATHS",
    multiple=True,
    help="Only these fields and everything below them, as in spec.replicas,status; with several kinds, KIND:PATH is "
    "for one of them; may be repeated (default: all).",
)
@click.option(
    "--version",
    metavar="VERSION",
    default="",
    help="Version of the kinds (default: the stored one, or the one the server prefers).",
)
@cluster_options
def types_command(
    targets: tuple[str, ...],
    fields: tuple[str, ...],
    version: str,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Write Python source of classes for kinds, as one module.

    A kind comes from a CustomResourceDefinition in a FILE, of which FILE:KIND names one of several, or is one that a
    cluster serves; without a group, a kind of the core group takes precedence. What several kinds have in common
    becomes one class. Paths pass through lists and maps: spec.template.spec.containers.image is the image of each
    container. The kinds of Kubernetes itself are in kubeshard.kinds, whole.

    Optional fields are None by default, so they are not sent, and other field managers keep them. A status is empty by
    default. Times, quantities and enumerations are strings.
    """
    from kubeshard.crd.codegen import source_of

    paths = [path.strip() for group in fields for path in group.split(",") if path.strip()]
    files = [target.partition(":")[0].endswith((".yaml", ".yml", ".json")) for target in targets]
    try:
        served = [target for target, is_file in zip(targets, files, strict=True) if not is_file]
        found, schemas = (
            asyncio.run(_of_cluster(served, version, kubeconfig, context)) if served else ([], {})
        )
        rest = iter(found)
        kinds = [
            _of_file(target, version) if is_file else next(rest)
            for target, is_file in zip(targets, files, strict=True)
        ]
        text = source_of(_with_fields(kinds, paths), schemas, command=_command(targets, paths))
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    click.echo(text, nl=False)


def _with_fields(kinds: Sequence[tuple[Kind, Schema]], paths: Sequence[str]) -> list[Described]:
    """The kinds with the paths for each of them. A path without a kind is for all."""
    from kubeshard.crd.codegen import Described, UnknownField, wanted_fields

    named = [kind.kind for kind, _ in kinds]
    said = [
        (name, below) if colon else ("", name)
        for name, colon, below in (path.partition(":") for path in paths)
    ]
    if missing := [name for name, _ in said if name and name not in named]:
        raise UnknownField(f"--fields names {missing[0]}, which is not one of the kinds: {', '.join(named)}")
    return [
        Described(kind, schema, wanted_fields(path for name, path in said if name in ("", kind.kind)))
        for kind, schema in kinds
    ]


def _command(targets: Sequence[str], paths: Sequence[str]) -> str:
    """The command line, without folders and the cluster."""
    said = [
        str(Path(file).name) + colon + name for file, colon, name in (each.partition(":") for each in targets)
    ]
    return " ".join(["kubeshard types", *said, *([f"--fields {','.join(paths)}"] if paths else [])])


def _of_file(target: str, version: str) -> tuple[Kind, Schema]:
    from kubeshard.crd.manifests import definitions_in, kind_in

    path, _, name = target.partition(":")
    found = definitions_in(read_documents(Path(path)))
    kinds = [definition["spec"]["names"]["kind"] for definition in found]
    chosen = [definition for definition, kind in zip(found, kinds, strict=True) if name in ("", kind)]
    if len(chosen) != 1:
        there = f"it has {', '.join(kinds)}: choose one, as in {path}:{kinds[0]}" if kinds else "it has none"
        raise ConfigurationError(f"{path}: which CustomResourceDefinition? {there}")
    return kind_in(chosen[0], version)


async def _of_cluster(
    targets: Sequence[str], version: str, kubeconfig: str | None, context: str | None
) -> tuple[list[tuple[Kind, Schema]], dict[str, Schema]]:
    """The kinds, each with a reference to its schema, and the schemas by name."""
    from kubeshard.client.connecting import connected
    from kubeshard.crd.manifests import described, schemas_in
    from kubeshard.runtime.world import REAL_WORLD

    kinds: list[tuple[Kind, Schema]] = []
    schemas: dict[str, Schema] = {}
    async with connected(kubeconfig, context, world=REAL_WORLD, patient=False) as client:
        for target in targets:
            kind = await _served(client, target, version)
            document = await _document(client, kind)
            kinds.append((kind, described(document, kind)))
            schemas |= schemas_in(document)
    return kinds, schemas


async def _document(client: Client, kind: Kind) -> Mapping[str, Any]:
    """The OpenAPI document of a kind's group and version."""
    import msgspec

    from kubeshard.core.errors import NotFound, UnexpectedResponse

    place = f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"
    try:
        document: Mapping[str, Any] = msgspec.json.decode(
            (await client.raw("GET", f"/openapi/v3/{place}")).body
        )
    except (NotFound, UnexpectedResponse) as error:  # 404 without a Status
        raise ConfigurationError(
            f"the cluster does not describe {kind.api_version}, or not yet: try again, or give a FILE"
        ) from error
    return document


async def _served(client: Client, target: str, version: str) -> Kind:
    """By `Kind` or `resources`, with or without `.group`: without, it is the core group's or the only match."""
    from kubeshard.client.discovery import KindNotServed

    name, _, group = target.partition(".")
    by_name = {"kind": name} if name[:1].isupper() else {"resource": name}
    groups = [group] if group else ["", *await _groups(client)]
    for candidate in groups:
        try:
            return await client.discovery.kind(candidate, version=version or None, **by_name)
        except KindNotServed:
            continue
    raise ConfigurationError(
        f"the cluster does not serve {target}{f' in version {version}' if version else ''}: give a FILE of a "
        "definition, or KIND.GROUP as `kubectl api-resources` lists them"
    )


async def _groups(client: Client) -> list[str]:
    import msgspec

    found = msgspec.json.decode((await client.raw("GET", "/apis")).body)
    return [group["name"] for group in found["groups"]]
