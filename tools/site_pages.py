"""What the documentation site has besides the files of `docs/`; a hook of `mkdocs.yml`.

- The README, the changelog and the contributing page, which are in the root of the repository.
- A reference from the docstrings of public names: pages for the names of `kubeshard`, and one for each public package.

Links are written for the repository, where people also read the pages. On the site, links to other pages work, and
links to files that are not part of it (code, examples) become plain text.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import kubeshard

ROOT = Path(__file__).resolve().parents[1]

FROM_THE_ROOT = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
"""Pages whose files are outside `docs/`, by their path in the repository."""

TOPICS = {
    "objects": ("Objects", ("core",)),
    "controllers": ("Controllers", ("controller",)),
    "processes": ("Processes", ("manager", "shard")),
    "clients": ("Clients", ("client", "cache")),
}
"""Pages of the names of `kubeshard`: file, title, and the packages that the names come from."""

MODULES = ("errors", "until", "when")
"""Names of `kubeshard` that are modules, each with its own page."""

PACKAGES = (
    "kubeshard.core",
    "kubeshard.crd",
    "kubeshard.client",
    "kubeshard.cache",
    "kubeshard.controller",
    "kubeshard.logging",
    "kubeshard.manager",
    "kubeshard.shard",
    "kubeshard.webhook",
    "kubeshard.workqueue",
    "kubeshard_apiserver.testing",
    "kubeshard_lab.simulation",
)
"""The other public packages (docs/public-interface.md)."""

LISTED = "kinds"
"""The public package of which the site has only a list: what its classes mean is documented by Kubernetes."""

_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
_FENCE = re.compile(r"(^```.*?^```)", re.M | re.S)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are not files in `docs/`."""
    for source, page in FROM_THE_ROOT.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    for page, content in reference().items():
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrites links for the site."""
    there = page.file.src_uri
    if there == "index.md":
        markdown = markdown.replace("](docs/images/", "](images/")
    parts = _FENCE.split(markdown)
    return "".join(
        part if part.startswith("```") else _LINK.sub(lambda link: _followed(link, there), part)
        for part in parts
    )


def reference() -> dict[str, str]:
    """The pages of the reference and their content."""
    pages = {
        "reference/errors.md": _page("Errors", ["kubeshard.core.errors"], whole=True),
        "reference/until.md": _page("Waiting", ["kubeshard.core.until"], whole=True),
        "reference/when.md": _page("Predicates", ["kubeshard.controller.when"], whole=True),
    }
    for page, (title, packages) in TOPICS.items():
        names = [f"kubeshard.{name}" for name in _face(packages)]
        pages[f"reference/{page}.md"] = _page(title, names)
    pages[f"reference/{LISTED}.md"] = _list(f"kubeshard.{LISTED}")
    for path in PACKAGES:
        further = [f"{path}.{name}" for name in _further(path)]
        head = (
            f"# {path}\n\n::: {path}\n    options:\n      members: false\n      show_root_heading: false\n\n"
        )
        pages[f"reference/{path.rpartition('.')[2]}.md"] = head + _entries(further)
    return pages


def _face(packages: Sequence[str]) -> Iterator[str]:
    """The names of `kubeshard` that come from the packages, in the order of their declaration."""
    for home, names in kubeshard._HOMES.items():
        if home.partition(".")[0] in packages:
            yield from (name for name in names if name not in MODULES)


def _further(package: str) -> Iterator[str]:
    """The public names of a package that are on no other page."""
    module = import_module(package)
    for name in module.__all__:
        thing = getattr(module, name)
        described_elsewhere = hasattr(kubeshard, name) and getattr(kubeshard, name) is thing
        if not described_elsewhere and not hasattr(kubeshard.errors, name):
            yield name


def _list(package: str) -> str:
    """A page that names the classes of every module."""
    homes: dict[str, list[type]] = {}
    for name in import_module(package).__all__:
        class_ = getattr(import_module(package), name)
        homes.setdefault(class_.__module__, []).append(class_)
    rows = [
        f"| `{module}` | {_names(classes, of_kinds=True)} | {_names(classes, of_kinds=False)} |"
        for module, classes in sorted(homes.items())
    ]
    head = f"# {package}\n\n::: {package}\n    options:\n      members: false\n      show_root_heading: false\n\n"
    return head + "\n".join(["| module | kinds | what they are made of |", "|---|---|---|", *rows]) + "\n"


def _names(classes: Sequence[type], *, of_kinds: bool) -> str:
    return ", ".join(
        f"`{each.__name__}`" for each in classes if issubclass(each, kubeshard.KubeObject) == of_kinds
    )


def _page(title: str, paths: Sequence[str], *, whole: bool = False) -> str:
    """A page for these names or, if `whole`, for modules with everything in them."""
    if whole:
        return f"# {title}\n\n" + "".join(
            f"::: {path}\n    options:\n      show_root_heading: false\n" for path in paths
        )
    return f"# {title}\n\n{_entries(paths)}"


def _entries(paths: Sequence[str]) -> str:
    return "\n".join(map(_entry, paths))


def _entry(path: str) -> str:
    package, _, name = path.rpartition(".")
    thing = getattr(import_module(package), name)
    fields = hasattr(thing, "__struct_fields__")
    if (getattr(thing, "__module__", None) or type(thing).__module__).startswith("msgspec") and not fields:
        return f"## `{name}`\n\nThat of [msgspec](https://jcristharif.com/msgspec/).\n"
    options = {
        "show_if_no_docstring": fields,  # the Kubernetes API documents their meaning
        "inherited_members": thing is kubeshard.Client,  # its verbs are in several modules
    }
    chosen = "".join(f"      {option}: true\n" for option, wanted in options.items() if wanted)
    return f"::: {path}\n" + (f"    options:\n{chosen}" if chosen else "")


def _followed(link: re.Match[str], there: str) -> str:
    text, target = link["text"], link["target"]
    path, hash_, anchor = target.partition("#")
    if re.match(r"[a-z]+:", target) or not path:
        return link[0]
    in_repository = posixpath.normpath(posixpath.join(posixpath.dirname(_place_of(there)), path))
    page = FROM_THE_ROOT.get(in_repository)
    if page is None and in_repository.startswith("docs/") and in_repository.endswith(".md"):
        page = in_repository.removeprefix("docs/")
    if page is None or page == "README.md":  # the list of all pages, which the site has beside them
        return text
    return f"[{text}]({posixpath.relpath(page, posixpath.dirname(there) or '.')}{hash_}{anchor})"


def _place_of(page: str) -> str:
    """The path of a page's file in the repository."""
    for source, name in FROM_THE_ROOT.items():
        if name == page:
            return source
    return f"docs/{page}"
