"""The command `web`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from kubeshard.cli.kubectl.asking import Access, access_options, ask, first_of, stop_in_order, watched_rings
from kubeshard.cli.kubectl.questions import placements
from kubeshard.commands.options import CLUSTER_VARIABLE, Command

if TYPE_CHECKING:
    from kubeshard.client.client import Client

HOST = "127.0.0.1"


@click.command(
    cls=Command,
    short_help="Watch rings live in a browser.",
    environment=CLUSTER_VARIABLE,
    examples=("kubectl shard web", "kubectl shard web webhosting-operator --port 8088"),
)
@click.argument("ring", metavar="[RING]", required=False)
@click.option(
    "--port",
    metavar="NUMBER",
    type=click.IntRange(0, 65535),
    default=0,
    show_default="a free one",
    help="Port of the page, on the loopback interface.",
)
@access_options
def web(ring: str | None, port: int, access: Access) -> None:
    """Watch all rings, or one, in a browser: what `top` shows, what happened since, and where an object is and why.

    Prints the address of the page and serves it until Ctrl-C, on the loopback interface only. The page loads nothing
    from elsewhere, and nothing can be changed through it.
    """
    stop_in_order()
    ask(access, lambda client: _serve(client, ring, port))


async def _serve(client: Client, name: str | None, port: int) -> None:
    from kubeshard.core.errors import ConfigurationError
    from kubeshard.inspection.page.app import LivePage, local_names
    from kubeshard.runtime.asgi import Limits
    from kubeshard.runtime.http_server import AsgiServer, ListenError

    rings = await watched_rings(client, name)
    page = LivePage(
        rings, lambda: local_names(server.port), lambda word, place: _why(client, word, place or None)
    )
    server = AsgiServer(page, HOST, port, limits=Limits(stop_grace=0.0, max_connections=64))

    async def serve() -> None:
        for each in rings.values():
            await each.read()
        try:
            async with server:
                click.echo(f"http://{HOST}:{server.port}/")
                await asyncio.get_running_loop().create_future()
        except ListenError as error:
            raise ConfigurationError(f"--port {port}: {error.strerror}") from None

    await first_of(serving=serve(), **{f"ring {name}": each.run() for name, each in rings.items()})


async def _why(client: Client, word: str, namespace: str | None) -> object:
    """What `why` prints, as JSON; or what is wrong with the question."""
    from kubeshard.core.errors import KubeshardError

    try:
        return {"placements": await placements(word.split(), namespace, family=True)(client)}
    except KubeshardError as error:
        return {"error": str(error)}
