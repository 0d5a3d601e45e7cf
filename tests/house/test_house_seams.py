"""Time, randomness, the network, threads and the environment are passed in by constructor. Only `kubeshard.runtime`
touches them, and only the code that creates the outermost object names the real world. Tests and simulations can thus
run the production classes unchanged.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest
from source_tree import installed, parsed, sources, walked

SEAMS = {
    "the clock": {
        "time", "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today",
    },
    "randomness": {"random", "uuid", "secrets", "os.urandom"},
    "the network": {
        "socket", "socketserver", "select", "selectors", "http.client", "http.server", "urllib.request",
        "asyncio.open_connection", "asyncio.start_server", "aiohttp", "pycurl", "httptools",
    },
    "threads": {"threading", "_thread", "concurrent", "multiprocessing", "asyncio.to_thread", "os.fork"},
    "the environment": {"os.environ", "os.environb", "os.getenv"},
    "programs": {"subprocess", "asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell", "os.system"},
}  # fmt: skip
METHODS = {
    "run_in_executor": "threads",
    "create_connection": "the network",
    "create_server": "the network",
    "subprocess_exec": "programs",
    "subprocess_shell": "programs",
}

BESIDE = (
    "kubeshard/runtime/*",
    "kubeshard_apiserver/testing/*",
    "kubeshard_lab/simulation/*",
    "kubeshard_lab/virtual_*.py",
)
"""The seams themselves, and modules that only tests and the demo import."""

ALLOWED = {
    ("kubeshard/client/credentials.py", "programs"): "credential plugins of a kubeconfig are programs",
    ("kubeshard/sharder/config.py", "the environment"): "loads a configuration",
    ("kubeshard/cli/init.py", "programs"): "runs the commands that a new project's README names",
    ("kubeshard/cli/*", "the environment"): "commands load configurations, and hand their environment on",
    ("kubeshard_lab/cli/*", "the environment"): "likewise",
    ("kubeshard_lab/demo/*", "the environment"): "likewise",
    ("kubeshard_lab/examples/*/__main__.py", "the environment"): "likewise",
}


REAL = {
    f"kubeshard.runtime.{name}"
    for name in (
        "clock.SystemClock", "alarm.KernelAlarm", "alarm.default_alarm",
        "rng.SystemRng", "http.HttpTransport", "loop_thread.LoopThread", "loop_watch.LoopWatchThread",
        "blocking_calls.Threads",
        "watchdog.ExitWatchdog", "watchdog.KernelWatchdog", "watchdog.default_watchdog", "environ.hostname",
        "environ.pod_namespace", "pod.boot_id", "pod.this_pod", "processes.this_process", "processes.has_ended",
        "world.REAL_WORLD", "world.SystemHost",
    )
}  # fmt: skip
"""The parts of a World on a real machine."""
IN_PLACE_OF_REAL = {
    "kubeshard.runtime.alarm.SleepAlarm",
    "kubeshard.runtime.watchdog.NoWatchdog",
    "kubeshard.runtime.loop_thread.SameLoop",
}
"""Parts that may be chosen, but must not be defaults."""

OUTERMOST = {
    "kubeshard/client/client.py": {"Client.__init__", "Client.connect"},
    "kubeshard/manager/manager.py": {"Manager.__init__"},
    "kubeshard/sharder/app.py": {"run_sharder"},
    "kubeshard_apiserver/server.py": {"ApiServer.__init__"},
}
"""Functions that users call. Only there may the world be omitted, which means the real one."""

MAY_NAME_THE_REAL_WORLD = {
    "kubeshard/cli/*": "a command begins a process in the real world",
    "kubeshard_lab/cli/*": "likewise",
    "kubeshard_lab/demo/*": "likewise",
    "kubeshard_lab/examples/*/__main__.py": "likewise",
    "kubeshard_apiserver/cli/*": "likewise",
    "kubeshard/supervisor/__main__.py": "likewise",
    "kubeshard/client/kubeconfig.py": "finds the configuration of a pod",
    "kubeshard_lab/examples/webhosting/config.py": "loads a configuration",
    "kubeshard_lab/examples/webhosting/operator.py": "`kubeshard run` calls its `manager`",
}


HANDED_ON = {
    "kubeshard.Client": {"world"},
    "kubeshard.Client.connect": {"world"},
    "kubeshard.client.client.Client": {"world"},
    "kubeshard.client.client.Client.connect": {"world"},
    "kubeshard.Manager": {"world", "client"},
    "kubeshard.manager.manager.Manager": {"world", "client"},
    "kubeshard_apiserver.server.ApiServer": {"world"},
}
"""Functions that default to the real world, and the arguments that prevent this."""

BEGINS_A_WORLD = {"kubeshard_apiserver/serving/embedded.py": "on sockets, which only the real world has"}


def fresh_starts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields (line, what) for objects that are created without the world of their creator."""
    known = _imported(tree)
    for node in walked(tree):
        if isinstance(node, ast.Call):
            dotted = _resolved(node.func, known)
            if dotted in HANDED_ON and HANDED_ON[dotted].isdisjoint(word.arg or "" for word in node.keywords):
                yield node.lineno, dotted


