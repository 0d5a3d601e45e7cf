"""Python source of classes for a kind, from its schema in a CustomResourceDefinition or an API server's OpenAPI.

| schema | Python |
|---|---|
| string, including times, quantities and other formats | `str` |
| an enumeration | `str`, with its values in a comment, so that values added by later releases can be read |
| object with properties | a class, named after the definition or the field |
| additionalProperties | `Mapping[str, ...]` |
| anything without a schema, and schemas that contain themselves | `Any` |
| `ObjectMeta`, `Condition`, `LabelSelector` | kubeshard's classes |
| not required | `| None = None`: absent until somebody sets it, so the server or others can decide |

Guaranteed: the source compiles, passes strict type checks, and decodes what the server stores. Bounds and rules are
left to the server and are not repeated. Source is generated for the requested fields and everything below them.
"""

from __future__ import annotations

import keyword
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kubeshard.core.kinds import Kind, default_plural
from kubeshard.crd.schema import Schema

Resolve = Callable[[str], Schema]
"""Returns the schema that a `$ref` points to."""

Tree = Mapping[str, "Wanted"]
Wanted = Tree | None
"""The wanted fields of an object, and what is wanted of each; None means everything."""

_META = frozenset({"apiVersion", "kind", "metadata"})
_WIDTH = 110

_PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}

_KNOWN = {
    frozenset(
        {"type", "status", "reason", "message", "lastTransitionTime", "observedGeneration"}
    ): "Condition",
    frozenset({"matchLabels", "matchExpressions"}): "LabelSelector",
}
"""Classes of `kubeshard.core`, by the properties that identify them."""

_BY_NAME = {
    "ObjectMeta": "ObjectMeta",
    "Condition": "Condition",
    "LabelSelector": "LabelSelector",
    "Quantity": "str",
    "Time": "str",
    "MicroTime": "str",
    "IntOrString": "int | str",
    "RawExtension": "Any",
    "FieldsV1": "Any",
}
"""Classes for apimachinery's definitions."""

_FACE = ("KubeObject", "ObjectMeta", "Struct", "field")
_CORE = ("Condition", "LabelSelector")
_TAKEN = frozenset({*_FACE, *_CORE, "Any", "Mapping"})


class UnknownField(ValueError):
    """The kind does not have a requested field."""


def wanted_fields(paths: Iterable[str]) -> Wanted:
    """`["spec.replicas", "status"]` as a tree; everything if there are no paths."""
    wanted: Wanted = {}
    for path in paths:
        below: Wanted = None
        for name in reversed([name for name in path.split(".") if name]):
            below = {name: below}
        wanted = _both(wanted, below)
    return wanted or None


def _both(one: Wanted, other: Wanted) -> Wanted:
    if one is None or other is None:
        return None
    return {
        name: _both(one[name], other[name]) if name in one and name in other else {**one, **other}[name]
        for name in {**one, **other}
    }


def source_of(
    kind: Kind, schema: Schema, wanted: Wanted = None, *, resolve: Resolve | None = None, command: str = ""
) -> str:
    """The source of a module with the kind's classes. Raises UnknownField."""
    writer = _Writer(kind, resolve or _no_references)
    writer.collect(schema, wanted, kind.kind)
    writer.root(schema, wanted)
    return writer.module(command)


def _no_references(name: str) -> Schema:
    raise UnknownField(f"the schema refers to {name}, which is not there")


