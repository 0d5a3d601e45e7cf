import base64
import json
import re
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from kubeshard.client import kubeconfig, load_config
from kubeshard.client.config import BasicAuth, BearerToken, ExecPlugin, Tls, TokenFile
from kubeshard.client.kubeconfig import in_cluster_config, load_kubeconfig
from kubeshard.core.errors import ConfigurationError

MINIMAL = """
current-context: c
clusters: [{name: k, cluster: {server: "https://10.0.0.1:6443"}}]
users: [{name: u, user: {token: secret}}]
contexts: [{name: c, context: {cluster: k, user: u, namespace: "n"}}]
"""

DEEP = "nested too deeply" if sys.version_info < (3, 12) else "Expected `object`"
"""Newer interpreters can read what is nested as deeply as YAML may be."""


@pytest.fixture
def write(tmp_path):
    def write(text, name="config"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    return write


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """No kubeconfig, no pod, no proxy."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HTTPS_PROXY", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return monkeypatch


def user(write, fields):
    return load_kubeconfig([write(MINIMAL.replace("{token: secret}", fields))])


def test_a_context_names_server_user_and_namespace(write):
    config = load_kubeconfig([write(MINIMAL)])
    assert (config.server, config.auth, config.namespace) == (
        "https://10.0.0.1:6443",
        BearerToken("secret"),
        "n",
    )
    assert "secret" not in repr(config)


def test_of_several_files_the_first_that_names_something_wins(write):
    first = write("users: [{name: u, user: {token: first}}]", "first")
    second = write(MINIMAL.replace("secret", "second"), "second")
    third = write(
        MINIMAL.replace("10.0.0.1", "10.0.0.2").replace("current-context: c", "current-context: x"), "third"
    )
    config = load_kubeconfig([first, second, third])
    assert (config.server, config.auth) == ("https://10.0.0.1:6443", BearerToken("first"))


def test_relative_paths_belong_to_their_file(write):
    path = write(MINIMAL.replace("{token: secret}", "{tokenFile: sub/token}"), "elsewhere/config")
    assert load_kubeconfig([path]).auth == TokenFile(path.parent / "sub/token")
    plugin = load_kubeconfig(
        [
            write(
                MINIMAL.replace(
                    "{token: secret}",
                    "{exec: {apiVersion: client.authentication.k8s.io/v1, command: ./bin/x, args: [a], "
                    "env: [{name: A, value: b}], installHint: get it, interactiveMode: Never}}",
                ),
                "elsewhere/config",
            )
        ]
    ).auth
    assert plugin == ExecPlugin(
        command=str(path.parent / "bin/x"), args=("a",), env={"A": "b"}, install_hint="get it"
    )


def test_inline_data_wins_over_files(write):
    pem = base64.b64encode(b"PEM").decode()
    config = user(
        write, f"{{client-certificate: missing.pem, client-certificate-data: {pem}, client-key-data: {pem}}}"
    )
    assert (config.tls.certificate, config.tls.key) == ("PEM", "PEM")


def test_user_name_and_password(write):
    assert user(write, "{username: a, password: b}").auth == BasicAuth("a", "b")


def test_impersonation_becomes_headers(write):
    config = user(write, "{token: t, as: alice, as-groups: [g]}")
    assert config.impersonate == {"Impersonate-User": "alice", "Impersonate-Group": "g"}


def test_an_empty_file_of_kubectl_is_read(write):
    text = "apiVersion: v1\nclusters: null\ncontexts: null\nkind: Config\npreferences: {}\nusers: null\n"
    with pytest.raises(ConfigurationError, match="no current-context"):
        load_kubeconfig([write(text)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("current-context: c", ""), "no current-context"),
        (("current-context: c", "current-context: d"), "context 'd' does not exist; existing contexts: c"),
        (("{name: k,", "{name: other,"), "context 'c': cluster 'k' does not exist"),
        (("{name: u,", "{name: other,"), "context 'c': user 'u' does not exist"),
        (("https://10.0.0.1:6443", "10.0.0.1"), "cluster 'k': server: '10.0.0.1' is not a URL"),
        (
            ("{token: secret}", "{token: 5}"),
            r"not a kubeconfig: Expected `str \| null`, got `int` - at `\$.users\[0\].user.token`",
        ),
        (("{token: secret}", "{client-key-data: '%'}"), "user 'u': client-key-data: not base64"),
        (
            ("{token: secret}", "{client-certificate-data: YQ==}"),
            "client-certificate and client-key must be given together",
        ),
        (
            ("{token: secret}", "{client-key: missing.pem}"),
            r"user 'u': client-key: [^\[]*missing.pem: No such file",
        ),
        (("{token: secret}", "{auth-provider: {name: gcp}}"), "auth-provider 'gcp' is no longer supported"),
        (("{token: secret}", "{exec: {command: x, apiVersion: v9}}"), "exec: apiVersion: 'v9' must be"),
        (
            (
                "{token: secret}",
                "{exec: {command: x, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Always}}",
            ),
            "interactiveMode Always",
        ),
        (("server:", "proxy-url: ftp://x, server:"), "proxy-url: 'ftp://x': only http"),
        (("contexts: [", "contexts: [["), "not YAML on line"),
        (("server:", f"extensions: {'[' * 600}{']' * 600}, server:"), DEEP),
        (("10.0.0.1:6443", "host:port"), "server: 'https://host:port' does not name a host and a port"),
        (("10.0.0.1:6443", "[::1"), "does not name a host and a port"),
        (("10.0.0.1:6443", ""), "does not name a host and a port"),
        (("secret}", '"a\\nb"}'), "user 'u': token: contains a line break"),
        (
            ("server:", "certificate-authority-data: YQ==, insecure-skip-tls-verify: true, server:"),
            "exclude each other",
        ),
    ],
)
def test_a_mistake_is_one_line_that_names_file_and_field(write, change, message):
    path = write(MINIMAL.replace(*change))
    with pytest.raises(ConfigurationError, match=message) as caught:
        load_kubeconfig([path])
    assert str(path) in str(caught.value) or "proxy" in message
    assert "\n" not in str(caught.value)


PEM = "-----BEGIN CERTIFICATE-----\n" + "QUJD\n" * 30 + "-----END CERTIFICATE-----\n"
WRAPPED = base64.encodebytes(PEM.encode()).decode()
ONE_LINE = WRAPPED.replace("\n", "")


def block(tag, text):
    return f"{tag}|\n" + textwrap.indent(text, " " * 12)


@pytest.mark.parametrize(
    "form",
    [
        ONE_LINE,
        block("", WRAPPED),
        block("", WRAPPED.replace("\n", "\r\n")),
        f'"{ONE_LINE}\\n"',
        f'"{ONE_LINE[:60]}\\r\\n{ONE_LINE[60:]}"',
        block("!!binary ", base64.encodebytes(WRAPPED.encode()).decode()),
    ],
)
def test_every_form_of_base64_is_read_that_client_go_reads(write, form):
    text = f"""
    current-context: c
    clusters:
      - name: k
        cluster:
          server: https://10.0.0.1:6443
          certificate-authority-data: {form}
    contexts: [{{name: c, context: {{cluster: k}}}}]
    """
    path = write("")
    path.write_text(textwrap.dedent(text))
    assert load_kubeconfig([path]).tls.ca == PEM


@pytest.mark.parametrize("form", [f"{ONE_LINE[:60]} {ONE_LINE[60:]}", ONE_LINE[:-1], "ab-_", "%"])
def test_what_client_go_does_not_take_for_base64_is_refused(write, form):
    with pytest.raises(ConfigurationError, match="not base64"):
        load_kubeconfig([write(MINIMAL.replace("server:", f'certificate-authority-data: "{form}", server:'))])


IMPERSONATED = [
    ("as: alice", {"Impersonate-User": "alice"}),
    ("as: alice, as-uid: '5'", {"Impersonate-User": "alice", "Impersonate-Uid": "5"}),
    ("as: a, as-groups: [dev, ops]", {"Impersonate-User": "a", "Impersonate-Group": ("dev", "ops")}),
    ("as: a, as-groups: null, as-uid: null, as-user-extra: null", {"Impersonate-User": "a"}),
    (
        "as: a, as-user-extra: {reason: [audit]}",
        {"Impersonate-User": "a", "Impersonate-Extra-reason": "audit"},
    ),
    (
        "as: a, as-user-extra: {'example.com/Füße %': [x, z]}",
        {"Impersonate-User": "a", "Impersonate-Extra-example.com%2FF%C3%BC%C3%9Fe%20%25": ("x", "z")},
    ),
    ("as-groups: [], as-user-extra: {}", {}),
    ("as: ''", {}),
]


@pytest.mark.parametrize(("fields", "headers"), IMPERSONATED)
def test_every_field_of_impersonation_is_sent(write, fields, headers):
    assert user(write, f"{{token: t, {fields}}}").impersonate == headers


@pytest.mark.parametrize("fields", ["as-groups: [dev]", "as-uid: x", "as-user-extra: {a: [b]}"])
def test_more_about_nobody_is_refused(write, fields):
    with pytest.raises(ConfigurationError, match="user 'u': as-uid, as-groups and as-user-extra"):
        user(write, f"{{token: t, {fields}}}")


EXEC = "apiVersion: client.authentication.k8s.io/v1beta1, command: x"
CREDENTIALS = [
    ("{token: a, tokenFile: /t}", TokenFile(Path("/t"), "a")),
    ("{token: a, token: b}", BearerToken("b")),
    ("{token: '', tokenFile: /t}", TokenFile(Path("/t"))),
    (f"{{token: a, exec: {{{EXEC}}}}}", BearerToken("a")),
    (f"{{username: a, exec: {{{EXEC}}}}}", BasicAuth("a", "")),
    ("{password: p}", BasicAuth("", "p")),
    ("{token: a, exec: null}", BearerToken("a")),
    ("{token: a, auth-provider: {name: gcp}}", BearerToken("a")),
    ("{Token: a}", None),
    ("null", None),
    (f"{{exec: {{{EXEC}, env: null, args: null, installHint: null}}}}", None),
    (f"{{exec: {{{EXEC}, env: [{{name: A}}, {{name: B, value: c}}]}}}}", {"A": "", "B": "c"}),
]


@pytest.mark.parametrize(("given", "auth"), CREDENTIALS)
def test_of_several_credentials_those_count_that_count_for_client_go(write, given, auth):
    found = user(write, given).auth
    if isinstance(found, ExecPlugin):
        found = dict(found.env) or None
    assert found == auth


def test_an_exec_plugin_gets_what_the_cluster_says_for_it(write):
    extension = "extensions: [{name: client.authentication.k8s.io/exec, extension: {audience: x}}], server:"
    text = MINIMAL.replace("{token: secret}", f"{{exec: {{{EXEC}, provideClusterInfo: true}}}}")
    found = load_kubeconfig([write(text.replace("server:", extension))]).auth
    assert isinstance(found, ExecPlugin)
    assert (found.provide_cluster_info, found.cluster_config) == (True, {"audience": "x"})


def test_names_that_are_there_twice_are_found_in_time_that_grows_with_their_number():
    contexts = tuple(kubeconfig._NamedContext(f"c{number}") for number in range(20_000))
    began = time.process_time()
    kubeconfig._Merged().add(Path("config"), kubeconfig._File(contexts=contexts))
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("{token: secret}", f"{{exec: {{{EXEC}, env: [{{value: a}}]}}}}"),
            "exec: env: a variable has no name",
        ),
        (
            ("{token: secret}", f"{{exec: {{{EXEC}, interactiveMode: Maybe}}}}"),
            "interactiveMode: 'Maybe' must be",
        ),
        (("{token: secret}", f"{{exec: {{{EXEC.replace('x', chr(39) * 2)}}}}}"), "exec: .+: "),
        (("{token: secret}", f"{{auth-provider: {{name: x}}, exec: {{{EXEC}}}}}"), "exec and auth-provider"),
        (("{token: secret}", "{token: a, username: b}"), "remove one of them"),
        (("users: [", "users: [{name: u, user: {token: a}}, "), "users: 'u' is there twice"),
        (("current-context", "kind: Pod\ncurrent-context"), "it has kind Pod of v1, not Config"),
        (("current-context", "apiVersion: v2\ncurrent-context"), "it has kind Config of v2, not Config"),
        (("current-context: c", "- a"), "not YAML on line|Expected `object`"),
    ],
)
def test_what_client_go_refuses_is_refused(write, change, message):
    with pytest.raises(ConfigurationError, match=message):
        load_kubeconfig([write(MINIMAL.replace(*change))])


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "\ufeff" + text,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text + "---\nfoo: bar\n",
        lambda text: (
            text + "extensions: [{name: a, extension: {b: c}}]\npreferences: {colors: true}\nfoo: 1\n"
        ),
        lambda text: json.dumps(yaml.safe_load(text.replace('"n"', "'n'")), indent="\t"),
        lambda text: text.replace("server:", "disable-compression: true, tls-server-name: null, server:"),
    ],
)
def test_every_form_of_the_file_is_the_same_file(write, change):
    path = write("")
    path.write_bytes(change(MINIMAL).encode())
    config = load_kubeconfig([path])
    assert (config.server, config.auth, config.namespace) == (
        "https://10.0.0.1:6443",
        BearerToken("secret"),
        "n",
    )


def test_a_server_without_tls_is_sent_no_credentials(write, caplog):
    config = load_kubeconfig([write(MINIMAL.replace("https://", "http://"))])
    assert (config.server, config.auth, config.tls) == ("http://10.0.0.1:6443", None, Tls())
    assert "sent no credentials" in caplog.text
    assert load_kubeconfig(
        [write(MINIMAL.replace("https://", "").replace("{token: secret}", "{}"))]
    ).server.startswith("http://10")


async def test_the_path_given_wins_over_the_environment(bare, write):
    bare.setenv("KUBECONFIG", str(write(MINIMAL.replace("secret", "variable"), "variable")))
    assert (await load_config()).auth == BearerToken("variable")
    assert (await load_config(write(MINIMAL))).auth == BearerToken("secret")


async def test_files_of_the_variable_that_are_missing_are_skipped(bare, write):
    bare.setenv("KUBECONFIG", f"/nonexistent:{write(MINIMAL)}")
    assert (await load_config()).auth == BearerToken("secret")
    bare.setenv("KUBECONFIG", "/nonexistent")
    with pytest.raises(ConfigurationError, match="KUBECONFIG=/nonexistent: no such file"):
        await load_config()


async def test_then_comes_the_home_directory(bare, write):
    with pytest.raises(ConfigurationError, match="no cluster configured: pass a kubeconfig, set KUBECONFIG"):
        await load_config()
    write(MINIMAL, "home/.kube/config")
    assert (await load_config()).auth == BearerToken("secret")


async def test_a_missing_file_is_named(bare):
    with pytest.raises(
        ConfigurationError, match=re.escape("/nonexistent: cannot read the kubeconfig: No such file")
    ):
        await load_config("/nonexistent")


def test_in_a_pod_the_service_account_is_used(bare, tmp_path):
    bare.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    bare.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(ConfigurationError, match="token is missing: set automountServiceAccountToken"):
        in_cluster_config(tmp_path)
    (tmp_path / "token").write_text("t")
    with pytest.raises(ConfigurationError, match="cannot read the cluster's CA"):
        in_cluster_config(tmp_path)
    (tmp_path / "ca.crt").write_text("PEM")
    (tmp_path / "namespace").write_text("team-a")
    config = in_cluster_config(tmp_path)
    assert (config.server, config.namespace, config.tls.ca) == ("https://[fd00::1]:443", "team-a", "PEM")
    assert config.auth == TokenFile(tmp_path / "token")
    bare.setenv("KUBERNETES_SERVICE_HOST", "[fd00::1]")
    assert in_cluster_config(tmp_path).server == config.server


def test_a_copy_with_other_credentials_does_not_get_those_of_the_files_back(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(
        "{clusters: [{name: c, cluster: {server: 'https://x'}}], users: [{name: u, user: {token: t}}], "
        "contexts: [{name: x, context: {cluster: c, user: u}}], current-context: x}"
    )
    config = load_kubeconfig([file])
    assert config.files is not None
    assert replace(config, namespace="other").files is config.files
    assert replace(config, auth=BearerToken("another")).files is None
    assert replace(config, tls=replace(config.tls, certificate=None, insecure=True)).files is None
