"""docs/configuration.md matches the code: every field, default and variable."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import click
import msgspec
import pytest

from kubeshard.cli.program import cli
from kubeshard.commands.options import Command
from kubeshard.manager.config_file import ComponentConfig, Duration, parse_config
from kubeshard.sharder import config as sharder
from kubeshard_lab.examples.checksum import __main__ as checksum
from kubeshard_lab.examples.webhosting import __main__ as webhosting
from kubeshard_lab.examples.webhosting import config as operator

DOCS = Path(__file__).resolve().parents[3] / "docs"
CONFIGURATION = (DOCS / "configuration.md").read_text()


def section(document: str, title: str) -> str:
    return re.split(r"^###? ", re.split(rf"\n###? {title}\n", document)[1], flags=re.M)[0]


def rows(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        if line.startswith("| ") and not line.startswith("|---"):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def commands_of(group: click.Group) -> Iterator[tuple[str, click.Command]]:
    """Yields also those that other distributions provide."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield name, command


PROGRAMS: dict[str, click.Command] = {
    **{f"kubeshard {name}": command for name, command in commands_of(cli)},
    **{f"{webhosting.PROGRAM} {name}": command for name, command in commands_of(webhosting.webhosting)},
    checksum.PROGRAM: checksum.checksum_controller,
}


def test_every_variable_is_documented_and_none_that_does_not_exist() -> None:
    documented = {cells[0].strip("`") for cells in rows(section(CONFIGURATION, "Environment"))} - {"variable"}
    known = {
        variable
        for command in PROGRAMS.values()
        if isinstance(command, Command)
        for variable in command.environment
    }
    assert documented == known | {"DISABLE_HTTP2"}


def fields(type_: Any, default: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yields (path, default as written) of every field; fields of structs in lists show the struct's own defaults."""
    hints = get_type_hints(type_)
    for field in msgspec.structs.fields(type_):
        where = f"{path}.{field.encode_name}" if path else field.encode_name
        value = getattr(default, field.name) if default is not None else None
        struct = next((t for t in (hints[field.name], *get_args(hints[field.name])) if _is_struct(t)), None)
        if struct is None or where.endswith("matchExpressions"):
            yield where, _written(value)
        elif (
            get_args(hints[field.name])
            and hints[field.name] is not struct
            and not _optional(hints[field.name])
        ):
            yield from fields(struct, struct(), f"{where}[]")
        else:
            yield from fields(struct, value if value is not None else struct(), where)


def _is_struct(type_: Any) -> bool:
    return isinstance(type_, type) and issubclass(type_, msgspec.Struct)


def _optional(type_: Any) -> bool:
    return type(None) in get_args(type_)


def _written(value: Any) -> str:
    match value:
        case None:
            return "absent"
        case True | False:
            return f"`{str(value).lower()}`"
        case Duration() if value >= 60 and value % 60 == 0:
            return f"`{value / 60:g}m`"
        case Duration():
            return f"`{value:g}s`"
        case float() | int():
            return f"`{value:g}`"
        case "":
            return '`""`'
        case str():
            return f"`{value}`"
        case dict() if not value:
            return "`{}`"
        case tuple() if not value:
            return "`[]`"
        case tuple() if all(isinstance(item, str) for item in value):
            return f"`[{', '.join(value)}]`"
        case (requirement,):
            return f"`{requirement.key} {requirement.operator} [{', '.join(requirement.values)}]`"
    raise AssertionError(value)


def documented(title: str) -> dict[str, str]:
    return {cells[0].strip("`"): cells[1] for cells in rows(section(CONFIGURATION, title))} | {}


@pytest.mark.parametrize(
    ("title", "type_"),
    [("SharderConfig", sharder.SharderConfig), ("WebhostingOperatorConfig", operator.OperatorConfig)],
)
def test_every_field_is_documented_with_its_default(title: str, type_: type[msgspec.Struct]) -> None:
    found = {**documented("Fields of both files"), **documented(title)}
    found.pop("field")
    assert found == dict(fields(type_, type_()))


def test_the_fields_of_both_files_are_those_of_both() -> None:
    common = documented("Fields of both files")
    common.pop("field")
    assert common == dict(fields(ComponentConfig, ComponentConfig()))


@pytest.mark.parametrize(
    ("title", "module", "type_"),
    [
        ("SharderConfig", sharder, sharder.SharderConfig),
        ("WebhostingOperatorConfig", operator, operator.OperatorConfig),
    ],
)
def test_the_examples_of_files_are_read_without_a_warning(title: str, module: Any, type_: Any) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", section(CONFIGURATION, title), re.S)
    _, unknown = parse_config(example, type_, api_version=module.API_VERSION, kind=module.KIND)
    assert unknown == ()
