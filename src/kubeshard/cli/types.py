"""The command `kubeshard types`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kubeshard.cli.yaml_files import read_documents
from kubeshard.commands.options import CLUSTER_VARIABLE, Command, cluster_options
from kubeshard.core.errors import ConfigurationError

if TYPE_CHECKING:
    from kubeshard.client.client import Client
    from kubeshard.core.kinds import Kind
    from kubeshard.crd.schema import Schema


@click.command(
    "types",
    cls=Command,
    short_help="Write classes for a kind, from a definition or a cluster.",
    environment=CLUSTER_VARIABLE,
    examples=(
        "kubeshard types crds/certificates.yaml --fields spec.secretName,status.conditions > certificates.py",
        "kubeshard types Deployment.apps --fields spec.replicas,spec.template.spec.containers.image",
    ),
)
@click.argument("target", metavar="FILE[:KIND]|KIND[.GROUP]")
@click.option(
    "--fields",
    metavar="PATHS",
    multiple=True,
    help="Only these fields and everything below them, as in spec.replicas,status; may be repeated (default: all).",
)
@click.option(
    "--version",
    metavar="VERSION",
    default="",
    help="Version of the kind (default: the stored one, or the one the server prefers).",
)
@cluster_options
def types_command(
    target: str, fields: tuple[str, ...], version: str, kubeconfig: str | None, context: str | None
) -> None:
    """Write Python source of classes for a kind.

    The kind comes from a CustomResourceDefinition in a FILE, or is one that a cluster serves, including built-in kinds.
    Paths pass through lists and maps: spec.template.spec.containers.image is the image of each container.
    """
    from kubeshard.crd.source import source_of, wanted_fields

    paths = [path.strip() for group in fields for path in group.split(",") if path.strip()]
    file, _, name = target.partition(":")
    try:
        if file.endswith((".yaml", ".yml", ".json")):
            kind, schema = _of_file(Path(file), name, version)
            resolve = None
        else:
            kind, schema, resolve = asyncio.run(_of_cluster(target, version, kubeconfig, context))
        words = [f"--fields {','.join(paths)}"] if paths else []
        command = " ".join(["kubeshard types", Path(file).name + (f":{name}" if name else ""), *words])
        text = source_of(kind, schema, wanted_fields(paths), resolve=resolve, command=command)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    click.echo(text, nl=False)


def _of_file(path: Path, name: str, version: str) -> tuple[Kind, Schema]:
    from kubeshard.crd.manifests import definitions_in, kind_in

    found = definitions_in(read_documents(path))
    kinds = [definition["spec"]["names"]["kind"] for definition in found]
    chosen = [definition for definition, kind in zip(found, kinds, strict=True) if name in ("", kind)]
    if len(chosen) != 1:
        there = f"it has {', '.join(kinds)}: choose one, as in {path}:{kinds[0]}" if kinds else "it has none"
        raise ConfigurationError(f"{path}: which CustomResourceDefinition? {there}")
    return kind_in(chosen[0], version)


async def _of_cluster(
    target: str, version: str, kubeconfig: str | None, context: str | None
) -> tuple[Kind, Schema, Any]:
    import msgspec

    from kubeshard.client.connecting import connected
    from kubeshard.core.errors import NotFound, UnexpectedResponse
    from kubeshard.crd.manifests import described, referred
    from kubeshard.runtime.world import REAL_WORLD

    async with connected(kubeconfig, context, world=REAL_WORLD, patient=False) as client:
        kind = await _served(client, target, version)
        place = f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"
        try:
            document = msgspec.json.decode((await client.raw("GET", f"/openapi/v3/{place}")).body)
        except (NotFound, UnexpectedResponse) as error:  # 404 without a Status
            raise ConfigurationError(
                f"the cluster does not describe {kind.api_version}, or not yet: try again, or give a FILE"
            ) from error
    return kind, described(document, kind), lambda name: referred(document, name)


async def _served(client: Client, target: str, version: str) -> Kind:
    """Finds a kind by `Kind` or `resources`, with or without `.group`. Without a group, it is the core group's or the
    only match.
    """
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
