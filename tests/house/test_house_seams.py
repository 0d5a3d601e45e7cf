"""Time, randomness, the network, threads and the environment come in by constructor: only `kubeshard.runtime` touches
them. So the production classes run in tests and simulations as they are.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest
from source_tree import installed, parsed, sources

SEAMS = {
    "the clock": {
        "time", "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today",
    },
    "randomness": {"random", "uuid", "secrets", "os.urandom"},
    "the network": {
        "socket", "socketserver", "select", "selectors", "http.client", "http.server", "urllib.request",
        "asyncio.open_connection", "asyncio.start_server", "aiohttp", "pycurl", "uvicorn",
    },
    "threads": {"threading", "_thread", "concurrent", "multiprocessing", "asyncio.to_thread", "os.fork"},
    "the environment": {"os.environ", "os.environb", "os.getenv"},
    "programs": {"subprocess", "asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell", "os.system"},
}  # fmt: skip
METHODS = {"run_in_executor": "threads", "create_connection": "the network", "create_server": "the network"}

BESIDE = ("kubeshard/runtime/*", "kubeshard*/testing/*")
"""The seams themselves, and what only tests and the demo import."""

ALLOWED = {
    ("kubeshard/client/exec_plugin.py", "programs"): "credential plugins of a kubeconfig are programs",
    ("kubeshard/sharder/config.py", "the environment"): "loads a configuration",
    ("kubeshard/cli/*", "the environment"): "commands load configurations, and hand their environment on",
}


def uses(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """(line, what is used, which seam it belongs to)"""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                known[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
                yield from _matches(node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield from _matches(node.lineno, f"{node.module}.{alias.name}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            first, _, rest = ast.unparse(node).partition(".")
            yield from _matches(node.lineno, f"{known.get(first, '')}.{rest}")
            if node.attr in METHODS:
                yield node.lineno, node.attr, METHODS[node.attr]


@cache
def _uses_of(path: Path) -> tuple[tuple[int, str, str], ...]:
    return tuple(uses(parsed(path)))


def _matches(line: int, dotted: str) -> Iterator[tuple[int, str, str]]:
    for seam, names in SEAMS.items():
        if any(dotted == name or dotted.startswith(name + ".") for name in names):
            yield line, dotted, seam


@pytest.mark.parametrize("seam", SEAMS)
def test_only_runtime_touches(seam: str) -> None:
    allowed = [*BESIDE, *(pattern for pattern, what in ALLOWED if what == seam)]
    found = [
        f"{installed(path)}:{line} {what}"
        for path in sources()
        if not any(_matches_path(path, pattern) for pattern in allowed)
        for line, what, touched in _uses_of(path)
        if touched == seam
    ]
    assert not found, f"{seam} belongs behind a protocol of kubeshard.runtime"


@pytest.mark.parametrize(("pattern", "seam"), ALLOWED)
def test_every_exception_is_still_needed(pattern: str, seam: str) -> None:
    paths = [path for path in sources() if _matches_path(path, pattern)]
    assert any(seam == found for path in paths for _, _, found in _uses_of(path))


def _matches_path(path: Path, pattern: str) -> bool:
    return fnmatch(installed(path), pattern)


@pytest.mark.parametrize(
    ("code", "seam"),
    [
        ("import time", "the clock"),
        ("from time import monotonic as now", "the clock"),
        ("from datetime import UTC, datetime\ndatetime.now(UTC)", "the clock"),
        ("import datetime as dt\ndt.datetime.now()", "the clock"),
        ("import os\nos.environ['HOME']", "the environment"),
        ("from os import environ", "the environment"),
        ("import asyncio\nasyncio.to_thread(print)", "threads"),
        ("loop.run_in_executor(None, print)", "threads"),
        ("from concurrent.futures import ThreadPoolExecutor", "threads"),
        ("import http.client", "the network"),
        ("import aiohttp.web", "the network"),
        ("import pycurl", "the network"),
    ],
)
def test_the_search_finds(code: str, seam: str) -> None:
    assert seam in {found for _, _, found in uses(ast.parse(code))}


def test_the_search_lets_pure_uses_of_datetime_and_os_pass() -> None:
    code = "import os\nfrom datetime import datetime\ndatetime.fromisoformat(os.path.join('a'))"
    assert not list(uses(ast.parse(code)))
