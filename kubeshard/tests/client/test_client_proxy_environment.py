import traceback

import pytest

from kubeshard.client.config import ClusterConfig, checked_proxy
from kubeshard.core.errors import ConfigurationError
from kubeshard.runtime.environ import pod_namespace, proxy_for
from kubeshard.runtime.http import HttpTransport
from kubeshard.runtime.transport import HttpRequest, TransportError

PROXY = {"HTTPS_PROXY": "http://proxy:3128"}


@pytest.mark.parametrize(
    ("url", "excluded", "proxied"),
    [
        ("https://10.1.2.3:6443", "", True),
        ("https://10.1.2.3:6443", "10.0.0.0/8", False),
        ("https://11.1.2.3:6443", "10.0.0.0/8,::1", True),
        ("https://10.1.2.3:6443", "10.1.2.3", False),
        ("https://[fd00::1]:6443", "fd00::/8", False),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", False),
        ("https://[fd00::1]:6443", "[fd00:0:0::1]:6443", False),
        ("https://[fd00::1]:6443", "[fd00::1]:443", True),
        ("https://[fd00::1]:6443", "[fd00::1]", True),
        ("https://api.example.com", "example.com", False),
        ("https://api.example.com", ".example.com", False),
        ("https://example.com", ".example.com", True),
        ("https://badexample.com", "example.com", True),
        ("https://api.example.com:6443", "example.com:443", True),
        ("https://api.example.com:6443", "other, example.com:6443", False),
        ("https://api.example.com", "*", False),
        ("https://localhost:6443", "", False),
        ("https://127.0.0.1:6443", "", False),
        ("http://api.example.com", "", False),
    ],
)
def test_the_environment_decides_what_is_proxied_as_it_does_for_go(url, excluded, proxied):
    assert proxy_for(url, {**PROXY, "NO_PROXY": excluded}) == ("http://proxy:3128" if proxied else None)
    assert proxy_for(url, {"https_proxy": "proxy:3128", "no_proxy": excluded}) == (
        "http://proxy:3128" if proxied else None
    )


def test_outside_of_a_cluster_there_is_no_pod_namespace(tmp_path):
    assert pod_namespace(tmp_path) is None
    (tmp_path / "namespace").write_text("team-a\n")
    assert pod_namespace(tmp_path) == "team-a"


BROKEN = [
    "socks4://me:SECRET@proxy:1", "me:SECRET@proxy:1", "http://me:SECRET@proxy:port", "http://me:SECRET@:80",
    "http://me:SECRET@[::1", "http://me:SECRET@proxy:99999", "http://me:SE SECRET@proxy:1", "http://me:S@SECRET@",
]  # fmt: skip


@pytest.mark.regression
@pytest.mark.parametrize("proxy", BROKEN)
def test_a_proxy_that_cannot_be_used_is_refused_without_its_password(proxy):
    with pytest.raises(ConfigurationError, match=r"^here: ") as caught:
        checked_proxy("here", proxy)
    assert "SECRET" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.regression
@pytest.mark.parametrize(
    "proxy", [*BROKEN, "http://me:SECRET@127.0.0.1:1", "http://me:SECRET@nowhere.invalid"]
)
async def test_no_error_and_no_configuration_shows_the_password_of_a_proxy(proxy):
    config = ClusterConfig("http://kube.example.com", proxy=proxy)
    assert "SECRET" not in repr(config)
    transport = HttpTransport(config.server, proxy=proxy)
    with pytest.raises(TransportError) as caught:
        await transport.request(HttpRequest("GET", "/version", {}, timeout=5))
    await transport.close()
    assert "SECRET" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("proxy", ["http://proxy", "https://me:x@proxy:3128", "http://[::1]:80", None, ""])
def test_a_proxy_that_can_be_used_is_taken(proxy):
    assert checked_proxy("here", proxy) == (proxy or None)
