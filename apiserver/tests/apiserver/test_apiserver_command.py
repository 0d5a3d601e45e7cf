"""`kubeshard apiserver`: what it prints, where it can be reached, and how it ends."""

import json
import os
import re
import signal
import ssl
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.system


def environment(home):
    return {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": os.environ["PYTHONPATH"]}


@contextmanager
def started(home, *arguments):
    """Returns the process, and what it printed until it was ready."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kubeshard", "apiserver", "--port", "0", *arguments],
        env=environment(home),
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        printed = process.stdout.readline()
        assert printed, process.stderr.read()
        while (line := process.stdout.readline()).strip() != "kubectl get namespaces":
            printed += line
        yield process, printed
    finally:
        process.kill()
        process.communicate()


def ended(home, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "kubeshard", "apiserver", *arguments],
        env=environment(home),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=30,
    )


def asked(path, target):
    """Returns the server's response to the user of a kubeconfig."""
    config = yaml.safe_load(path.read_text())
    cluster = config["clusters"][0]["cluster"]
    token = config["users"][0]["user"]["token"]
    request = urllib.request.Request(cluster["server"] + target, headers={"Authorization": f"Bearer {token}"})
    opened = urllib.request.urlopen(request, context=ssl._create_unverified_context(), timeout=10)
    return json.load(opened)


def test_with_a_latency_no_answer_comes_earlier(tmp_path):
    with started(tmp_path, "--latency", "300ms", "--kubeconfig", "with"):
        began = time.monotonic()
        asked(tmp_path / "with", "/api/v1/namespaces")
        assert time.monotonic() - began >= 0.3


def test_it_prints_how_to_reach_it_and_ends_in_order(tmp_path):
    with started(tmp_path) as (process, printed):
        path = Path(re.search(r"export KUBECONFIG=(\S+)", printed)[1])
        assert path == tmp_path / ".kube" / "kubeshard"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        names = {obj["metadata"]["name"] for obj in asked(path, "/api/v1/namespaces")["items"]}
        assert {"default", "kube-system"} <= names
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
        assert process.stderr.read() == ""


def test_it_has_the_controllers_of_a_cluster_unless_told_otherwise(tmp_path):
    deployment = json.dumps(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "web", "image": "nginx"}]},
                },
            },
        }
    ).encode()
    path = "/apis/apps/v1/namespaces/default/deployments"

    def create(kubeconfig):
        config = yaml.safe_load(kubeconfig.read_text())
        token = config["users"][0]["user"]["token"]
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        url = config["clusters"][0]["cluster"]["server"] + path
        request = urllib.request.Request(url, deployment, headers)
        urllib.request.urlopen(request, context=ssl._create_unverified_context(), timeout=10)

    with started(tmp_path, "--ready-after", "0", "--kubeconfig", "with"):
        create(tmp_path / "with")
        deadline = time.monotonic() + 20
        while asked(tmp_path / "with", f"{path}/web")["status"].get("replicas") != 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    with started(tmp_path, "--no-controllers", "--kubeconfig", "without"):
        create(tmp_path / "without")
        assert asked(tmp_path / "without", "/api/v1/pods")["items"] == []


def test_rights_are_asked_for_unless_all_is_allowed(tmp_path):
    def impersonating(kubeconfig):
        config = yaml.safe_load(kubeconfig.read_text())
        token = config["users"][0]["user"]["token"]
        headers = {"Authorization": f"Bearer {token}", "Impersonate-User": "nobody-special"}
        url = config["clusters"][0]["cluster"]["server"] + "/api/v1/secrets"
        request = urllib.request.Request(url, headers=headers)
        try:
            context = ssl._create_unverified_context()
            return urllib.request.urlopen(request, context=context, timeout=10).status
        except urllib.error.HTTPError as error:
            return error.code

    with started(tmp_path, "--kubeconfig", "asked"):
        assert impersonating(tmp_path / "asked") == 403
    with started(tmp_path, "--kubeconfig", "open", "--allow-all"):
        assert impersonating(tmp_path / "open") == 200


def test_idle_it_uses_no_cpu(tmp_path):
    """Nothing polls: the process does not get the CPU once, while even one poll per second would show."""
    with started(tmp_path) as (process, _):
        status = Path(f"/proc/{process.pid}/status")
        if not status.exists():
            pytest.skip("did not run: this system has no /proc")
        asked(tmp_path / ".kube" / "kubeshard", "/version")

        def switches():
            return re.search(r"^voluntary_ctxt_switches:\s+(\d+)", status.read_text(), re.M)[1]

        deadline = time.monotonic() + 20
        before = switches()
        time.sleep(2)  # the measured interval
        while (after := switches()) != before:
            assert time.monotonic() < deadline, "it never comes to rest"
            before = after
            time.sleep(2)


