"""No room of the sharder is called back by another one. What a room has to hear it reads from an inbox
(`sharder.rings`), or it is an object that is told; what it asks is an object or a value. So who waits for whom stands
in the names of classes, not in what a constructor was given.

What a private function is given for the time of a call is its own affair, and so are the interfaces of libraries, such
as the handlers of a cache.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache

from source_tree import PACKAGE, parsed, sources

ROOMS = (PACKAGE / "sharder", PACKAGE / "sharding")

ALLOWED = {
    "sharder.app.build_sharder(webhook_server)": "the network: a simulation serves the webhook on its own",
    "sharder.tasks.supervised(work)": "a task, which begins anew after a crash",
    "sharder.tasks.DrivenResource.start(work)": "likewise",
    "sharder.tasks.carried_out(do)": "carries out commands, for the time of the call, and keeps nothing",
    "sharding.object_job.Write(patch)": "likewise",
    "sharding.ring_machine.*": "makes a value on the spot, for what is pure, and knows nothing of the caller",
}


@cache
def _aliases() -> frozenset[str]:
    """The names of types in these packages that stand for a callable."""
    found = set[str]()
    for path in sources(*ROOMS):
        for node in parsed(path).body:
            match node:
                case ast.Assign(targets=[ast.Name(name)], value=ast.Subscript() as value) if _calls(
                    value, found
                ):
                    found.add(name)
                case ast.AnnAssign(target=ast.Name(name), value=ast.Subscript() as value) if _calls(
                    value, found
                ):
                    found.add(name)
    return frozenset(found)


def _calls(annotation: ast.AST | None, aliases: frozenset[str] | set[str] = frozenset()) -> bool:
    names = {"Callable", *aliases}
    return annotation is not None and any(
        (isinstance(node, ast.Name) and node.id in names)
        or (isinstance(node, ast.Attribute) and node.attr in names)
        for node in ast.walk(annotation)
    )


def callbacks(tree: ast.Module, aliases: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yields what others can give a module to call: `Class(field)`, `Class.method(parameter)`, `function(name)`."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for part in node.body:
                if isinstance(part, ast.AnnAssign) and _calls(part.annotation, aliases):
                    yield f"{node.name}({ast.unparse(part.target)})"
                yield from _of_function(part, node.name, aliases)
        else:
            yield from _of_function(node, "", aliases)


def _of_function(node: ast.stmt, of: str, aliases: frozenset[str]) -> Iterator[str]:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return
    if node.name.startswith("_") and node.name != "__init__":
        return
    name = of if node.name == "__init__" else ".".join(filter(None, (of, node.name)))
    given = node.args
    for each in (*given.posonlyargs, *given.args, *given.kwonlyargs):
        if _calls(each.annotation, aliases):
            yield f"{name}({each.arg})"


def test_no_room_of_the_sharder_takes_a_callback() -> None:
    found = {
        f"{path.parent.name}.{path.stem}.{what}"
        for path in sources(*ROOMS)
        for what in callbacks(parsed(path), _aliases())
    }
    refused = sorted(each for each in found if not any(fnmatchcase(each, allowed) for allowed in ALLOWED))
    assert refused == [], "an inbox, a value, or an object that is asked"
    stale = [allowed for allowed in ALLOWED if not any(fnmatchcase(each, allowed) for each in found)]
    assert stale == [], "an exception that is none any more"


def test_a_callback_is_found_whatever_its_type_is_called() -> None:
    tree = ast.parse(
        "Heard = Callable[[str], None]\n"
        "class A:\n"
        "    asked: Callable[[], float] = lambda: 0.0\n"
        "    def __init__(self, key: str, heard: Heard | None = None, *, now: Callable[[], float]) -> None: ...\n"
        "    def subscribe(self, who: collections.abc.Callable[..., None]) -> None: ...\n"
        "    def _sorted(self, key: Callable[[str], int]) -> None: ...\n"
        "async def follow(told: Callable[[], None], name: str) -> None: ...\n"
    )
    assert list(callbacks(tree, frozenset({"Heard"}))) == [
        "A(asked)",
        "A(heard)",
        "A(now)",
        "A.subscribe(who)",
        "follow(told)",
    ]
