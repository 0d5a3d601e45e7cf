"""`kubeshard crd`: the classes of a module as YAML, and mistakes reported in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from kubeshard.cli.program import cli
from kubeshard.core.errors import ConfigurationError

MARKED = """
from kubeshard import KubeObject
from kubeshard.crd import CustomResource

@CustomResource(storage=True)
class Lamp(KubeObject, group="example.com", version="v2"): pass

@CustomResource()
class OldLamp(KubeObject, group="example.com", version="v1", kind="Lamp"): pass

class Certificate(KubeObject, group="cert-manager.io", version="v1"): pass
class Deployment(KubeObject, group="apps", version="v1"): pass
"""
SPEC = """
from kubeshard import KubeObject, Struct, field

class Spec(Struct):
    size: int = 1

class Lamp(KubeObject, group="example.com", version="v1"):
    spec: Spec = field(default_factory=Spec)
"""
Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def file(text: str) -> str:
        path = tmp_path / f"api_{len(list(tmp_path.iterdir()))}.py"
        path.write_text(text)
        return str(path)

    return file


def printed(*arguments: str) -> list[str]:
    """Returns the names of the definitions, with their versions."""
    done = CliRunner().invoke(cli, ["crd", *arguments], catch_exceptions=False)
    return [
        " ".join([found["metadata"]["name"], *(version["name"] for version in found["spec"]["versions"])])
        for found in yaml.safe_load_all(done.output)
    ]


def test_of_a_module_the_marked_classes_are_printed_and_versions_together(write: Write) -> None:
    assert printed(write(MARKED)) == ["lamps.example.com v2 v1"]


def test_of_a_module_without_marks_all_custom_kinds_are_printed(write: Write) -> None:
    unmarked = MARKED.replace("@CustomResource(storage=True)", "").replace(
        'class OldLamp(KubeObject, group="example.com"', 'class OldLamp(KubeObject, group="old.example.com"'
    )
    found = printed(write(unmarked.replace("@CustomResource()", "")))
    assert found == ["lamps.example.com v2", "lamps.old.example.com v1", "certificates.cert-manager.io v1"]


def test_a_class_that_is_named_is_printed(write: Write) -> None:
    assert printed(f"{write(MARKED)}:Certificate") == ["certificates.cert-manager.io v1"]
    assert printed("kubeshard_lab.examples.webhosting.api") == [
        "themes.webhosting.timebertt.dev v1alpha1",
        "websites.webhosting.timebertt.dev v1alpha1",
    ]


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("no.such.module", "there is no module no.such.module: give a name that is importable from here"),
        ("missing.py", "there is no file missing.py"),
        ("kubeshard.core:Missing", "kubeshard.core has no Missing"),
        ("kubeshard.core:", "write MODULE:NAME"),
        ("kubeshard.core:ConfigurationError", "is not a kind"),
        ("kubeshard.core:ConfigMap", "its group needs a dot"),
        ("kubeshard.version", "has no class of a custom resource"),
        (
            "kubeshard_lab.examples.webhosting.controller",
            "only imports its custom resources: name where they are, kubeshard_lab.examples.webhosting.api",
        ),
    ],
)
def test_a_mistake_is_said(reference: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says.replace(".", r"\.")):
        CliRunner().invoke(cli, ["crd", reference], catch_exceptions=False, standalone_mode=False)


VERSIONS = """
from kubeshard import KubeObject
from kubeshard.crd import CustomResource
from kubeshard.webhook import Webhooks, converts

@CustomResource(storage=True)
class Lamp(KubeObject, group="example.com", version="v2"):
    bulb: str = ""

@CustomResource()
class OldLamp(KubeObject, group="example.com", version="v1", kind="Lamp"):
    light: str = ""
"""
CONVERSION = """
@converts(OldLamp, Lamp)
def up(old: OldLamp) -> Lamp:
    return Lamp(bulb=old.light)

@converts(Lamp, OldLamp)
def down(new: Lamp) -> OldLamp:
    return OldLamp(light=new.bulb)