class Defaults(ast.NodeVisitor):
    """The parts of the real world that a module defaults to, and those that it names otherwise."""

    def __init__(self, tree: ast.Module) -> None:
        self.left_out: list[tuple[int, str, str]] = []
        """(line, function, what it defaults to)"""
        self.named: list[tuple[int, str, str]] = []
        self._known = _imported(tree)
        self._inside: list[str] = []
        self.visit(tree)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._inside.append(node.name)
        self._signature(node.args)
        for part in (*node.decorator_list, *node.body):
            self.visit(part)
        self._inside.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - the visitor's names

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._signature(node.args)
        self.visit(node.body)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._inside.append(node.name)
        for part in node.body:
            if isinstance(part, ast.AnnAssign) and part.value is not None:  # a field of a dataclass
                self._falls_back_on(part.value, REAL | IN_PLACE_OF_REAL)
            else:
                self.visit(part)
        self._inside.pop()

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for value in node.values[1:]:
            self._falls_back_on(value, IN_PLACE_OF_REAL)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        for value in (node.body, node.orelse):
            self._falls_back_on(value, IN_PLACE_OF_REAL)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        self._note(node, self.named, REAL)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._note(node, self.named, REAL)
        self.generic_visit(node)

    def _signature(self, arguments: ast.arguments) -> None:
        for default in (*arguments.defaults, *arguments.kw_defaults):
            if default is not None:
                self._falls_back_on(default, REAL | IN_PLACE_OF_REAL)

    def _falls_back_on(self, value: ast.expr, names: set[str]) -> None:
        for node in ast.walk(value):
            if isinstance(node, ast.Name | ast.Attribute):
                self._note(node, self.left_out, names)

    def _note(self, node: ast.expr, where: list[tuple[int, str, str]], names: set[str]) -> None:
        dotted = _resolved(node, self._known)
        if dotted in names:
            where.append((node.lineno, ".".join(self._inside), dotted))