@dataclass
class _Writer:
    kind: Kind
    resolve: Resolve
    wanted: dict[str, Wanted] = field(default_factory=dict)
    """What all uses of a definition want of it together, by definition."""
    names: dict[str | int, str] = field(default_factory=dict)
    """Names of classes, by definition, or by the identity of an inline schema."""
    classes: dict[str, str] = field(default_factory=dict)
    """Source by class name; what a class uses comes before it."""

    # Collecting what is wanted of definitions that several fields share

    def collect(self, schema: Schema, wanted: Wanted, where: str) -> None:
        schema, ref = self._resolved(schema)
        if ref:
            if _of_apimachinery(ref):
                return
            together = _both(self.wanted[ref], wanted) if ref in self.wanted else wanted
            if ref in self.wanted and together == self.wanted[ref]:
                return
            self.wanted[ref] = wanted = together
        for name, inner, below in self._chosen(schema, wanted, where):
            self.collect(_innermost(inner), below, f"{where}.{name}")

    def _chosen(self, schema: Schema, wanted: Wanted, where: str) -> Iterator[tuple[str, Schema, Wanted]]:
        properties: Mapping[str, Schema] = schema.get("properties", {})
        if missing := [name for name in wanted or () if name not in properties]:
            known = ", ".join(sorted(properties)) or "no fields that are known"
            raise UnknownField(f"{where} has no field {', '.join(missing)}; it has {known}")
        for name, inner in properties.items():
            if wanted is None:
                yield name, inner, None
            elif name in wanted:
                yield name, inner, wanted[name]

    def _resolved(self, schema: Schema) -> tuple[Schema, str]:
        """The schema behind a reference, and its name."""
        if len(all_of := schema.get("allOf", ())) == 1 and "$ref" in all_of[0]:
            schema = all_of[0]
        if "$ref" not in schema:
            return schema, ""
        ref = str(schema["$ref"]).rpartition("/")[2]
        return self.resolve(ref), ref

    # Generating the source

    def root(self, schema: Schema, wanted: Wanted) -> None:
        kind = self.kind
        says = [f'group="{kind.group}"'] if kind.group else []
        says.append(f'version="{kind.version}"')
        if kind.plural != default_plural(kind.kind):
            says.append(f'plural="{kind.plural}"')
        if not kind.namespaced:
            says.append("namespaced=False")
        schema, ref = self._resolved(schema)
        if ref:
            wanted = self.wanted[ref]
        self._class(kind.kind, f"KubeObject, {', '.join(says)}", schema, wanted, (kind.kind,))

    def _class(self, name: str, bases: str, schema: Schema, wanted: Wanted, inside: tuple[str, ...]) -> None:
        required = frozenset(schema.get("required", ()))
        is_kind = bases != "Struct"
        chosen = [each for each in self._chosen(schema, wanted, name) if not is_kind or each[0] not in _META]
        lines: list[str] = []
        # Fields are keyword-only. Required ones come first, as readers expect.
        for key, inner, below in sorted(chosen, key=lambda each: each[0] not in required):
            hint = self._hint(inner, below, key, name, inside)
            made = is_kind and key == "spec" and hint in self.classes and _constructible(self.classes[hint])
            lines.append(_declared(key, hint, of_kind=is_kind, required=key in required, made=made))
            if _told(inner) != _told(self._resolved(inner)[0]) or hint not in self.classes:
                lines += _docstring(_told(inner))
        doc = _docstring(_told(schema))
        body = [*doc, *([""] if doc and lines else []), *lines] or ["    pass"]
        self.classes[name] = "\n".join([f"class {name}({bases}):", *body])

    def _hint(self, schema: Schema, wanted: Wanted, key: str, parent: str, inside: tuple[str, ...]) -> str:
        schema, ref = self._resolved(schema)
        if known := _of_apimachinery(ref):
            return known
        if schema.get("x-kubernetes-int-or-string"):
            return "int | str"
        if "properties" in schema:
            return self._struct(schema, wanted, ref, key, parent, inside)
        match schema.get("type"):
            case "array":
                item = self._hint(schema.get("items", {}), wanted, _singular(key), parent, inside)
                return f"tuple[{item}, ...]"
            case "object":
                values = schema.get("additionalProperties")
                value = "Any"
                if isinstance(values, dict) and values:
                    value = self._hint(values, wanted, _singular(key), parent, inside)
                return f"Mapping[str, {value}]"
            case str(type_) if type_ in _PLAIN:
                return _PLAIN[type_]
        return "Any"

    def _struct(
        self, schema: Schema, wanted: Wanted, ref: str, key: str, parent: str, inside: tuple[str, ...]
    ) -> str:
        if not ref and wanted is None and (known := _KNOWN.get(frozenset(schema["properties"]))):
            return known
        if ref:
            wanted = self.wanted[ref]
        name = self._name(schema, ref, key, parent)
        if name in inside:
            return "Any"
        if name not in self.classes:
            self._class(name, "Struct", schema, wanted, (*inside, name))
        return name

    def _name(self, schema: Schema, ref: str, key: str, parent: str) -> str:
        identity = ref or id(schema)
        if identity not in self.names:
            name = _camel(ref.rpartition(".")[2] if ref else key)
            if not ref and parent == self.kind.kind:
                name = parent + name  # BackupSpec
            taken = {*self.names.values(), *_TAKEN, self.kind.kind}
            while name in taken:
                name = f"{parent}{name}"
            self.names[identity] = name
        return self.names[identity]

    def module(self, command: str) -> str:
        classes = "\n\n\n".join(self.classes.values())
        used = set(re.findall(r"\b[A-Za-z]\w*", re.sub(r'"""(?:[^"\\]|\\.|"(?!""))*"""', "", classes)))
        imports = ["from __future__ import annotations"]
        standard = [
            f"from {module} import {name}"
            for module, name in (("collections.abc", "Mapping"), ("typing", "Any"))
            if name in used
        ]
        ours = [
            f"from {module} import {', '.join(names)}"
            for module, known in (("kubeshard", _FACE), ("kubeshard.core", _CORE))
            if (names := [name for name in known if name in used])
        ]
        head = [f'"""{self.kind.kind} of {self.kind.api_version}, as far as it is used here."""']
        if command:
            head += ["", *_commented(f"Written by: {command}")]
        blocks = ["\n".join(head), *("\n".join(block) for block in (imports, standard, ours) if block)]
        return "\n\n".join(blocks) + f"\n\n\n{classes}\n"