def test_a_folder_keeps_objects_and_kubeconfig(tmp_path):
    with started(tmp_path, "--data", "kept") as (_, printed):
        assert "Its data is kept in kept." in printed
        first = asked(tmp_path / "kept" / "kubeconfig", "/api/v1/namespaces/default")
    with started(tmp_path, "--data", "kept"):
        assert asked(tmp_path / "kept" / "kubeconfig", "/api/v1/namespaces/default") == first


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--port", "0", "--kubeconfig", "no/where"], "cannot write no/where: No such file or directory"),
        (["--port", "0", "--data", "file"], "Directory 'file' is a file."),
        (["--port", "99999"], "is not in the range"),
        (["--port", "0", "--host", "nowhere.invalid"], "cannot listen on nowhere.invalid:0: "),
    ],
)
def test_a_mistake_is_one_line(tmp_path, arguments, words):
    (tmp_path / "file").write_text("")
    done = ended(tmp_path, *arguments)
    assert done.returncode == 2
    assert words in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "content",
    [
        "clusters: [{name: production}]\n",
        "clusters: [{name: kubeshard}, {name: production}]\n",
        "apiVersion: v1\n",
        "notes",
        "{",
    ],
)
def test_a_file_of_others_is_not_overwritten(tmp_path, content):
    """In particular not the kubeconfig with which a user reaches their clusters."""
    path = tmp_path / "config"
    path.write_text(content)
    done = ended(tmp_path, "--port", "0", "--kubeconfig", "config")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Error: config was not written by this command and is not overwritten" in done.stderr
    assert path.read_text() == content


def test_its_own_kubeconfig_and_an_empty_file_are_overwritten(tmp_path):
    path = tmp_path / "config"
    path.touch()
    written = []
    for _ in range(2):
        with started(tmp_path, "--kubeconfig", "config"):
            written.append(path.read_text())
    assert "token: " in written[0]
    assert written[0] != written[1]


def test_a_shell_understands_the_line_that_it_prints(tmp_path):
    folder = tmp_path / "it's $HOME #1|"
    folder.mkdir()
    with started(tmp_path, "--kubeconfig", f"{folder}/config") as (_, printed):
        line = re.search(r"export KUBECONFIG=.+", printed)[0]
        said = subprocess.run(
            ["sh", "-c", f'{line}; printf %s "$KUBECONFIG"'], capture_output=True, text=True
        )
    assert said.stdout == f"{folder}/config"


def test_a_port_that_is_taken_is_one_line(tmp_path):
    with started(tmp_path) as (_, printed):
        port = re.search(r"https://127.0.0.1:(\d+)", printed)[1]
        done = ended(tmp_path, "--port", port, "--kubeconfig", "config")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"Error: cannot listen on 127.0.0.1:{port}: the address is in use by another process; "
        "choose another port with --port (0 picks a free one)\n"
    )


@pytest.mark.parametrize("arguments", [[], ["--kubeconfig", "config"]], ids=["default", "named"])
def test_the_kubeconfig_of_a_server_that_runs_is_not_overwritten(tmp_path, arguments):
    """Shells that use the file would talk to the other server."""
    path = tmp_path / (arguments[1] if arguments else ".kube/kubeshard")
    with started(tmp_path, *arguments) as (_, printed):
        url = re.search(r"https://127.0.0.1:\d+", printed)[0]
        written = path.read_text()
        done = ended(tmp_path, "--port", "0", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        shown = "config" if arguments else path
        assert done.stderr == (
            f"Error: {shown} belongs to the server at {url}, which is running; choose another file with --kubeconfig "
            "(and another port with --port)\n"
        )
        assert path.read_text() == written
        with started(tmp_path, "--kubeconfig", "other"):
            assert asked(path, "/version")
            assert asked(tmp_path / "other", "/version")


def test_a_stranger_on_the_port_of_a_kubeconfig_does_not_keep_it(tmp_path):
    """The server that wrote the file is gone, and another server listens on its port."""
    path = tmp_path / "config"
    with started(tmp_path, "--kubeconfig", "config"):
        left = yaml.safe_load(path.read_text())
    with started(tmp_path, "--kubeconfig", "stranger") as (_, printed):
        left["clusters"][0]["cluster"]["server"] = re.search(r"https://127.0.0.1:\d+", printed)[0]
        path.write_text(yaml.safe_dump(left))
        with started(tmp_path, "--kubeconfig", "config"):
            assert yaml.safe_load(path.read_text()) != left
            assert asked(path, "/version")


def test_another_address_than_loopback_is_warned_of(tmp_path):
    done = ended(tmp_path, "--port", "0", "--host", "192.0.2.1")  # nobody has this address: RFC 5737
    assert done.stderr.startswith("WARNING: listening on 192.0.2.1: anyone who can reach this machine")
    assert (
        "WARNING" not in ended(tmp_path, "--port", "0", "--host", "localhost", "--data", "/dev/null").stderr
    )
