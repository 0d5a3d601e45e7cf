"""The commands `kubeshard crd`: definitions of custom resources from classes, and what a change to one breaks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import isfunction, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kubeshard.cli.loading import calling, load_manager, load_module, load_name
from kubeshard.cli.yaml_files import read_documents
from kubeshard.commands.options import Command
from kubeshard.core.errors import ConfigurationError

if TYPE_CHECKING:
    from types import ModuleType

    from kubeshard.core.objects import KubeObject
    from kubeshard.manager.manager import Manager
    from kubeshard.manager.servers import Converting


class _ShowsByDefault(click.Group):
    """`kubeshard crd MODULE` is `kubeshard crd show MODULE`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands:
            args = ["show", *args]
        return super().resolve_command(ctx, args)


@click.group(
    cls=_ShowsByDefault,
    subcommand_metavar="MODULE[:CLASS] | COMMAND [ARGS]...",
    short_help="Print definitions of classes, or check a change.",
)
def crd() -> None:
    """Print CustomResourceDefinitions of classes, or show what a change breaks.

    `kubeshard crd MODULE[:CLASS]` prints the definitions of a module's kinds, as `kubeshard crd show` does.
    """


def _operator_options(function: Callable[..., None]) -> Callable[..., None]:
    namespace = click.option(
        "--namespace",
        metavar="NAMESPACE",
        help="Where the Service of its webhooks is (default: as its Webhooks say).",
    )
    operator = click.option(
        "--operator",
        metavar="MODULE[:MANAGER]",
        help="The operator that converts between versions (default: the Manager or Webhooks in MODULE).",
    )
    return operator(namespace(function))


@crd.command(
    cls=Command,
    short_help="Print the definitions of classes.",
    examples=(
        "kubeshard crd myoperator.api | kubectl apply --server-side -f -",
        "kubeshard crd myoperator/api.py:Backup",
        "kubeshard crd myoperator.api --operator myoperator.main --namespace backup-system",
    ),
)
@click.argument("references", metavar="MODULE[:CLASS]...", nargs=-1, required=True)
@_operator_options
def show(references: tuple[str, ...], operator: str | None, namespace: str | None) -> None:
    """Print CustomResourceDefinitions as YAML.

    For a module, these are its classes marked with CustomResource or, if there are none, all classes with a custom
    group; for one with a Manager and without such classes, those that it imports and that the Manager's controllers
    watch. MODULE is an importable name or a file.

    Several classes of one kind are its versions. If the operator's Webhooks convert between them, the definition has
    the stanza spec.conversion. The operator adds the certificate's authority when it starts; until then the API server
    refuses requests that need a conversion. Without a conversion it would drop the fields that the other version lacks:
    the command warns of them.
    """
    from kubeshard.core.yaml_output import documents

    classes = _all_classes(references)
    found = _described(classes)
    if operator is not None or any(len(each["spec"]["versions"]) > 1 for each in found):
        conversions = _conversions(_places(classes, references), operator)
        found = list(_converted(found, conversions, namespace or ""))
    click.echo(documents(found), nl=False)


@crd.command(
    cls=Command,
    short_help="Show what a change to a definition breaks.",
    examples=(
        "kubeshard crd check manifests/crd.yaml myoperator.api",
        "kubeshard crd check manifests/crd.yaml myoperator.main:manager",
        "git show main:crd.yaml > old.yaml; kubeshard crd check old.yaml crd.yaml -o json",
    ),
)
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.option(
    "--output",
    "-o",
    metavar="text|json",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Lines for people, or a list of objects with definition, version, path, breaking and message.",
)
@_operator_options
def check(old: str, new: str, output: str, operator: str | None, namespace: str | None) -> None:
    """Show the differences between two definitions, and which of them break stored objects or clients.

    OLD and NEW are YAML files, or MODULE[:CLASS] as for show. Whether versions are still converted is known if NEW is a
    file, or with the operator: MODULE may be its module. The exit code is 1 if something breaks.

    Breaking changes are: a field, a version, an enumerated value or a subresource that is removed; a narrower type, a
    tighter bound, a new rule; a new required field without a default; another way to merge a list; another storage
    version that lacks fields of the former one. All other changes are `ok`: a new field, a wider type, another default.
    """
    import msgspec

    from kubeshard.crd.breaking_changes import compared

    before = _definitions(old)
    changes = compared(before, _definitions(new, before, operator, namespace))
    changes.sort(key=lambda change: not change.breaking)
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(changes)).decode())
    else:
        for change in changes:
            click.echo(str(change))
    if any(change.breaking for change in changes):
        sys.exit(1)


def _definitions(
    reference: str, before: Iterable[Any] = (), operator: str | None = None, namespace: str | None = None
) -> list[Any]:
    """From YAML or classes. Where nothing says who converts, that is as `before`. Raises ConfigurationError."""
    from kubeshard.crd.manifests import definitions_in
    from kubeshard.manifests.operator import converting

    if not reference.endswith((".yaml", ".yml", ".json")):
        classes = _all_classes((reference,))
        places = _places(classes, (reference,))
        conversions = _conversions(places, operator)
        if operator is not None or conversions or any(map(_manager_in, places)):
            return [converting(each, conversions, namespace or "any") for each in _described(classes)]
        known = {each["metadata"]["name"]: each["spec"].get("conversion") for each in before}
        found = _described(classes)
        for each in found:
            if known.get(each["metadata"]["name"]):
                each["spec"] = {**each["spec"], "conversion": known[each["metadata"]["name"]]}
        return found
    try:
        found = definitions_in(read_documents(Path(reference)))
    except ValueError as error:
        raise ConfigurationError(f"{reference}: {error}") from error
    if not found:
        raise ConfigurationError(f"{reference} has no CustomResourceDefinition")
    return found


