"""`kubeshard run` runs an operator by its name, and reports a mistake in it with file and line."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kubeshard import Client
from kubeshard.cli.loading import load_manager
from kubeshard.cli.loading import load_name as load
from kubeshard.cli.run import run as run_command
from kubeshard.cli.yaml_files import read_documents
from kubeshard.core import ConfigurationError, NotFound
from kubeshard.core.yaml_output import as_yaml
from kubeshard.manifests.operator import definitions
from kubeshard_apiserver.testing import KubeApi

ROOT = Path(__file__).parents[3]

OPERATOR = """
from kubeshard import ConfigMap, Controller, Manager

async def reconcile(ctx, obj):
    ctx.log.info("seen", data=str(obj.data))

controller = Controller(name="maps", reconciler=reconcile, primary=ConfigMap)

def manager():
    return Manager([controller], status_pages=None)
"""
MAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: first, namespace: default}
data: {greeting: hello}
"""


@pytest.fixture
def folder(authors_folder: Path) -> Path:
    return authors_folder


MISTAKES = [
    ("", "absent:manager", r"there is no module absent: "),
    ("", "mine.inner:manager", r"there is no module mine.inner: "),
    ("x = 1\nclass App: ...", "mine:manager", r"^mine has no manager; it has x, App$"),
    ("", "mine:manager", r"^mine has no manager$"),
    ("", ":manager", r"write MODULE:NAME"),
    (
        "from kubeshard import Controller, ConfigMap\n\nController(name='a b', reconciler=None, primary=ConfigMap)",
        "mine:manager",
        r"mine\.py:3: controller name 'a b': ",
    ),
    (
        "from kubeshard import Manager, StatusPages\nmanager = Manager(status_pages=StatusPages(metrics_address='no'))",
        "mine:manager",
        r"mine\.py:2: metrics_address: ",
    ),
]


@pytest.mark.parametrize(("code", "target", "message"), MISTAKES)
def test_a_mistake_is_one_line_that_says_where(folder: Path, code: str, target: str, message: str) -> None:
    (folder / "mine.py").write_text(code)
    with pytest.raises(ConfigurationError, match=message):
        load(target, "manager")


def test_of_a_package_without_a_manager_its_modules_are_named(folder: Path) -> None:
    (folder / "package").mkdir()
    for name in ("__init__", "main"):
        (folder / "package" / f"{name}.py").write_text("")
    with pytest.raises(ConfigurationError, match=r"^package has no manager; its modules are main$"):
        load("package", "manager")


@pytest.mark.parametrize("code", ["async def manager(): ...", "def manager(cluster): ..."])
def test_a_function_that_cannot_be_called_for_the_manager_is_told_so(folder: Path, code: str) -> None:
    (folder / "mine.py").write_text(code)
    with pytest.raises(
        ConfigurationError, match=r"^mine: a function that makes the Manager must not be `async def`"
    ):
        load_manager("mine")


@pytest.mark.parametrize("more", ["", "manager = manager()\n"])
def test_a_manager_that_opens_something_itself_is_told_where_that_belongs(folder: Path, more: str) -> None:
    (folder / "mine.py").write_text(
        "from contextlib import asynccontextmanager\n"
        f"@asynccontextmanager\nasync def manager():\n    yield 1\n{more}"
    )
    with pytest.raises(ConfigurationError, match=r"^mine: .* Manager\(\[\.\.\.\], opens=\[\.\.\.\]\)"):
        load_manager("mine")


def test_yaml_that_cannot_be_read_is_one_line_that_says_where(folder: Path) -> None:
    (folder / "bad.yaml").write_text("a: 1\nb: [\n")
    with pytest.raises(ConfigurationError, match=r"^bad\.yaml: not YAML on line 3: .*$"):
        read_documents(Path("bad.yaml"))


@pytest.mark.parametrize("code", ["1 / 0", "import absent_dependency", "raise ValueError('mine')", "]"])
def test_a_crash_of_the_authors_code_is_a_stack_trace_from_the_authors_first_line(
    folder: Path, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "mine.py").write_text(f"\n{code}\n")
    with pytest.raises(SystemExit) as ended:
        load("mine", "manager")
    assert ended.value.code == 1
    told = capsys.readouterr().err
    assert re.search(r'File ".*mine\.py", line 2', told)
    assert str(ROOT / "kubeshard" / "src") not in told


def test_what_is_named_is_found_in_the_current_folder_and_in_packages(folder: Path) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "__init__.py").write_text("manager = 1\n")
    (folder / "mine" / "inner.py").write_text("class Here:\n    other = 2\n")
    assert load("mine", "manager") == 1
    assert load("mine.inner:Here.other") == 2


