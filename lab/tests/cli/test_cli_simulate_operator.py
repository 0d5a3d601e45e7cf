"""`kubeshard simulate run MODULE:MANAGER`: the page that explains it can be followed, and mistakes end in one line."""

from __future__ import annotations

import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kubeshard.cli.program import cli
from kubeshard.core.errors import ConfigurationError

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "how-to" / "simulate.md").read_text()


@pytest.fixture(autouse=True)
def folder(authors_folder: Path) -> Path:
    """A copy of the examples, as those who follow the page have it."""
    shutil.copytree(
        ROOT / "examples", authors_folder / "examples", ignore=shutil.ignore_patterns("__pycache__")
    )
    return authors_folder


def kubeshard(*words: str) -> Result:
    return CliRunner().invoke(cli, words)


def command(beginning: str) -> list[str]:
    """The words of the page's command that begins so."""
    (found,) = re.findall(rf"^kubeshard ({re.escape(beginning)}.*)$", PAGE, re.M)
    return shlex.split(found)


@pytest.mark.nightly
@pytest.mark.parametrize("less", [("--minutes", "1"), ()], ids=["short", "whole"])
def test_the_first_operator_is_simulated_by_the_pages_command(less: tuple[str, ...]) -> None:
    result = kubeshard(*command("simulate run examples/first_operator.py:manager"), "--seeds", "1", *less)
    assert result.exit_code == 0, result.output
    assert "seed 1: all hold" in result.stdout
    assert "faults that had effects: " in result.stdout
    assert result.stderr == ""


@pytest.mark.nightly
def test_the_planted_bug_is_found_and_replayed_by_the_pages_commands(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder / "examples")
    found = kubeshard(*command("simulate run tickets:manager"))
    assert found.exit_code == 1
    assert "always: one_ticket_each: visitor-" in found.stdout
    assert re.search(">>> always: one_ticket_each: visitor-", found.stdout)
    (replay,) = re.findall(r"again: kubeshard (simulate replay \S+)", found.stdout)
    again = kubeshard(*replay.split())
    assert again.exit_code == 1
    assert "BROKEN: always: one_ticket_each (1), stale read" in again.stdout
    assert "not the run that was recorded" not in again.stderr


RANDOM = """
import uuid
from kubeshard import *
from kubeshard.crd import CustomResource
@CustomResource()
class Desk(KubeObject, group="example.com", version="v1"):
    pass
async def reconcile(ctx, desk):
    metadata = ObjectMeta(name=desk.metadata.name, namespace="default")
    await ensure(ctx, ConfigMap(metadata=metadata, data={"id": str(uuid.uuid4())}), owner=desk)
manager = Manager([Controller(name="desk", reconciler=reconcile, primary=Watch(Desk, when=when.generation_changed),
                              owns=[ConfigMap])])
"""


@pytest.mark.long
def test_an_operator_that_is_not_repeatable_is_told_so_without_what_is_in_objects(folder: Path) -> None:
    clock = RANDOM.replace("str(uuid.uuid4())", "f'sesame {time.time_ns()}'").replace("uuid", "time")
    (folder / "desks.py").write_text(clock.replace("owns=", "reads="))
    result = kubeshard("simulate", "run", "desks", "--seeds", "1", "--minutes", "0.2", "--faults", "kill")
    assert "the operator is not repeatable: seed 1 gave two different runs" in result.stderr
    assert "POST /api/v1/namespaces/default/configmaps" in result.stderr
    assert "sesame" not in result.stderr


TWO_BUGS = """
import logging, uuid
from kubeshard import *
from kubeshard.core.owners import with_owner
from kubeshard.crd import CustomResource
@CustomResource()
class Desk(KubeObject, group="example.com", version="v1"):
    pass
PROCESS = f"{uuid.uuid4()}"
async def reconcile(ctx, desk):
    logging.error("a bug of another kind", exc_info=ValueError())
    name = f"{desk.metadata.name}-{PROCESS}"
    metadata = with_owner(ObjectMeta(name=name, namespace="default"), desk, controller=True)
    await ctx.client.create(ConfigMap(metadata=metadata))
manager = Manager([Controller(name="desk", reconciler=reconcile, primary=Watch(Desk, when=when.generation_changed))])
def one_map_each(snapshot):
    for desk in snapshot.list(Desk):
        assert len(snapshot.list(ConfigMap, owner=desk)) < 2
"""


