"""A process that may not open more files says so, instead of that the API server cannot be reached."""

import os
import resource

import pytest
from aiohttp import web

from kubeshard.client import Client, ClusterConfig
from kubeshard.client.config import ExecPlugin
from kubeshard.core import ConfigMap, ConfigurationError, Unavailable
from kubeshard.runtime.open_files import ENOUGH, exhausted, raise_limit

MESSAGE = (
    r"too many open files: this process may have \d+, and each watch needs one; raise the limit \(`ulimit -n`"
)


@pytest.fixture
def limits():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def no_more(limits):
    """Call it, and no file can be opened any more."""
    opened = []

    def no_more():
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, limits[1])
        )
        try:
            while True:
                opened.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass

    yield no_more
    for each in opened:
        os.close(each)


async def get(client):
    await client.get(ConfigMap, "a", "n")


async def watch(client):
    async with client.watch(ConfigMap, "n", resource_version="1"):
        pass


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("ask", [get, watch])
async def test_a_connection_that_needs_one_file_too_many_is_told_as_that(server, no_more, host, ask):
    body = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}}
    server.answer(web.json_response(body, headers={"Connection": "close"}))
    async with Client(ClusterConfig(server.url.replace("127.0.0.1", host))) as client:
        await get(client)
        no_more()
        with pytest.raises(Unavailable, match=MESSAGE):
            await ask(client)


async def test_the_first_connection_of_a_client_too(server, no_more):
    async with Client(ClusterConfig(server.url)) as client:
        no_more()
        with pytest.raises(Unavailable, match=MESSAGE):
            await client.get(ConfigMap, "a", "n")


async def test_a_plugin_that_cannot_be_started_for_that_says_so(server, no_more):
    async with Client(ClusterConfig(server.url, auth=ExecPlugin("true"))) as client:
        no_more()
        with pytest.raises(ConfigurationError, match=f"exec plugin true: {MESSAGE}"):
            await client.get(ConfigMap, "a", "n")


def test_the_soft_limit_is_raised_as_far_as_it_may_be_and_never_lowered(limits):
    _, hard = limits
    enough = min(hard, ENOUGH) if hard != resource.RLIM_INFINITY else ENOUGH
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    raise_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (enough, hard)
    if hard > ENOUGH:
        resource.setrlimit(resource.RLIMIT_NOFILE, (ENOUGH + 1, hard))
        raise_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (ENOUGH + 1, hard)
    assert not exhausted()
