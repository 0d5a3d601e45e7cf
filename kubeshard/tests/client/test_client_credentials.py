import asyncio
import base64
import contextlib
import json
import os
import signal
import stat
import threading
from pathlib import Path

import pytest

from kubeshard.client import credentials as credentials_module
from kubeshard.client.config import ClusterConfig, ExecPlugin, Files, Tls, TokenFile
from kubeshard.client.credentials import (
    Credential,
    ExecCredentials,
    FixedCredentials,
    FollowedCredentials,
    TokenFileCredentials,
)
from kubeshard.core.errors import ConfigurationError
from kubeshard.core.times import second_time


class HandClock:
    now = 1_000_000.0

    def monotonic(self):
        return self.now

    boottime = wall = monotonic


@pytest.fixture
def clock():
    return HandClock()


async def test_a_rotated_token_is_read_again_after_a_minute(tmp_path, clock):
    path = tmp_path / "token"
    path.write_text("one\n")
    credentials = TokenFileCredentials(TokenFile(path), clock)
    assert (await credentials.current()).authorization == "Bearer one"
    path.write_text("two")
    clock.now += 59
    assert (await credentials.current()).authorization == "Bearer one"
    clock.now += 1
    assert (await credentials.current()).authorization == "Bearer two"


async def test_a_refused_token_is_read_again_at_once(tmp_path, clock):
    path = tmp_path / "token"
    path.write_text("one")
    credentials = TokenFileCredentials(TokenFile(path), clock)
    refused = await credentials.current()
    assert not await credentials.renew(refused)
    path.write_text("two")
    assert await credentials.renew(refused)
    assert (await credentials.current()).authorization == "Bearer two"


async def test_the_last_good_token_is_used_while_the_file_cannot_be_read(tmp_path, clock):
    path = tmp_path / "token"
    credentials = TokenFileCredentials(TokenFile(path), clock)
    with pytest.raises(ConfigurationError, match=r"cannot read the token file: [^\[]*token"):
        await credentials.current()
    path.write_text("")
    with pytest.raises(ConfigurationError, match="is empty"):
        await credentials.current()
    path.write_text("one")
    await credentials.current()
    path.unlink()
    clock.now += 100
    assert (await credentials.current()).authorization == "Bearer one"