@pytest.mark.nightly
def test_a_script_is_shrunk_to_what_breaks_the_authors_invariant_whatever_else_was_noticed_before(
    folder: Path,
) -> None:
    """It needs a second process; the other bug needs no fault."""
    (folder / "desks.py").write_text(TWO_BUGS)
    words = (
        "simulate run desks --always desks:one_map_each --seeds 1 --minutes 1 --objects 2 --faults kill,skew"
    )
    result = kubeshard(*words.split())
    first, *_ = re.findall(r"^ +[0-9.]+ (.*)", result.stdout, re.M)
    assert first == "crash: a bug of another kind: ValueError()"
    assert re.search(r"enough to break it: kill after \d+ s$", result.stdout, re.M)
    led_to_it = r"s0~2 creates ConfigMap (desk-\d)-\S+\n.*>>> always: one_map_each: "
    assert re.search(led_to_it, result.stdout)
    again = kubeshard("simulate", "replay", "simulated/seed-1-shrunk.json")
    assert re.search(led_to_it, again.stdout)


def test_a_replay_says_if_it_is_not_the_run_that_was_recorded(folder: Path) -> None:
    script = folder / "script.json"
    script.write_text(
        '{"seed": 1, "minutes": 0.2, "objects": 2, "digest": "of another run", "operator": '
        '{"target": "tickets:manager"}}'
    )
    (folder / "tickets.py").write_text((folder / "examples" / "tickets.py").read_text())
    result = kubeshard("simulate", "replay", "script.json")
    assert result.exit_code == 0, result.output
    assert "this is not the run that was recorded" in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("nothing:manager", "there is no module nothing"),
        ("examples/tickets.py:boss", "examples/tickets.py has no boss; it has Visitor"),
        ("examples/tickets.py:visitors", "is Controller, not a Manager"),
        ("examples/tickets.py --always examples/tickets.py:nobody", "examples/tickets.py has no nobody"),
        ("examples/tickets.py --always examples/tickets.py:manager", "is no function"),
        ("examples/tickets.py --sharder both", "a manager says where its sharder is"),
        ("examples/tickets.py --faults label", "label cannot be inflicted here; what can: "),
        ("examples/first_operator.py", "there is no object to work on: give --template with a Page"),
        ("--always examples/tickets.py:manager", "are for an operator: name it first"),
    ],
)
def test_a_mistake_ends_in_one_line(words: str, message: str) -> None:
    error = kubeshard("simulate", "run", *words.split()).exception
    assert isinstance(error, ConfigurationError)
    assert message in str(error)
    assert "\n" not in str(error)


NAMESPACE = """
apiVersion: v1
kind: Namespace
metadata: {name: some-place, labels: {webhosting.timebertt.dev/project: "true"}}
"""
PAGE_OBJECT = """
apiVersion: example.kubeshard.dev/v1
kind: Page
metadata: {name: $name}
spec: {title: hello}
"""
SENSOR = """
apiVersion: examples.kubeshard.dev/v1
kind: Sensor
metadata: {name: $name}
spec: {address: "device-$number:80", patience: 86400}
"""
SENSORS_WITHOUT_DEVICES = """
import asyncio
import sensors

class Device:
    said = False
    async def readline(self):
        if self.said:
            await asyncio.sleep(3600)
        self.said = True
        return b"21 degrees"
    def write(self, line): ...
    def close(self): ...

async def connected(sensor):
    device = Device()
    return device, device

sensors.connected = connected
manager = sensors.manager
"""
THEME = """
apiVersion: examples.kubeshard.dev/v1
kind: Theme
metadata: {name: $name}
spec: {color: $random}
"""
STOREFRONT = """
apiVersion: examples.kubeshard.dev/v1
kind: Storefront
metadata: {name: $name}
spec: {theme: theme-1, pages: [home, "page-$number"], directory: some-place}
"""
LABELS_OF_CONFIG_MAPS = """
from kubeshard import ConfigMap, LeaderElection, Manager
from team_labels import labels
manager = Manager([labels(ConfigMap.KIND)], leader_election=LeaderElection(name="team-labels"))
"""
LABELLED = """
apiVersion: v1
kind: ConfigMap
metadata: {name: $name, annotations: {examples.kubeshard.dev/team: $random}}
"""
WEBSITE_THEME = THEME.replace("examples.kubeshard.dev/v1", "webhosting.timebertt.dev/v1alpha1").replace(
    "$random", "$random, fontFamily: $random"
)
WEBSITE = """
apiVersion: webhosting.timebertt.dev/v1alpha1
kind: Website
metadata: {name: $name, namespace: some-place}
spec: {theme: theme-1}
"""