webhooks = Webhooks("lamps", [up, down])
"""


def conversion(*arguments: str) -> tuple[dict[str, Any], str]:
    """Returns `spec.conversion`, and what is said besides."""
    done = CliRunner().invoke(cli, ["crd", *arguments], catch_exceptions=False, standalone_mode=False)
    return yaml.safe_load(done.stdout)["spec"].get("conversion", {}), done.stderr


def test_a_kind_that_is_converted_has_the_stanza(write: Write, tmp_path: Path, monkeypatch: Any) -> None:
    service = {"namespace": "home", "name": "lamps", "path": "/convert/lamp.example.com", "port": 443}
    expected = {
        "strategy": "Webhook",
        "webhook": {"clientConfig": {"service": service}, "conversionReviewVersions": ["v1"]},
    }
    together = write(VERSIONS + CONVERSION)
    assert conversion(together, "--namespace", "home") == (expected, "")
    here = CONVERSION.replace('"lamps", ', '"lamps", namespace="home", functions=')
    assert conversion(write(VERSIONS + here)) == (expected, "")
    with pytest.raises(ConfigurationError, match=r"behind the Service lamps: say its --namespace"):
        conversion(together)
    (tmp_path / "lamp_kinds.py").write_text(VERSIONS)
    head = "from kubeshard import Manager\nfrom kubeshard.webhook import Webhooks, converts\nfrom lamp_kinds import *\n"
    (tmp_path / "lamp_operator.py").write_text(f"{head}{here}manager = Manager(servers=[webhooks])\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert conversion("lamp_kinds", "--operator", "lamp_operator") == (expected, "")


@pytest.mark.regression
@pytest.mark.parametrize(
    "manager",
    ["manager = Manager(servers=[webhooks])", "def manager():\n    return Manager(servers=[webhooks])"],
)
def test_a_check_knows_the_conversions_of_the_operator_and_does_not_guess_without_it(
    tmp_path: Path, monkeypatch: Any, manager: str
) -> None:
    package = f"lamps_{len(manager)}"
    (tmp_path / package).mkdir()
    (tmp_path / package / "types.py").write_text(VERSIONS)
    head = "from kubeshard import Manager\nfrom kubeshard.webhook import Webhooks, converts\n"
    head += f"from {package}.types import *\n"
    (tmp_path / package / "main.py").write_text(f"{head}{CONVERSION}{manager}\n")
    (tmp_path / package / "gone.py").write_text(f"{head}webhooks = Webhooks('lamps', [])\n{manager}\n")
    monkeypatch.syspath_prepend(tmp_path)
    types, main, gone = (f"{package}.{name}" for name in ("types", "main", "gone"))
    runner = CliRunner()

    def crd(*arguments: str) -> Any:
        return runner.invoke(cli, ["crd", *arguments], standalone_mode=False)

    old = tmp_path / "crd.yaml"
    old.write_text(crd(types, "--operator", main, "--namespace", "home").stdout)
    assert crd(main, "--namespace", "home").stdout == old.read_text()
    for new in ([types], [main], [f"{main}:manager"], [types, "--operator", main], [str(old)]):
        done = crd("check", str(old), *new)
        assert (done.output, done.exception) == ("", None)
    for new in ([gone], [types, "--operator", gone]):
        done = crd("check", str(old), *new)
        assert "no webhook converts between versions any more" in done.output
        assert isinstance(done.exception, SystemExit)


def test_fields_that_are_lost_without_a_conversion_are_warned_of(write: Write) -> None:
    stanza, said = conversion(write(VERSIONS))
    assert stanza == {}
    assert "the API server drops .bulb of v2, which v1 lacks, and 1 more" in said
    assert "--operator MODULE[:MANAGER]" in said
    assert conversion(write(VERSIONS.replace("light:", "bulb:"))) == ({}, "")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import nothing_of_that_name", "No module named 'nothing_of_that_name'"),
        ("raise SyntaxError('odd')", "SyntaxError: odd"),
    ],
)
def test_a_module_that_fails_is_said_with_its_stack_trace(
    write: Write, text: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["crd", write(text)], standalone_mode=False)
    assert says in capsys.readouterr().err


def test_nothing_to_print_is_wrong_usage() -> None:
    with pytest.raises(click.UsageError):
        cli.main(["crd", "show"], standalone_mode=False)


def checked(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["crd", "check", *arguments])
    return done.exit_code, done.output


def test_a_change_that_breaks_is_told_first_and_by_the_exit_code(write: Write, tmp_path: Path) -> None:
    old, new = write(SPEC), write(SPEC.replace("size: int = 1", "size: str = 'small'\n    more: int = 0"))
    assert checked(old, old) == (0, "")
    assert checked(old, new) == (
        1,
        "breaking lamps.example.com v1 .spec.size: the type was integer, is string\n"
        "ok       lamps.example.com v1 .spec.size: the default was 1, is 'small'\n"
        "ok       lamps.example.com v1 .spec.more: the field is new\n",
    )


def test_a_file_is_compared_with_classes_and_json_is_for_programs(write: Write, tmp_path: Path) -> None:
    file, new = tmp_path / "old.yaml", write(SPEC.replace("size: int = 1", "more: int = 0"))
    file.write_text(CliRunner().invoke(cli, ["crd", write(SPEC)]).output)
    code, output = checked(str(file), new, "-o", "json")
    assert (code, json.loads(output)[0]) == (
        1,
        {
            "definition": "lamps.example.com",
            "version": "v1",
            "path": ".spec.size",
            "breaking": True,
            "message": "the field is gone; stored values are pruned",
        },
    )
    wider = write(SPEC.replace("size: int = 1", "size: int = 1\n    more: int = 0"))
    assert checked(str(file), wider)[0] == 0


def test_a_file_without_a_definition_is_said(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text("kind: Pod\n")
    for arguments, says in (
        ([str(file), str(file)], "has no CustomResourceDefinition"),
        (["missing.yaml", "missing.yaml"], "No such file"),
    ):
        with pytest.raises(ConfigurationError, match=says):
            CliRunner().invoke(
                cli, ["crd", "check", *arguments], catch_exceptions=False, standalone_mode=False
            )
