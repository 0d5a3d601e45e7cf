"""TLS against a real server with certificates made for the test."""

import base64
import json
import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web

from kubeshard.client import Client, ClusterConfig
from kubeshard.client.config import ExecPlugin, Tls
from kubeshard.client.credentials import FILES_AGE, TOKEN_FILE_AGE
from kubeshard.client.kubeconfig import in_cluster_config, load_kubeconfig
from kubeshard.core import ConfigMap, ConfigurationError, Unavailable, UnexpectedResponse
from kubeshard.runtime.world import REAL_WORLD

pytest.importorskip("cryptography")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certificate(name, issuer=None):
    """Returns certificate and key in PEM, and what is needed to issue others. Without an issuer it is a CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer_name, issuer_key = (issuer[2].subject, issuer[3]) if issuer else (subject, key)
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer_name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made.public_bytes(serialization.Encoding.PEM).decode(), private.decode(), made, key


@pytest.fixture(scope="module")
def ca():
    return certificate("ca")


@pytest.fixture(scope="module")
def served(ca):
    return certificate("kube.example.com", ca)


@pytest.fixture
def leaf(served):
    return served[0]


@pytest.fixture
async def url(ca, served, tmp_path):
    """The URL of an HTTPS server for `kube.example.com` that responds with the name in the client's certificate."""
    cert, key, *_ = served
    (tmp_path / "server.pem").write_text(cert + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    context.load_verify_locations(cadata=ca[0])
    context.verify_mode = ssl.CERT_OPTIONAL

    async def answer(request):
        peer = request.transport.get_extra_info("peercert")
        name = peer["subject"][0][0][1] if peer else "anonymous"
        return web.json_response({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


class StoppedClock:
    now = 1000.0

    def monotonic(self):
        return self.now

    boottime = wall = monotonic


async def who(url, tls):
    async with Client(ClusterConfig(url, tls=tls)) as client:
        return (await client.get(ConfigMap, "a", "n")).metadata.name


async def test_the_server_is_verified_by_ca_and_name(url, ca):
    assert await who(url, Tls(ca=ca[0], server_name="kube.example.com")) == "anonymous"
    assert await who(url, Tls(insecure=True)) == "anonymous"
    for tls, why in (
        (Tls(server_name="kube.example.com"), "certificate verify failed: self-signed"),
        (Tls(ca=ca[0]), "certificate verify failed: .*no alternative certificate subject name"),
        (
            Tls(ca=certificate("other")[0], server_name="kube.example.com"),
            "certificate verify failed: self-signed",
        ),
    ):
        with pytest.raises(Unavailable, match=why):
            await who(url, tls)


async def test_a_client_certificate_is_presented(url, ca):
    cert, key, *_ = certificate("alice", ca)
    assert await who(url, Tls(ca=ca[0], server_name="kube.example.com", certificate=cert, key=key)) == "alice"


async def test_unusable_certificates_are_a_configuration_error(ca):
    other_key = certificate("other")[1]
    for tls, message in (
        (Tls(ca="no"), "certificate-authority"),
        (Tls(certificate=ca[0], key=other_key), "do not match"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            Client(ClusterConfig("https://127.0.0.1:1", tls=tls))


@pytest.mark.system
async def test_a_certificate_of_an_exec_plugin_is_presented_and_replaced(url, ca, tmp_path):
    def give(name):
        cert, key, *_ = certificate(name, ca)
        expired = "2000-01-01T00:00:00Z"
        status = {"clientCertificateData": cert, "clientKeyData": key, "expirationTimestamp": expired}
        body = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
        (tmp_path / "answer").write_text(json.dumps(body))

    plugin = ExecPlugin(command="cat", args=(str(tmp_path / "answer"),))
    tls = Tls(ca=ca[0], server_name="kube.example.com")
    async with Client(ClusterConfig(url, tls=tls, auth=plugin)) as client:
        for name in ("alice", "bob"):
            give(name)
            assert (await client.get(ConfigMap, "a", "n")).metadata.name == name


@pytest.mark.regression
async def test_a_server_s_own_certificate_is_an_authority_as_with_go_s_clients(url, leaf):
    assert await who(url, Tls(ca=leaf, server_name="kube.example.com")) == "anonymous"


class Rotated:
    """A kubeconfig and its files, and a server that proves its name with what `serve` was given last. Every request has
    a connection of its own. The response has the name in the client's certificate, and the token.
    """

    def __init__(self, folder, context, url):
        self.folder = folder
        self.context = context
        self.url = url
        self.clock = StoppedClock()
        self.inline = {}
        self.trust(authority := certificate("ca"))
        self.serve(authority)
        self.present("alice", authority)
        (folder / "token").write_text("one")
        self.write()

    def write(self, **inline):
        """The kubeconfig, in which these replace files."""
        self.inline |= inline
        user = {"client-certificate": "tls.crt", "client-key": "tls.key", "tokenFile": "token"}
        cluster = {
            "server": self.url,
            "tls-server-name": "kube.example.com",
            "certificate-authority": "ca.crt",
        }
        for name in self.inline:
            (user if name.partition("-data")[0] in user or name == "token" else cluster)[name] = self.inline[
                name
            ]
        if "token" in self.inline:
            del user["tokenFile"]
        config = {
            "current-context": self.inline.get("current-context", "c"),
            "clusters": [{"name": "k", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": name, "context": {"cluster": "k", "user": "u"}} for name in "cd"],
        }
        (self.folder / "kubeconfig").write_text(json.dumps(config))

    def client(self):
        config = load_kubeconfig([self.folder / "kubeconfig"])
        return Client(config, world=replace(REAL_WORLD, clock=self.clock))

    def serve(self, authority):
        cert, key, *_ = certificate("kube.example.com", authority)
        (self.folder / "server.pem").write_text(cert + key)
        self.context.load_cert_chain(self.folder / "server.pem")

    def trust(self, authority):
        (self.folder / "ca.crt").write_text(authority[0])

    def present(self, name, authority, *, write=True):
        cert, key, *_ = certificate(name, authority)
        self.context.load_verify_locations(cadata=authority[0])
        if write:
            (self.folder / "tls.crt").write_text(cert)
            (self.folder / "tls.key").write_text(key)
        return cert, key


@pytest.fixture
async def rotated(tmp_path):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_cert_chain(*_files(tmp_path, certificate("kube.example.com")))

    async def answer(request):
        peer = request.transport.get_extra_info("peercert")
        name = (
            f"{peer['subject'][0][0][1] if peer else 'nobody'}-{request.headers['Authorization'].split()[-1]}"
        )
        body = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}}
        return web.json_response(body, headers={"Connection": "close"})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    yield Rotated(tmp_path, context, f"https://127.0.0.1:{runner.addresses[0][1]}")
    await runner.cleanup()


def _files(folder, made):
    for name, text in (("first.crt", made[0]), ("first.key", made[1])):
        (folder / name).write_text(text)
    return folder / "first.crt", folder / "first.key"


async def asked(client):
    return (await client.get(ConfigMap, "a", "n")).metadata.name


def encoded(pem):
    return base64.b64encode(pem.encode()).decode()


@pytest.mark.regression
async def test_a_rotated_authority_is_trusted_at_the_first_request_that_needs_it(rotated):
    async with rotated.client() as client:
        assert await asked(client) == "alice-one"
        for inline in (False, True):
            authority = certificate("ca")
            rotated.serve(authority)
            with pytest.raises(Unavailable, match="certificate verify failed"):
                await asked(client)
            assert "certificate verify failed" in client.unverified
            if inline:
                rotated.write(**{"certificate-authority-data": encoded(authority[0])})
            else:
                rotated.trust(authority)
            assert await asked(client) == "alice-one"
            assert not client.unverified


@pytest.mark.regression
async def test_a_rotated_authority_is_trusted_by_watches_and_by_clients_that_send_once(rotated):
    async with rotated.client() as client:
        authority = certificate("ca")
        rotated.serve(authority)
        rotated.trust(authority)
        with pytest.raises(Unavailable):
            await asked(client.impatient())
        assert await asked(client.impatient()) == "alice-one"
        authority = certificate("ca")
        rotated.serve(authority)
        rotated.trust(authority)
        with pytest.raises(UnexpectedResponse):  # it is no watch, but an answer
            async with client.watch(ConfigMap, "n", resource_version="1") as events:
                [event async for event in events]


@pytest.mark.regression
async def test_a_client_certificate_in_rotated_files_is_presented_anew(rotated):
    authority = certificate("clients")
    async with rotated.client() as client:

        async def later():
            rotated.clock.now += FILES_AGE
            return await asked(client)

        rotated.present("bob", authority)
        assert await asked(client) == "alice-one"
        assert await later() == "bob-one"
        cert, key = rotated.present("carol", authority, write=False)
        (rotated.folder / "tls.crt").write_text(cert)  # the key is still the old one
        assert await later() == "bob-one"
        (rotated.folder / "tls.key").write_text(key)
        assert await later() == "carol-one"
        cert, key = rotated.present("dave", authority, write=False)
        rotated.write(**{"client-certificate-data": encoded(cert), "client-key-data": encoded(key)})
        assert await later() == "dave-one"


@pytest.mark.regression
async def test_files_that_a_changed_kubeconfig_names_are_followed_too(rotated):
    authority = certificate("clients")
    async with rotated.client() as client:
        assert await asked(client) == "alice-one"
        for name in ("bob", "carol"):
            for ending, text in zip(
                ("crt", "key"), rotated.present(name, authority, write=False), strict=True
            ):
                (rotated.folder / f"new.{ending}").write_text(text)
            kubeconfig = (rotated.folder / "kubeconfig").read_text().replace('"tls.', '"new.')
            (rotated.folder / "kubeconfig").write_text(kubeconfig)
            rotated.clock.now += FILES_AGE
            assert await asked(client) == f"{name}-one"


@pytest.mark.regression
async def test_a_token_is_read_again_wherever_it_is(rotated):
    async with rotated.client() as client:
        assert await asked(client) == "alice-one"
        (rotated.folder / "token").write_text("two")
        rotated.clock.now += TOKEN_FILE_AGE
        assert await asked(client) == "alice-two"
        rotated.write(token="three")
        rotated.clock.now += FILES_AGE
        assert await asked(client) == "alice-three"


@pytest.mark.regression
async def test_files_that_cannot_be_used_change_nothing_and_another_cluster_is_not_taken(rotated):
    async with rotated.client() as client:
        kubeconfig = (rotated.folder / "kubeconfig").read_text()
        for text in ("", "{", kubeconfig.replace("127.0.0.1", "127.0.0.2"), kubeconfig.replace('"c"', '"e"')):
            (rotated.folder / "kubeconfig").write_text(text)
            rotated.clock.now += FILES_AGE
            assert await asked(client) == "alice-one"
        rotated.write(**{"current-context": "d"}, token="two")
        (rotated.folder / "ca.crt").write_text("in the middle of it")
        rotated.clock.now += FILES_AGE
        assert await asked(client) == "alice-one"
        (rotated.folder / "ca.crt").unlink()
        rotated.clock.now += FILES_AGE
        assert await asked(client) == "alice-one"


@pytest.mark.regression
async def test_a_pod_trusts_the_rotated_authority_of_its_cluster(rotated, monkeypatch):
    host, port = rotated.url.removeprefix("https://").split(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    config = in_cluster_config(rotated.folder)
    read, files = config.files.read, config.files
    config = replace(config, tls=replace(config.tls, server_name="kube.example.com"))
    files = files._replace(
        read=lambda: replace(found := read(), tls=replace(found.tls, server_name="kube.example.com"))
    )
    async with Client(replace(config, files=files)) as client:
        assert await asked(client) == "nobody-one"
        authority = certificate("ca")
        rotated.serve(authority)
        rotated.trust(authority)
        assert await asked(client) == "nobody-one"


async def test_every_group_and_extra_of_impersonation_has_a_line_of_its_own(server):
    """As the API server reads them: it does not split at commas."""
    seen = []

    async def answer(request):
        seen.append(
            [(name, value) for name, value in request.headers.items() if name.startswith("Impersonate")]
        )
        return web.json_response({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}})

    server.answer(answer)
    headers = {
        "Impersonate-User": "alice",
        "Impersonate-Group": ("dev", "ops"),
        "Impersonate-Extra-a": ("x", "y"),
    }
    async with Client(ClusterConfig(server.url, impersonate=headers)) as client:
        await client.get(ConfigMap, "a", "n")
    assert seen == [
        [
            ("Impersonate-User", "alice"),
            ("Impersonate-Group", "dev"),
            ("Impersonate-Group", "ops"),
            ("Impersonate-Extra-a", "x"),
            ("Impersonate-Extra-a", "y"),
        ]
    ]