def test_a_file_hides_no_module_of_its_name(folder: Path) -> None:
    (folder / "types.py").write_text("manager = 1\n")
    before = sys.modules["types"]
    assert load("types.py", "manager") == 1
    assert sys.modules["types"] is before


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "kubeshard", "run", *arguments]
    with subprocess.Popen(
        command, cwd=folder, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        ending = threading.Timer(90, program.kill)  # then its output ends
        ending.start()
        try:
            yield program
        finally:
            ending.cancel()
            program.kill()


@pytest.mark.system
def test_an_operator_runs_without_a_cluster_and_stops_at_the_first_signal(folder: Path) -> None:
    (folder / "mine.py").write_text(OPERATOR)
    (folder / "map.yaml").write_text(MAP)
    with running(folder, "mine:manager", "--embedded", "--apply", "map.yaml") as program:
        assert program.stderr
        told, deadline = [], time.monotonic() + 60
        for line in program.stderr:
            told.append(line)
            if "greeting" in line:
                break
            assert time.monotonic() < deadline, told
        assert re.match(r"export KUBECONFIG=\S+\n", told[0])
        assert "applied ConfigMap first\n" in told
        program.send_signal(signal.SIGTERM)
        _, rest = program.communicate(timeout=60)
        assert program.returncode == 0, rest
        assert "Traceback" not in rest


OWNING = """
from kubeshard import ConfigMap, Controller, Manager, ObjectMeta, Reconciler, ensure

class Maps(Reconciler):
    async def reconcile(self, ctx, obj):
        if obj.metadata.name == "first":
            await ensure(ctx, ConfigMap(metadata=ObjectMeta(name="second", namespace="default")), owner=obj)
            await ctx.client.delete(ConfigMap, "first", "default")

    async def gone(self, ctx, key):
        ctx.log.info("gone", name=key.name)

manager = Manager([Controller(name="maps", reconciler=Maps(), primary=ConfigMap)], status_pages=None)
"""


@pytest.mark.system
def test_an_embedded_cluster_deletes_objects_with_their_owners(folder: Path) -> None:
    (folder / "mine.py").write_text(OWNING)
    (folder / "map.yaml").write_text(MAP)
    with running(folder, "mine:manager", "--embedded", "--apply", "map.yaml") as program:
        assert program.stderr
        assert any(" gone " in line and "name=second" in line for line in program.stderr)


@pytest.mark.system
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["mine:number"], 2, "Error: mine:number is int, not a Manager: write manager = Manager([...])\n"),
        (
            ["mine:manager", "--apply", "bad.yaml"],
            2,
            "Error: bad.yaml: a document has no kind or no metadata.name\n",
        ),
        (["mine:manager", "--apply", "empty.yaml"], 2, "Error: empty.yaml: no object in it\n"),
        (
            ["mine:manager", "--metrics-address", "no"],
            2,
            "Error: metrics_address: bind address 'no' is not of the form host:port or :port\n",
        ),
        (
            ["mine:manager", "--embedded", "--context", "x"],
            2,
            "Error: --embedded brings its own cluster: leave out --kubeconfig and --context\n",
        ),
    ],
)
def test_a_wrong_argument_is_one_line(folder: Path, arguments: list[str], code: int, message: str) -> None:
    (folder / "mine.py").write_text(f"{OPERATOR}\nnumber = 1\n")
    (folder / "bad.yaml").write_text("- 1\n")
    (folder / "empty.yaml").write_text("# what a command that failed has left\n")
    with running(folder, *arguments) as program:
        _, told = program.communicate(timeout=60)
    assert (program.returncode, told) == (code, message)


KUBECONFIG = """
clusters: [{name: here, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: here, context: {cluster: here}}]
current-context: here
"""


@pytest.mark.system
def test_objects_are_applied_to_no_other_cluster_than_the_managers(folder: Path) -> None:
    elsewhere = OPERATOR.replace(
        "Manager([", "Manager(client=ClusterConfig('http://elsewhere'), controllers=["
    )
    (folder / "mine.py").write_text(f"from kubeshard.client import ClusterConfig\n{elsewhere}")
    (folder / "map.yaml").write_text(MAP)
    (folder / ".kube").mkdir()
    (folder / ".kube" / "config").write_text(KUBECONFIG)
    with running(folder, "mine:manager", "--apply", "map.yaml") as program:
        _, told = program.communicate(timeout=60)
    assert program.returncode == 2
    assert told.startswith("Error: the manager was created with a client: its cluster is already chosen; ")


@pytest.mark.system
def test_as_deployed_it_has_the_rights_of_its_service_account_and_no_others(
    folder: Path, kube_api: KubeApi
) -> None:
    (folder / "mine.py").write_text(OPERATOR)
    (folder / "map.yaml").write_text(MAP)
    deployed = (
        "--as-deployed",
        "default:mine",
        "--apply",
        "map.yaml",
        "--kubeconfig",
        str(kube_api.kubeconfig),
    )
    with running(folder, "mine:manager", *deployed) as program:
        assert program.stderr is not None
        seen = []
        for line in program.stderr:
            seen.append(line)
            if "system:serviceaccount:default:mine" in line:
                break
        program.send_signal(signal.SIGINT)
        program.communicate(timeout=60)
    assert "A kind cannot be read" in seen[-1]
    assert "applied ConfigMap first\n" in seen  # by the user, who may


