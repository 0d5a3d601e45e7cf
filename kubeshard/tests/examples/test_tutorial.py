"""The tutorials: all of their commands are run, all of their files are written, and the output is what the pages show.

A block of `sh` with a title is a terminal of that name: Ctrl-C ends what runs there, and the block starts afresh. Other
`sh` blocks run in order in one shell. A block of `python` whose title is a file name is that file; one of `diff` says
which of its lines to replace, one after the other. The content of a
`text` block must be in the output of the block before it, or of the terminal that is its title; the last command of a
shell block is repeated until it is, as a reader would do. Ages may differ.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kubeshard_apiserver.testing.assets import find_assets
from kubeshard_apiserver.testing.control_plane import free_port

pytestmark = [pytest.mark.system, pytest.mark.kube]

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "tutorial.md"
SHARDING_PAGE = ROOT / "docs" / "sharding-tutorial.md"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.M | re.S)
PATIENCE = 90.0


class Terminal:
    """A program in the background, as the shell of a terminal runs it."""

    def __init__(self, script: str, folder: Path, environment: dict[str, str], log: Path) -> None:
        self._log = log
        with log.open("w") as file:
            self._program = subprocess.Popen(
                ["bash", "-e", "-c", script],
                cwd=folder,
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def text(self) -> str:
        return self._log.read_text()

    def interrupt(self) -> None:
        """Sends Ctrl-C to all programs of the terminal."""
        if self._program.poll() is None:
            os.killpg(self._program.pid, signal.SIGINT)
        self._program.wait(60)

    def kill(self) -> None:
        if self._program.poll() is None:
            os.killpg(self._program.pid, signal.SIGKILL)
            self._program.wait()


class Reader:
    """Does what the page says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.terminals: dict[str, Terminal] = {}
        programs = folder / "bin"
        programs.mkdir()
        plugin = "-c 'from kubeshard.cli import shard_main; shard_main()'"
        for name, command in (
            ("kubeshard", "-m kubeshard"),
            ("kubectl-shard", plugin),
            ("pytest", "-m pytest"),
            ("python", ""),
        ):
            (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {command} "$@"\n')
            (programs / name).chmod(0o755)
        path = f"{programs}{os.pathsep}{find_assets()}{os.pathsep}{os.environ['PATH']}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        self.environment = kept | {"PATH": path, "HOME": str(folder)}
        self._before = ""
        self._said: list[str] | Terminal = []

    def type(self, script: str) -> None:
        lines = script.strip().splitlines()
        shown = self._shell(script)
        self._before += "".join(f"{line}\n" for line in lines if line.startswith(("cd ", "export ")))
        self._said = [lines[-1], shown]

    def start(self, title: str, script: str) -> None:
        if title in self.terminals:
            self.terminals[title].interrupt()
        log = self.folder / f"{title}.{len(list(self.folder.glob('*.log')))}.log"
        terminal = Terminal(f"{self._before}{script}", self.folder, self.environment, log)
        self.terminals[title] = self._said = terminal
        if "apiserver" in script:  # the reader waits for its output
            self.sees(["export KUBECONFIG"])

    def write(self, name: str, content: str) -> None:
        file = self.folder / "hello-operator" / name
        assert file.exists(), f"the page changes {name}, which kubeshard init does not make"
        file.write_text(content)

    def change(self, name: str, difference: str) -> None:
        file = self.folder / "hello-operator" / name
        text, lines = file.read_text(), difference.splitlines()
        for before, after in zip(lines[::2], lines[1::2], strict=True):
            assert (before[0], after[0], text.count(before[1:])) == ("-", "+", 1), (
                f"{name} has no {before[1:]}"
            )
            text = text.replace(before[1:], after[1:])
        file.write_text(text)

    def looks_at(self, title: str) -> None:
        self._said = self.terminals[title]

    def sees(self, wanted: list[str]) -> None:
        """Waits until all lines are in what was said last."""
        deadline = time.monotonic() + PATIENCE
        while missing := [line for line in wanted if _plain(line) not in _plain(self._shown())]:
            assert time.monotonic() < deadline, f"{missing} not in {self._shown()}"
            time.sleep(0.2)
            if isinstance(self._said, list):
                self._said[1] = self._shell(self._said[0])

    def _shown(self) -> str:
        return self._said.text if isinstance(self._said, Terminal) else self._said[1]

    def _shell(self, script: str) -> str:
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", f"{self._before}{script}"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
        )
        ready_later = done.returncode == 1 and "NotFound" in done.stdout  # the command is repeated
        assert done.returncode == 0 or ready_later, f"{script}\n{done.stdout}"
        return done.stdout


def _plain(text: str) -> str:
    """Collapses spaces, because the width of columns depends on their content, and hides ages."""
    return re.sub(r"[ \t]+", " ", re.sub(r"\b(?:\d+m)?\d+s\b|\b\d+m\b", "AGE", text))


def follow(page: Path, reader: Reader) -> None:
    blocks = BLOCK.findall(page.read_text())
    assert len(blocks) > 20
    try:
        for language, title, content in blocks:
            match language, bool(title):
                case "sh", False:
                    reader.type(content)
                case "sh", True:
                    reader.start(title, content)
                case "text", _:
                    if title:
                        reader.looks_at(title)
                    reader.sees(content.splitlines())
                case "python", True:
                    reader.write(title, content)
                case "diff", True:
                    reader.change(title, content)
                case _:
                    pytest.fail(f"a block of {language} that nobody reads: {content}")
    finally:
        for terminal in reader.terminals.values():
            terminal.kill()


def test_the_tutorial_can_be_followed_from_its_first_command_to_its_last(tmp_path: Path) -> None:
    follow(PAGE, Reader(tmp_path))


def test_the_tutorial_of_a_ring_can_be_followed_from_one_replica_to_five_and_to_labels(
    tmp_path: Path,
) -> None:
    reader = Reader(tmp_path)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    config = tmp_path / "examples" / "first_operator_sharder.yaml"
    config.write_text(
        config.read_text().replace("9443", str(free_port()))
    )  # it may be in use on this machine
    follow(SHARDING_PAGE, reader)