@dataclass(frozen=True)
class Example:
    """What is simulated, with the module whose kinds are installed, and the objects to work on. `instead`: a module
    that makes the manager with fakes for what lies outside of the cluster, or for one kind of many.
    """

    target: str
    kinds: str = ""
    templates: tuple[str, ...] = ()
    instead: str = ""


EXAMPLES = {
    "apps": Example("apps"),
    "first_operator": Example("first_operator", "first_operator", (PAGE_OBJECT,)),
    "sensors": Example("simulated", "sensors", (SENSOR,), SENSORS_WITHOUT_DEVICES),
    "storefronts": Example("storefronts", "storefronts", (STOREFRONT, THEME)),
    "team_labels": Example("simulated", "", (LABELLED,), LABELS_OF_CONFIG_MAPS),
    "webhosting": Example(
        "kubeshard_lab.examples.webhosting.operator",
        "kubeshard_lab.examples.webhosting.api",
        (WEBSITE, WEBSITE_THEME),
    ),
}
OTHERS = {
    "first_operator_sharded",  # has its manager in a script
    "no_latest",  # has webhooks only
    "tickets",  # has the planted bug
}


def test_every_example_with_a_manager_is_simulated() -> None:
    with_manager = {path.stem for path in (ROOT / "examples").glob("*.py") if "Manager(" in path.read_text()}
    assert with_manager == (EXAMPLES.keys() - {"webhosting"}) | OTHERS


@pytest.mark.nightly
@pytest.mark.parametrize("faults", [("--faults", "lost"), ()], ids=["lost", "all"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_holds_also_when_answers_are_lost(
    name: str, faults: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = EXAMPLES[name]
    monkeypatch.chdir(folder / "examples")
    (folder / "examples" / "simulated.py").write_text(example.instead)
    (folder / "namespace.yaml").write_text(NAMESPACE)
    words = ["--apply", str(folder / "namespace.yaml")]
    for number, template in enumerate(example.templates):
        (folder / f"{number}.yaml").write_text(template)
        words += ["--template", str(folder / f"{number}.yaml")]
    if example.kinds:
        (folder / "kinds.yaml").write_text(kubeshard("crd", example.kinds).stdout)
        words += ["--apply", str(folder / "kinds.yaml")]
    result = kubeshard(
        "simulate", "run", example.target, "--seeds", "1", "--minutes", "2", "--no-shrink", *words, *faults
    )
    assert result.exit_code == 0, result.output


@pytest.mark.nightly
@pytest.mark.system
@pytest.mark.parametrize(
    "options", [(), ("--sharding",), ("--webhook",)], ids=["plain", "sharding", "webhook"]
)
def test_every_scaffold_holds_also_when_answers_are_lost(
    folder: Path, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = kubeshard("init", "my-operator", *options)
    assert made.exit_code == 0, made.output
    monkeypatch.chdir(folder / "my-operator")
    monkeypatch.syspath_prepend(str(folder / "my-operator"))
    words = ("--seeds", "1", "--minutes", "2", "--objects", "5", "--no-shrink", "--faults", "lost")
    result = kubeshard("simulate", "run", "my_operator.main", *words)
    assert result.exit_code == 0, result.output
