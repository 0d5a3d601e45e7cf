"""What the commands share: options, a client, and how an answer is printed."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import wraps
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from kubeshard.commands.options import Function, cluster_options
from kubeshard.runtime.logs import one_line

if TYPE_CHECKING:
    from kubeshard.client.client import Client
    from kubeshard.inspection.live import RingWatcher
    from kubeshard.inspection.ring import SeenRing

T = TypeVar("T")

FORMATS = ("json", "yaml", "name")


def output_option(function: Function) -> Function:
    """Adds `-o`, passed to the function as `output`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(FORMATS),
        help="Machine-readable output; `name` is one name per line (default: human-readable text).",
    )(function)


def namespace_option(function: Function) -> Function:
    """Adds `-n`, passed to the function as `namespace`."""
    return click.option(
        "-n",
        "--namespace",
        metavar="NAME",
        help="Namespace of the object (default: that of the kubeconfig's context).",
    )(function)


def object_argument(function: Function) -> Function:
    """Adds `KIND/NAME` or `KIND NAME`, passed to the function as `words`."""
    return click.argument("words", metavar="KIND/NAME", nargs=-1, required=True)(function)


class Access(NamedTuple):
    """The cluster, and as whom it is asked. `impersonate`: request headers."""

    kubeconfig: str | None
    context: str | None
    impersonate: Mapping[str, str | Sequence[str]]


def access_options(function: Callable[..., None]) -> Callable[..., None]:
    """`--kubeconfig`, `--context`, `--as` and `--as-group`, given on as `access`."""

    @cluster_options
    @click.option("--as", "user", metavar="USER", help="Impersonate this user, as in kubectl.")
    @click.option(
        "--as-group",
        "groups",
        metavar="GROUP",
        multiple=True,
        help="Impersonate this group, too; requires --as; may be repeated.",
    )
    @wraps(function)
    def given(
        *arguments: Any,
        kubeconfig: str | None,
        context: str | None,
        user: str | None,
        groups: Sequence[str],
        **others: Any,
    ) -> None:
        if groups and not user:
            raise click.UsageError("--as-group requires --as")
        headers: dict[str, Any] = {"Impersonate-User": user, "Impersonate-Group": groups}
        impersonate = {name: value for name, value in headers.items() if value}
        function(*arguments, access=Access(kubeconfig, context, impersonate), **others)

    return given


def ask(access: Access, question: Callable[[Client], Awaitable[T]]) -> T:
    """Answers a question with a client for the cluster. Raises KubeshardError."""
    from kubeshard.client.connecting import connected
    from kubeshard.runtime.world import REAL_WORLD

    async def answer() -> T:
        async with connected(
            access.kubeconfig,
            access.context,
            world=REAL_WORLD,
            patient=False,
            impersonate=access.impersonate,
        ) as client:
            return await question(client.with_user_agent("kubectl-shard"))

    return asyncio.run(answer())


def stop_in_order() -> None:
    """SIGTERM ends the command as Ctrl-C does, so that the terminal is left as it was."""

    def end(number: int, frame: FrameType | None) -> None:
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what is in the background
            signal.default_int_handler(number, frame)
        signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGTERM, end)


async def first_of(**works: Coroutine[Any, Any, None]) -> None:
    """Runs them until the first one ends, and re-raises its exception."""
    tasks = [asyncio.create_task(work, name=name) for name, work in works.items()]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)  # and nobody asks for the errors of the others
    for task in tasks:
        if task in done:
            task.result()


async def only_ring(client: Client, name: str | None) -> SeenRing:
    """The ring of that name, or the only ring. Raises ConfigurationError, Unanswerable."""
    from kubeshard.core.errors import ConfigurationError
    from kubeshard.inspection.cluster import read_cluster
    from kubeshard.inspection.ring import see

    cluster = await read_cluster(client)
    if name is None and len(cluster.rings) > 1:
        raise ConfigurationError(f"there are several rings: name one of {', '.join(cluster.rings)}")
    if name is None and not cluster.rings:
        raise cluster.no_rings()
    return await see(client, cluster, name or next(iter(cluster.rings)))


async def watched_rings(client: Client, name: str | None) -> dict[str, RingWatcher]:
    """The ring of that name, or all, by name. Raises Unanswerable."""
    from kubeshard.inspection.cluster import read_cluster
    from kubeshard.inspection.live import RingWatcher
    from kubeshard.inspection.ring import see

    cluster = await read_cluster(client)
    if name is None and not cluster.rings:
        raise cluster.no_rings()
    names = [name] if name else sorted(cluster.rings)
    return {each: RingWatcher(client, await see(client, cluster, each)) for each in names}


def say(text: str = "") -> None:
    """Prints text in which names and messages from the cluster may stand: only its line breaks reach the terminal as
    they are, and no other control character.
    """
    click.echo("\n".join(map(one_line, text.split("\n"))))


def print_value(value: object, output: str) -> None:
    import msgspec

    plain: Any = msgspec.to_builtins(value)
    if output == "json":
        click.echo(json.dumps(plain, indent=2))
    else:
        from kubeshard.core.yaml_output import as_yaml

        click.echo(as_yaml(plain), nl=False)


def print_table(rows: Sequence[Sequence[object]], *, indent: str = "") -> None:
    """Prints columns as wide as their widest cell; the first row is the heading."""
    texts = [[one_line(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for row in texts:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo(f"{indent}{line}".rstrip())


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Prints names and their values; empty values are left out."""
    known = [(name, fact) for name, fact in facts if fact]
    width = max((len(name) for name, _ in known), default=0)
    for name, fact in known:
        click.echo(f"  {name.ljust(width)}  {one_line(fact)}")


def seconds(age: float | None) -> str:
    """An age as kubectl prints it: `12s`, `3m`, `5h`, `2d`."""
    if age is None:
        return ""
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if age >= 2 * size:
            return f"{age // size:.0f}{unit}"
    return f"{age:.0f}s"