@pytest.fixture
def plugin(tmp_path, clock):
    """Turns a shell script into a credential plugin; `tmp_path/runs` gets a line per run."""

    def make(script, **fields):
        path = tmp_path / "plugin"
        path.write_text(f"#!/bin/sh\necho run >> {tmp_path}/runs\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        given = ExecPlugin(command=str(path), **fields)
        config = ClusterConfig("https://k:6443", tls=Tls(ca="PEM"), auth=given)
        return ExecCredentials(config, given, clock)

    make.runs = lambda: len((tmp_path / "runs").read_text().splitlines())
    return make


def answer(version="v1", **status):
    credential = {
        "apiVersion": f"client.authentication.k8s.io/{version}",
        "kind": "ExecCredential",
        "status": status,
    }
    return f"echo '{json.dumps(credential)}'"


@pytest.mark.system
async def test_a_plugin_runs_once_for_all_who_wait(plugin):
    credentials = plugin(answer(token="t"))
    answers = await asyncio.gather(*(credentials.current() for _ in range(5)))
    assert set(answers) == {Credential("Bearer t")}
    assert plugin.runs() == 1


@pytest.mark.system
@pytest.mark.parametrize(
    "script", [answer(token="t", expirationTimestamp="2020-01-01T00:00:00Z"), answer(token="t"), "exit 3"]
)
async def test_it_runs_once_for_all_who_wait_whatever_it_says(plugin, script):
    """As kubernetes/kubernetes#106768 (clocks that differ) and kubernetes/kubectl#1492: a run for each request."""
    credentials = plugin(script)
    refused = Credential("Bearer t")
    asked = [*(credentials.current() for _ in range(5)), *(credentials.renew(refused) for _ in range(5))]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert len(set(map(repr, answers[:5]))) == len(set(map(repr, answers[5:]))) == 1
    assert plugin.runs() == 1


@pytest.mark.system
async def test_without_an_answer_it_ends_with_all_that_it_has_started(plugin, tmp_path, monkeypatch):
    monkeypatch.setattr(credentials_module, "RUN_TIMEOUT", 0.5)
    credentials = plugin(f"sleep 60 & echo $! > {tmp_path}/child; wait")
    async with asyncio.timeout(10):
        with pytest.raises(ConfigurationError, match="no answer within"):
            await credentials.current()
        while _lives(int((tmp_path / "child").read_text())):  # noqa: ASYNC110 # nobody tells
            await asyncio.sleep(0.01)


@pytest.mark.system
async def test_it_answers_those_who_wait_although_the_first_one_has_gone(plugin, tmp_path):
    credentials = plugin(f"while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; " + answer(token="t"))
    first, second = asyncio.create_task(credentials.current()), asyncio.create_task(credentials.current())
    while not (tmp_path / "runs").exists():  # noqa: ASYNC110 # nobody tells
        await asyncio.sleep(0.01)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    (tmp_path / "go").touch()
    assert await second == Credential("Bearer t")
    assert plugin.runs() == 1


@pytest.mark.system
async def test_who_asks_again_and_again_with_little_patience_gets_an_answer(plugin):
    """As who renews a Lease, in attempts that end before a plugin that asks somebody far away."""
    credentials = plugin("sleep 0.5; " + answer(token="t"))
    async with asyncio.timeout(10):
        while credentials.at_hand is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await credentials.current()
    assert plugin.runs() == 1


@pytest.mark.system
async def test_what_it_leaves_running_is_not_waited_for(plugin, tmp_path):
    credentials = plugin(f"sleep 60 & echo $! > {tmp_path}/child; " + answer(token="t"))
    try:
        async with asyncio.timeout(10):
            assert await credentials.current() == Credential("Bearer t")
        assert _lives(int((tmp_path / "child").read_text()))
    finally:
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


def _lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.system
async def test_its_answer_is_used_until_shortly_before_it_expires(plugin, clock):
    credentials = plugin(answer(token="t", expirationTimestamp=second_time(clock.now + 60)))
    await credentials.current()
    clock.now += 49
    await credentials.current()
    assert plugin.runs() == 1
    clock.now += 2
    await credentials.current()
    assert plugin.runs() == 2


@pytest.mark.system
async def test_a_refused_answer_is_asked_for_again_once(plugin):
    credentials = plugin(
        """token=$(wc -l < "$(dirname "$0")/runs"); """ + answer(token="XX").replace("XX", "'$token'")
    )
    refused = await credentials.current()
    assert await asyncio.gather(credentials.renew(refused), credentials.renew(refused)) == [True, True]
    assert plugin.runs() == 2


@pytest.mark.system
async def test_a_plugin_may_give_a_client_certificate(plugin):
    credentials = plugin(
        answer("v1beta1", clientCertificateData="C", clientKeyData="K"),
        api_version="client.authentication.k8s.io/v1beta1",
    )
    assert await credentials.current() == Credential(None, ("C", "K"))


@pytest.mark.system
async def test_a_plugin_sees_its_environment_and_the_cluster_but_no_input(plugin, monkeypatch):
    monkeypatch.setenv("INHERITED", "i")
    script = (
        "read line && exit 9\n"
        'info=$(printf %s "$KUBERNETES_EXEC_INFO" | base64 | tr -d "\\n")\n'
        'printf \'{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",'
        '"status":{"token":"%s.%s.%s"}}\' "$INHERITED" "$OWN" "$info"'
    )
    credentials = plugin(script, env={"OWN": "o"}, provide_cluster_info=True)
    inherited, own, info = (await credentials.current()).authorization.removeprefix("Bearer ").split(".")
    assert (inherited, own) == ("i", "o")
    assert json.loads(base64.b64decode(info)) == {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "spec": {
            "interactive": False,
            "cluster": {
                "server": "https://k:6443",
                "certificate-authority-data": base64.b64encode(b"PEM").decode(),
            },
        },
    }


@pytest.mark.system
@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo first >&2; echo last >&2; exit 3", "exit code 3: last"),
        ("echo no", "is not an ExecCredential"),
        (answer("v1beta1", token="t"), "not ExecCredential of client.authentication.k8s.io/v1"),
        (answer(), "neither a token nor a client certificate"),
        (answer(clientCertificateData="C"), "only one of"),
    ],
)
async def test_a_failure_is_one_line_with_the_hint_how_to_get_the_plugin(plugin, script, problem):
    with pytest.raises(ConfigurationError) as caught:
        await plugin(script, install_hint="see\n  example.com").current()
    assert problem in str(caught.value)
    assert str(caught.value).endswith("(see example.com)")
    assert "\n" not in str(caught.value)


@pytest.mark.system
async def test_a_plugin_that_is_not_installed_is_named(clock):
    missing = ExecPlugin(command="kubeshard-no-such-plugin", install_hint="get it")
    with pytest.raises(
        ConfigurationError, match=r"kubeshard-no-such-plugin: executable not found \(get it\)"
    ):
        await ExecCredentials(ClusterConfig("https://k"), missing, clock).current()


@pytest.mark.regression
def test_a_kubeconfig_that_can_be_read_only_once_is_not_waited_for(tmp_path, clock):
    fifo = tmp_path / "kubeconfig"
    os.mkfifo(fifo)
    config = ClusterConfig("https://10.0.0.1")
    files = Files((fifo,), lambda: ClusterConfig(fifo.read_text()))
    credentials = FollowedCredentials(config, files, lambda _: FixedCredentials(), clock)
    reading = threading.Thread(target=credentials.reread, daemon=True)
    reading.start()
    reading.join(1)
    waits = reading.is_alive()
    if waits:
        fifo.write_text("")
    assert not waits