def _declared(key: str, hint: str, *, of_kind: bool, required: bool, made: bool) -> str:
    name = _snake(key, of_kind=of_kind)
    renamed = f'name="{key}"' if _wire(name) != key else ""
    if required:
        return f"    {name}: {hint}" + (f" = field({renamed})" if renamed else "")
    if made:
        return f"    {name}: {hint} = field(default_factory={hint})"
    optional = hint if hint == "Any" else f"{hint} | None"
    return f"    {name}: {optional} = " + (f"field(default=None, {renamed})" if renamed else "None")


def _constructible(source: str) -> bool:
    """Whether every field of a class has a default."""
    fields = re.findall(r"^    \w+: (.*)$", source, re.M)
    return all("= None" in line or "default" in line for line in fields)


def _of_apimachinery(ref: str) -> str:
    return _BY_NAME.get(ref.rpartition(".")[2], "") if ".apimachinery." in ref else ""


def _innermost(schema: Schema) -> Schema:
    """The item schema inside nested lists and maps."""
    while "properties" not in schema and isinstance(
        values := schema.get("items") or schema.get("additionalProperties"), dict
    ):
        schema = values
    return schema


def _told(schema: Schema) -> str:
    """The first sentence of the description, and the values of an enumeration."""
    text = " ".join(str(schema.get("description", "")).split())
    sentence = re.split(r"(?<=[.!?])\s+(?=[A-Z])", text, maxsplit=1)[0]
    if values := [str(value) for value in schema.get("enum", ()) if value is not None]:
        sentence = f"{sentence} One of {', '.join(values)}.".strip()
    return sentence.replace("\\", "\\\\").replace('"""', "'''")


def _docstring(text: str) -> list[str]:
    if not text:
        return []
    if text.endswith('"'):
        text += " "
    if len(text) + 10 <= _WIDTH:
        return [f'    """{text}"""']
    lines = textwrap.wrap(
        text, _WIDTH - 4, initial_indent='"""', break_long_words=False, break_on_hyphens=False
    )
    return [*(f"    {line}" for line in lines), '    """']


def _commented(text: str) -> list[str]:
    """A comment, wrapped at spaces and after commas."""
    lines = [""]
    for piece in re.findall(r"[^ ,]+[ ,]*", text):
        if len(lines[-1] + piece.rstrip()) > _WIDTH - 4:
            lines.append("")
        lines[-1] += piece
    return [f"# {'  ' if number else ''}{line.rstrip()}" for number, line in enumerate(lines)]


_WORD = re.compile("[A-Z]{2,}s(?![a-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|[A-Z]")
_MEMBERS = frozenset({"metadata", "key"})
"""Names that every kind already has."""
_USED = frozenset({"field", "str", "int", "float", "bool", "tuple"})
"""Names with another meaning in the body of a class."""


def _snake(key: str, *, of_kind: bool) -> str:
    """The Python name of a field: `clusterIPs` becomes `cluster_ips`."""
    name = "_".join(_WORD.findall(key)).lower() or "field"
    name = f"f_{name}" if name[0].isdigit() else name
    return f"{name}_" if keyword.iskeyword(name) or name in _USED or (of_kind and name in _MEMBERS) else name


def _wire(name: str) -> str:
    """The wire name that a `Struct` derives from a Python name."""
    first, *others = name.split("_")
    return first + "".join(other.title() for other in others)


def _camel(key: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"\W|_", key)) or "Value"


def _singular(key: str) -> str:
    for ending, single in (("ies", "y"), ("sses", "ss"), ("s", "")):
        if key.endswith(ending) and not key.endswith("ss"):
            return key.removesuffix(ending) + single
    return key