def _converted(found: Iterable[Any], conversions: Mapping[str, Converting], namespace: str) -> Iterator[Any]:
    """The definitions with their conversions. Warns of fields that are lost without one. Raises ConfigurationError."""
    from kubeshard.crd.defining import lost
    from kubeshard.manifests.operator import converting

    for each in found:
        made, name = converting(each, conversions, namespace), each["metadata"]["name"]
        call = made["spec"].get("conversion", {}).get("webhook", {}).get("clientConfig", {})
        if "service" in call and not call["service"]["namespace"]:
            raise ConfigurationError(
                f"{name} is converted behind the Service {call['service']['name']}: say its --namespace"
            )
        if fields := lost(made):
            click.echo(
                f"warning: {name}: nothing converts between its versions, so the API server drops {fields[0]}"
                f"{f', and {len(fields) - 1} more' if len(fields) > 1 else ''}: write functions with @converts, pass "
                "them to Webhooks, and say --operator MODULE[:MANAGER] if these are in another module",
                err=True,
            )
        yield made


def _conversions(places: Iterable[ModuleType], operator: str | None) -> Mapping[str, Converting]:
    """The servers that convert, by the name of the definition: the operator's, or those in the modules."""
    from kubeshard.webhook.webhooks import Webhooks

    if operator is not None:
        return load_manager(operator).deployment_needs().conversions
    found: dict[str, Converting] = {}
    for module in places:
        if (manager := _manager_in(module)) is not None:
            found |= manager.deployment_needs().conversions
        for value in vars(module).values():
            if isinstance(value, Webhooks):
                found |= dict.fromkeys(value.converted, value)
    return found


def _places(classes: Iterable[type[KubeObject]], references: Iterable[str]) -> list[ModuleType]:
    """The modules that are named, and those in which the classes are."""
    named = [load_module(each.partition(":")[0]) for each in references]
    return list(dict.fromkeys([*named, *(sys.modules[cls.__module__] for cls in classes)]))


def _manager_in(module: ModuleType) -> Manager | None:
    """The module's Manager, or the one that its function `manager` makes."""
    from kubeshard.manager.manager import Manager

    make = getattr(module, "manager", None)
    made = calling(make) if isfunction(make) and not signature(make).parameters else None
    found = [made, *vars(module).values()]
    return next((value for value in found if isinstance(value, Manager)), None)


def _all_classes(references: Iterable[str]) -> list[type[KubeObject]]:
    return list(dict.fromkeys(found for reference in references for found in _classes(reference)))


def _described(classes: Iterable[type[KubeObject]]) -> list[Any]:
    """One definition for each kind that the classes describe. Raises ConfigurationError."""
    from kubeshard.crd.defining import definition

    kinds: dict[Any, list[type[KubeObject]]] = {}
    for cls in classes:
        kinds.setdefault(cls.KIND.group_kind, []).append(cls)
    try:
        return [definition(*versions) for versions in kinds.values()]
    except (TypeError, ValueError) as error:
        raise ConfigurationError(str(error)) from error


def _classes(reference: str) -> Iterator[type[KubeObject]]:
    from kubeshard.crd.declaring import declared
    from kubeshard.manager.manager import Manager

    named = load_name(reference) if ":" in reference else None
    if named is not None and not isinstance(named, Manager) and not isfunction(named):
        yield _kind(reference, named)
        return
    module = load_module(reference.partition(":")[0])
    every = list(_kinds_in(module))
    found = [] if named else [cls for cls in every if cls.__module__ == module.__name__]
    chosen = [cls for cls in found if declared(cls)] or [cls for cls in found if _is_custom(cls.KIND.group)]
    manager = load_manager(reference) if named else _manager_in(module)
    if not chosen and manager is not None:
        watched = (
            watch.form.type for each in manager.deployment_needs().controllers for watch in each.all_watches
        )
        found = list(dict.fromkeys([*every, *watched]))
        chosen = [cls for cls in found if declared(cls)] or [
            cls for cls in found if _is_custom(cls.KIND.group)
        ]
    if not chosen:
        elsewhere = sorted({cls.__module__ for cls in every if _is_custom(cls.KIND.group)})
        if elsewhere:
            raise ConfigurationError(
                f"{reference} only imports its custom resources: name where they are, {', '.join(elsewhere)}"
            )
        raise ConfigurationError(
            f"{reference} has no class of a custom resource: class Name(KubeObject, group=...), a group with a dot"
        )
    yield from chosen


def _kind(reference: str, found: Any) -> type[KubeObject]:
    if not isinstance(found, type) or getattr(found, "KIND", None) is None:
        raise ConfigurationError(f"{reference} is not a kind: a class derived from KubeObject with a version")
    return found


def _kinds_in(module: ModuleType) -> Iterator[type[KubeObject]]:
    """Those that it imports, too."""
    from kubeshard.core.objects import KubeObject

    for found in vars(module).values():
        if (
            isinstance(found, type)
            and issubclass(found, KubeObject)
            and getattr(found, "KIND", None) is not None
        ):
            yield found


def _is_custom(group: str) -> bool:
    return "." in group and not group.endswith(".k8s.io")