CHECKING = """
from kubeshard import Controller, KubeObject, Manager
from kubeshard.crd import CustomResource
from kubeshard.webhook import Denied, Webhooks, converts, validates

@CustomResource(storage=True)
class Note(KubeObject, group="notes.example.com", version="v2"):
    text: str = ""

@CustomResource()
class OldNote(KubeObject, group="notes.example.com", version="v1", kind="Note"):
    body: str = ""

@converts(OldNote, Note)
def up(old):
    return Note(text=old.body)

@converts(Note, OldNote)
def down(new):
    return OldNote(body=new.text)

@validates(Note)
def short(note):
    if len(note.text) > 10:
        raise Denied("too long")

async def reconcile(ctx, note):
    ctx.log.info("seen", text=note.text)

controller = Controller(name="notes", reconciler=reconcile, primary=Note)
webhooks = Webhooks("notes", [up, down, short], host="127.0.0.1", port=0)
manager = Manager([controller], servers=[webhooks], status_pages=None)
"""
NOTE = """
apiVersion: notes.example.com/v1
kind: Note
metadata: {name: first, namespace: default}
body: TEXT
"""
DEFINED = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/notes.notes.example.com"
VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/notes"


def read(kube_api: KubeApi, path: str) -> Any:
    async def got(client: Client) -> Any:
        return json.loads((await client.raw("GET", path)).body)

    return kube_api.call(got)


@pytest.fixture
def checking(folder: Path) -> Path:
    """An operator with webhooks, and its manifests."""
    (folder / "mine.py").write_text(CHECKING)
    manager = load_manager("mine")
    (folder / "crd.yaml").write_text(as_yaml(next(iter(definitions(manager, "notes-system")))))
    return folder


@pytest.mark.system
def test_what_is_applied_on_an_embedded_server_is_converted_and_checked_by_the_operator(
    checking: Path,
) -> None:
    (checking / "good.yaml").write_text(NOTE.replace("TEXT", "hello"))
    embedded = ("mine:manager", "--embedded", "--apply", "crd.yaml", "--apply")
    with running(checking, *embedded, "good.yaml") as program:
        assert program.stderr
        told = []
        for line in program.stderr:
            told.append(line)
            if "applied Note first\n" in told and any("text=hello" in each for each in told):
                break
        else:
            raise AssertionError(told)
        program.send_signal(signal.SIGINT)
        program.communicate(timeout=60)
    (checking / "bad.yaml").write_text(NOTE.replace("TEXT", "far too long"))
    with running(checking, *embedded, "bad.yaml") as program:
        _, rest = program.communicate(timeout=60)
    assert (program.returncode, "too long" in rest.splitlines()[-1]) == (1, True), rest


@pytest.mark.system
def test_a_cluster_calls_webhooks_at_the_url_and_is_left_as_it_was(checking: Path, kube_api: KubeApi) -> None:
    kube_api.install(*read_documents(checking / "crd.yaml"))
    before = read(kube_api, DEFINED)
    (checking / "good.yaml").write_text(NOTE.replace("TEXT", "hello"))
    here = ("--kubeconfig", str(kube_api.kubeconfig), "--webhook-url", "https://127.0.0.1")
    with running(checking, "mine:manager", "--apply", "good.yaml", *here) as program:
        assert program.stderr
        for line in program.stderr:
            if "text=hello" in line:
                break
        assert read(kube_api, VALIDATING)["webhooks"][0]["failurePolicy"] == "Ignore"
        program.send_signal(signal.SIGINT)
        _, rest = program.communicate(timeout=60)
    assert program.returncode == 0, rest
    with pytest.raises(NotFound):
        read(kube_api, VALIDATING)
    after = read(kube_api, DEFINED)
    assert after["spec"] == before["spec"]


def test_several_processes_are_refused_where_each_would_have_its_own_cluster_or_all_objects(
    folder: Path,
) -> None:
    (folder / "mine.py").write_text(OPERATOR)
    done = CliRunner().invoke(run_command, ["mine", "--processes", "2", "--embedded"])
    assert 'sharding=Sharding("NAME"' in str(done.exception)
    sharded = OPERATOR.replace("Manager([", "Manager(sharding=Sharding('maps', mode='both'), controllers=[")
    (folder / "shards.py").write_text(f"from kubeshard import Sharding\n{sharded}")
    done = CliRunner().invoke(run_command, ["shards", "--processes", "2", "--embedded"])
    assert "run `kubeshard apiserver` and `kubectl apply`" in str(done.exception)
    done = CliRunner().invoke(run_command, ["shards", "--processes", "none"])
    assert "processes 'none': a number from 1, or auto" in str(done.exception)


def test_certificates_without_a_url_are_refused(folder: Path) -> None:
    (folder / "mine.py").write_text(OPERATOR)
    done = CliRunner().invoke(run_command, ["mine", "--webhook-public-ca"])
    assert "belong to a --webhook-url" in str(done.exception or done.output)