def uses(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yields (line, what is used, the seam it belongs to)."""
    known = _imported(tree)
    for node in walked(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _matches(node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            for alias in node.names:
                yield from _matches(node.lineno, f"{node.module}.{alias.name}")
        if isinstance(node, ast.Attribute):
            yield from _matches(node.lineno, _resolved(node, known))
            if node.attr in METHODS:
                yield node.lineno, node.attr, METHODS[node.attr]


def _resolved(node: ast.expr, known: dict[str, str]) -> str:
    """Returns the full name that `imported.name` stands for; empty for anything else."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    first = known.get(node.id) if isinstance(node, ast.Name) else None
    return ".".join((first, *reversed(names))) if first else ""


def _imported(tree: ast.Module) -> dict[str, str]:
    """Returns what each imported name stands for."""
    known: dict[str, str] = {}
    for node in walked(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                known[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return known


@cache
def _defaults_of(path: Path) -> Defaults:
    return Defaults(parsed(path))


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


def test_only_the_outermost_objects_may_leave_the_real_world_out() -> None:
    found = [
        f"{installed(path)}:{line} {function}: {what}"
        for path in sources()
        for line, function, what in _defaults_of(path).left_out
        if function not in OUTERMOST.get(installed(path), ())
    ]
    assert not found, (
        "take it from the client's world, or as a parameter without a default (kubeshard.runtime.world)"
    )


def test_only_commands_and_the_outermost_objects_name_the_real_world() -> None:
    found = [
        f"{installed(path)}:{line} {function}: {what}"
        for path in sources()
        if not any(_matches_path(path, pattern) for pattern in (*BESIDE, *MAY_NAME_THE_REAL_WORLD))
        for line, function, what in _defaults_of(path).named
    ]
    assert not found, (
        "take it from the client's world, or as a parameter without a default (kubeshard.runtime.world)"
    )


def test_who_makes_an_outermost_object_hands_the_world_on() -> None:
    found = [
        f"{installed(path)}:{line} {what}"
        for path in sources()
        if not any(_matches_path(path, pattern) for pattern in (*BESIDE, *BEGINS_A_WORLD))
        for line, what in fresh_starts(parsed(path))
    ]
    assert not found, "say world=, or it begins in the real one whatever this one lives in"


@pytest.mark.parametrize("module", BEGINS_A_WORLD)
def test_every_place_that_begins_a_world_does(module: str) -> None:
    assert any(list(fresh_starts(parsed(path))) for path in sources() if installed(path) == module)


@pytest.mark.parametrize(("module", "functions"), OUTERMOST.items())
def test_the_outermost_objects_do_leave_it_out(module: str, functions: set[str]) -> None:
    path = next(path for path in sources() if installed(path) == module)
    assert functions == {function for _, function, _ in _defaults_of(path).left_out}


@pytest.mark.parametrize("pattern", MAY_NAME_THE_REAL_WORLD)
def test_every_place_that_may_name_it_does(pattern: str) -> None:
    assert any(Defaults(parsed(path)).named for path in sources() if _matches_path(path, pattern))


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


@pytest.mark.parametrize(
    "code",
    [
        "from kubeshard.runtime.clock import SystemClock\ndef f(clock=SystemClock()): ...",
        "from kubeshard.runtime.rng import SystemRng as Rng\nclass A:\n    def f(self, *, rng=Rng()): ...",
        "from kubeshard.runtime.world import REAL_WORLD\nclass A:\n    async def f(self, world=REAL_WORLD): ...",
        "from kubeshard.runtime import world\ndef f(clock=world.REAL_WORLD.clock): ...",
        "from kubeshard.runtime.world import REAL_WORLD\nf = lambda clock=REAL_WORLD.clock: clock",
        "from kubeshard.runtime.watchdog import NoWatchdog\ndef f(dog=None):\n    dog = dog or NoWatchdog()",
        "from kubeshard.runtime.clock import Clock, SystemClock\nclass A:\n    clock: Clock = SystemClock()",
        "from kubeshard.runtime.clock import SystemClock\nclass A:\n    c: object = field(default_factory=SystemClock)",
    ],
)
def test_the_search_finds_what_falls_back_on_the_real_world(code: str) -> None:
    assert Defaults(ast.parse(code)).left_out


@pytest.mark.parametrize(
    "code",
    [
        "from kubeshard.runtime.clock import SystemClock\nCLOCK = SystemClock()",
        "from kubeshard.runtime.world import REAL_WORLD\ndef f():\n    return REAL_WORLD.clock.monotonic()",
        "from kubeshard.runtime import environ\ndef f():\n    return [environ.hostname()]",
        "from kubeshard.runtime.http import HttpTransport\ndef f(t=None):\n    return t or HttpTransport('http://a')",
        "from kubeshard.runtime.environ import hostname\ndef f(name=None):\n    return name if name else hostname()",
        "from kubeshard.runtime.loop_thread import LoopThread\nasync def f():\n    await LoopThread('a').run(f)",
    ],
)
def test_the_search_finds_what_names_the_real_world(code: str) -> None:
    assert Defaults(ast.parse(code)).named


def test_the_search_lets_pass_what_takes_the_world_from_outside() -> None:
    code = (
        "from kubeshard.runtime.clock import Clock\nfrom kubeshard.runtime.world import World\n"
        "from kubeshard.runtime.watchdog import NoWatchdog\n"
        "def f(world: World, clock: Clock, name: str = ''):\n    g(name or world.host.name(), NoWatchdog())"
    )
    found = Defaults(ast.parse(code))
    assert not found.left_out
    assert not found.named


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from kubeshard.client.client import Client\nClient(config)", True),
        ("from kubeshard.client.client import Client\nmake = lambda: Client(config, limiter=limiter)", True),
        ("from kubeshard.client.client import Client\nasync def f():\n    await Client.connect()", True),
        ("from kubeshard.client.client import Client\nClient(config, world=client.world)", False),
        ("from kubeshard import Manager\nManager([controller])", True),
        ("from kubeshard import Manager\nManager([controller], client=client)", False),
        ("from kubeshard_apiserver.server import ApiServer\nApiServer(window=3)", True),
    ],
)
def test_the_search_finds_who_does_not_hand_the_world_on(code: str, found: bool) -> None:
    assert bool(list(fresh_starts(ast.parse(code)))) == found


def test_every_task_has_a_name_for_those_who_look_at_what_a_process_does() -> None:
    nameless = [
        f"{path.name}:{node.lineno}"
        for path in sources()
        for node in walked(parsed(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and (
            node.func.attr == "ensure_future"
            or (node.func.attr == "create_task" and "name" not in [each.arg for each in node.keywords])
        )
    ]
    assert nameless == []
