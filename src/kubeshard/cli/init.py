"""The command `kubeshard init`."""

from __future__ import annotations

import keyword
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template

import click

from kubeshard.commands.options import Command, version_option
from kubeshard.core.errors import ConfigurationError
from kubeshard.core.kinds import default_plural
from kubeshard.core.yaml_output import scalar
from kubeshard.version import __version__

_SUFFIX = ".template"
"""The suffix of template files that become files of the project."""

_PROJECT = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]{0,39}")
_TAKEN = frozenset(
    (
        *("Any", "AsyncIterator", "Client", "Column", "Condition", "ConfigMap", "Context", "Controller"),
        *("CustomResource", "KubeObject", "LeaderElection", "Manager", "ObjectMeta", "Path", "Reconciler"),
        *("Struct", "Watch"),
    )
)
"""Kinds whose classes would shadow names that the project's modules import."""

_GROUP = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")


@click.command(
    cls=Command,
    short_help="Create the project of a new operator.",
    examples=(
        "kubeshard init my-operator",
        "kubeshard init web-operator --kind Website --group web.example.com",
    ),
)
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option(
    "--kind",
    default="Greeting",
    show_default=True,
    metavar="KIND",
    help="The kind that the operator reconciles.",
)
@click.option(
    "--group", default="example.com", show_default=True, metavar="GROUP", help="The API group of the kind."
)
@version_option
def init(folder: Path, kind: str, group: str) -> None:
    """Create a small but complete operator in FOLDER, which must be empty or not exist: its kind, a reconciler, tests
    and manifests. The project is named after the folder.
    """
    project = folder.resolve().name
    for what, text, pattern, example in (
        ("project name", project, _PROJECT, "my-operator"),
        ("--kind", kind, _KIND, "Website"),
        ("--group", group, _GROUP, "web.example.com"),
    ):
        if not pattern.fullmatch(text):
            raise ConfigurationError(f"{what} {text!r}: give one such as {example}")
    package = project.replace("-", "_")
    if keyword.iskeyword(package):
        raise ConfigurationError(f"project name {project!r}: a package cannot have this name; choose another")
    if package in sys.stdlib_module_names or package in ("kubeshard", "manifests", "tests"):
        raise ConfigurationError(
            f"project name {project!r}: a module of that name exists already; choose another"
        )
    if kind in _TAKEN:
        raise ConfigurationError(
            f"--kind {kind!r}: the project imports another class of this name; choose another"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(f"{folder} exists and is not an empty folder: choose another")
    values = _values(project, kind, group)
    try:
        written = [*_written(folder, values), *_generated(folder, values)]
    except OSError as error:
        raise ConfigurationError(f"{error.filename}: {error.strerror}") from error
    for file in (
        written
    ):  # only now: a reader that closes the pipe early, as `head` does, must not leave half a project
        click.echo(file)
    click.echo(f"\nIt is ready to run: see {folder / 'README.md'}", err=True)


def _written(folder: Path, values: Mapping[str, str]) -> Iterator[Path]:
    for path, content in _project(values):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        yield file


def _generated(folder: Path, values: Mapping[str, str]) -> Iterator[Path]:
    """Generates the manifests from the project's code, with the commands that its README names."""
    package, project = values["package"], values["project"]
    for name, arguments in (
        ("crd.yaml", ["crd", f"{package}.types"]),
        (
            "rbac.yaml",
            ["rbac", f"{package}.main", "--name", project, "--service-account", f"{project}:{project}"],
        ),
    ):
        file = folder / "manifests" / name
        command = [sys.executable, "-m", "kubeshard", *arguments]
        file.write_bytes(subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, check=True).stdout)  # noqa: S603
        yield file


def _values(project: str, kind: str, group: str) -> dict[str, str]:
    lower = kind.lower()
    return {
        "project": project,
        "package": project.replace("-", "_"),
        "kind": kind,
        "kinds": f"{kind}s",
        "lower": lower,
        "plural": default_plural(kind),
        "group": group,
        "kubeshard": __version__,
        "project_in_yaml": scalar(project),
        "kind_in_yaml": scalar(kind),
    }


def _project(values: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Pairs of path within the project and content."""
    for path, template in _files(files("kubeshard.cli") / "templates", Path()):
        *folders, name = path.parts
        renamed = [values["package"] if folder == "package" else folder for folder in folders]
        yield Path(*renamed, name.removesuffix(_SUFFIX)), Template(template.read_text()).substitute(values)


def _files(folder: Traversable, path: Path) -> Iterator[tuple[Path, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _files(entry, path / entry.name)
        elif entry.name.endswith(_SUFFIX):
            yield path / entry.name, entry
