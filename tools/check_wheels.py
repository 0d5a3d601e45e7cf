"""Installs both wheels as a user would and tries out the result: part of `make dist`.

In a new virtual environment with only kubeshard's wheel and its requirements, the commands work, the README's first
operator runs, `kubeshard sharder` assigns objects to it as a shard, and the commands of the other distribution say what
to install. Then, with the other wheel installed, `kubeshard apiserver` runs.

The API server is an embedded one from the environment that runs this program. Dependencies are those of
requirements.txt, with their hashes. Nothing is left behind.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import requires
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from kubeshard.client.client import Client
from kubeshard.core.errors import NotFound
from kubeshard.sharding.names import shard_label
from kubeshard.version import how_to_install
from kubeshard_apiserver.testing.child import Child
from kubeshard_apiserver.testing.control_plane import free_port, wait_until
from kubeshard_apiserver.testing.kube_api import EmbeddedApi

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
HOME = "/namespaces/default/%s/home"
_PATIENCE = 60.0


class Environment:
    """An empty virtual environment, and the programs that run there, isolated from this one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = folder / "environment" / "bin"
        run(sys.executable, "-m", "venv", "--without-pip", str(folder / "environment"))
        (self.site_packages,) = (folder / "environment" / "lib").glob("python3*/site-packages")

    def install(self, wheel: Path) -> None:
        """With the locked versions. Raises CalledProcessError if these are not complete."""
        lock = self.folder / "locked.txt"
        lock.write_text("\n".join(locked(needed(wheel))))
        self._pip("install", "--require-hashes", "--no-deps", "--requirement", str(lock))
        name, version, *_ = wheel.name.split("-")
        # By name, as from an index, so that the installation does not record the wheel's location.
        self._pip(
            "install", "--no-index", "--find-links", str(wheel.parent), "--no-deps", f"{name}=={version}"
        )
        self._pip("check")

    def _pip(self, *arguments: str) -> None:
        run(sys.executable, "-m", "pip", "--quiet", "--python", str(self.programs / "python"), *arguments)

    def said(self, *command: str) -> tuple[int, str]:
        """The exit code and the output of a program."""
        done = subprocess.run(  # noqa: S603 - what was just installed
            [str(self.programs / command[0]), *command[1:]],
            env=self._variables({}),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    @contextmanager
    def running(self, *command: str, **variables: str) -> Iterator[Child]:
        """Runs the program during the block. It has to end gracefully when it is stopped."""
        path = str(self.programs / command[0])
        child = Child(command[0], [path, *command[1:]], self.folder / "log", self._variables(variables))
        try:
            yield child
        except BaseException:
            print(child.tail(), file=sys.stderr)
            raise
        finally:
            code = child.stop(30)
        expect(code == 0, f"{' '.join(command)} ended with {code}:\n{child.tail()}")

    def _variables(self, more: Mapping[str, str]) -> dict[str, str]:
        return {"PATH": os.defpath, "HOME": str(self.folder), **more}


def run(*command: str) -> None:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    subprocess.run(command, env=variables, check=True)  # noqa: S603 - pip and venv


def expect(true: bool, otherwise: str) -> None:
    if not true:
        sys.exit(f"FAILED: {otherwise}")


def needed(wheel: Path) -> set[str]:
    """The names of the wheel's requirements, including transitive ones."""
    with ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        asked = re.findall(r"^Requires-Dist: (.+)$", archive.read(metadata).decode(), re.M)
    found: set[str] = set()
    _add(asked, found)
    return found - {"kubeshard", "kubeshard-apiserver"}


def _add(asked: Sequence[str], found: set[str], extra: str = "") -> None:
    for requirement in map(Requirement, asked):
        name = canonicalize_name(requirement.name)
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
        if applies and name not in found:
            found.add(name)
            for wanted in ("", *requirement.extras):
                _add(requires(name) or (), found, wanted)


def locked(names: set[str]) -> Iterator[str]:
    """The entries in requirements.txt for these distributions."""
    for entry in re.split(r"\n(?=\w)", (ROOT / "requirements.txt").read_text()):
        if canonicalize_name(re.split(r"[=\[]", entry)[0]) in names:
            yield entry


def use_kubeshard(environment: Environment) -> None:
    """Checks an environment with only kubeshard and its requirements."""
    check_commands(environment)
    api = EmbeddedApi(pods=False)
    try:
        check_operator(environment, api)
        check_sharder(environment, api)
    finally:
        api.stop()


def check_commands(environment: Environment) -> None:
    code, help_text = environment.said("kubeshard", "--help")
    expect(code == 0 and "sharder" in help_text, f"kubeshard --help:\n{help_text}")
    for command, extra in (("demo", "lab"), ("apiserver", "apiserver")):
        code, words = environment.said("kubeshard", command)
        expect(
            code == 2 and how_to_install(extra) in words and len(words.splitlines()) == 1,
            f"{command} said: {words}",
        )


def check_operator(environment: Environment, api: EmbeddedApi) -> None:
    """Runs the README's first operator unchanged."""
    api.install(manifest("first_operator.yaml"))
    program = copied("first_operator.py", environment)
    with environment.running("python", program, KUBECONFIG=str(api.kubeconfig)) as operator:
        api.call(lambda client: client.apply_manifest(in_default(manifest("first_page.yaml"))))
        until(operator, lambda: found(api, f"/api/v1{HOME % 'configmaps'}") is not None)


def check_sharder(environment: Environment, api: EmbeddedApi) -> None:
    """Runs a sharder, which assigns the page to the only shard: the first operator with one more argument."""
    system = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sharding-system"}}
    api.install(manifest("controllerring_crd.yaml"), system, manifest("first_operator_ring.yaml"))
    address = f"127.0.0.1:{free_port()}"
    config = environment.folder / "sharder.yaml"
    config.write_text(
        (EXAMPLES / "first_operator_sharder.yaml").read_text().replace("127.0.0.1:9443", address)
    )
    program = copied("first_operator_sharded.py", environment)
    variables = {"KUBECONFIG": str(api.kubeconfig)}

    def assigned() -> bool:
        page = found(api, f"/apis/example.kubeshard.dev/v1{HOME % 'pages'}")
        return page is not None and page["metadata"].get("labels", {}).get(shard_label("pages")) == "a"

    with (
        environment.running("kubeshard", "sharder", "--config", str(config), **variables) as sharder,
        environment.running("python", program, "a", **variables),
    ):
        until(sharder, assigned)


def use_api_server(environment: Environment) -> None:
    """Checks an environment that also has kubeshard-apiserver, but not kubeshard-lab."""
    kubeconfig = environment.folder / "kubeconfig"
    command = ("kubeshard", "apiserver", "--port", "0", "--kubeconfig", str(kubeconfig))
    with environment.running(*command) as server:
        until(server, kubeconfig.exists)
    code, words = environment.said("kubeshard", "demo")
    expect(code == 2 and how_to_install("lab") in words, f"demo said: {words}")


def use_lab(environment: Environment) -> None:
    """Checks an environment that has all three, but not what reports of experiments need."""
    code, words = environment.said(
        "kubeshard", "simulate", "run", "--seeds", "1", "--minutes", "0.2", "--objects", "3"
    )
    expect(code == 0 and "all hold" in words, f"simulate said: {words}")
    code, words = environment.said(
        "kubeshard", "manifests", "experiment", "--image", "example.com/kubeshard:v1"
    )
    expect(code == 0 and "kind: Job" in words, f"manifests experiment said: {words}")
    code, words = environment.said("kubeshard", "experiment", "basic")
    expect(code == 2 and how_to_install("lab") in words, f"experiment said: {words}")


def copied(name: str, environment: Environment) -> str:
    return str(shutil.copy(EXAMPLES / name, environment.folder))


def manifest(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((EXAMPLES / name).read_text())
    return document


def in_default(document: dict[str, Any]) -> dict[str, Any]:
    """The document in the namespace `default`, as kubectl would send it."""
    return {**document, "metadata": {"namespace": "default", **document["metadata"]}}


def found(api: EmbeddedApi, path: str) -> dict[str, Any] | None:
    async def ask(client: Client) -> dict[str, Any] | None:
        try:
            document: dict[str, Any] = json.loads((await client.raw("GET", path)).body)
        except NotFound:
            return None
        return document

    return api.call(ask)


def until(program: Child, condition: Callable[[], bool]) -> None:
    """Waits until the program has the expected effect."""
    wait_until(lambda: condition() or not program.running, _PATIENCE, f"what {program.name} is to do")
    expect(program.running, f"{program.name} ended:\n{program.tail()}")
