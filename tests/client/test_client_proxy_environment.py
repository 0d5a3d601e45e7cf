import pytest

from kubeshard.runtime.environ import pod_namespace, proxy_for

PROXY = {"HTTPS_PROXY": "http://proxy:3128"}


@pytest.mark.parametrize(
    ("url", "excluded", "proxied"),
    [
        ("https://10.1.2.3:6443", "", True),
        ("https://10.1.2.3:6443", "10.0.0.0/8", False),
        ("https://11.1.2.3:6443", "10.0.0.0/8,::1", True),
        ("https://10.1.2.3:6443", "10.1.2.3", False),
        ("https://[fd00::1]:6443", "fd00::/8", False),
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
