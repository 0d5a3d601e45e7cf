"""The page and server configuration of a website."""

import json

import pytest

from kubeshard.core.objects import ObjectMeta
from kubeshard_lab.examples.webhosting import pages
from kubeshard_lab.examples.webhosting.api import Theme, ThemeSpec, Website, WebsiteSpec

WEBSITE = Website(
    metadata=ObjectMeta(name="homepage", namespace="project-foo", uid="1"), spec=WebsiteSpec(theme="fancy")
)


def theme(color: str = "darkcyan", font: str = "Menlo") -> Theme:
    return Theme(metadata=ObjectMeta(name="fancy"), spec=ThemeSpec(color=color, font_family=font))


def test_the_page_shows_name_server_and_theme() -> None:
    page = pages.index_html("homepage-381fa2", WEBSITE, theme())
    assert "<title>Welcome to homepage</title>" in page
    assert "<h1>Welcome to homepage</h1>" in page
    assert "Server name: homepage-381fa2" in page
    assert "background-color: darkcyan;" in page
    assert "font-family: Menlo, Arial, sans-serif;" in page
    assert pages.REPOSITORY in page
    assert "$" not in page


def test_the_server_drops_the_prefix_that_the_ingress_matches() -> None:
    assert "rewrite ^/project-foo/homepage(.*)$ /$1 last;" in pages.nginx_conf(WEBSITE)


@pytest.mark.parametrize(
    "value",
    [
        'a"b',
        "a'b",
        "url(x)",
        "a/b",
        "red;",
        "a@b",
        "a[b",
        "a\\b",
        "a]b",
        "a`b",
        "a{b",
        "a}b",
        "a<b",
        "a>b",
        "a\0b",
        "--x",
        "expression",
        "ExPression",
        "-moz-binding",
    ],
)
def test_a_css_value_cannot_leave_its_declaration(value: str) -> None:
    assert pages.css_value(value) == "ZgotmplZ"


@pytest.mark.parametrize(
    "value",
    [
        "darkcyan",
        "#2D2D2D",
        "Open Sans",
        "rebecca-purple",
        "50%",
        "Noto Sans, Arial",
        "",
    ],
)
def test_an_ordinary_css_value_passes_unchanged(value: str) -> None:
    assert pages.css_value(value) == value


def test_names_are_escaped_for_html() -> None:
    hostile = Website(metadata=ObjectMeta(name="<script>", namespace="a"))
    assert "<script>" not in pages.index_html("s", hostile, theme())


def test_the_checksum_is_that_of_gos_json() -> None:
    # Go: sha256 of {"a":"\u003cb\u003e \u0026 \u2028 ü","z":"1"}
    import hashlib

    encoded = '{"a":"\\u003cb\\u003e \\u0026 \\u2028 ü","z":"1"}'
    assert json.loads(encoded)["a"] == "<b> & \u2028 ü"
    assert pages.checksum({"z": "1", "a": "<b> & \u2028 ü"}) == hashlib.sha256(encoded.encode()).hexdigest()
