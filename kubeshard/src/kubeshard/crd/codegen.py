"""Python source of classes for kinds, from their schemas in CustomResourceDefinitions or an API server's OpenAPI.

| schema | Python |
|---|---|
| string, including times, quantities and other formats | `str` |
| an enumeration | `str`, with its values in a comment, so that values added by later releases can be read |
| object with properties | a class, named after the definition or the field |
| additionalProperties | `Mapping[str, ...]` |
| null allowed where a value is required, in lists and in maps | `| None` |
| an object with a property whose name has quotes, backslashes or control characters | `Mapping[str, Any]` |
| properties beside another type than object | that type: they say nothing of it |
| anything without a schema, and schemas that contain themselves | `Any` |
| `ObjectMeta`, `Condition`, `LabelSelector` | kubeshard's classes |
| not required | `| None = None`: absent until somebody sets it, so the server or others can decide |
| the spec of a kind | an empty one if that is possible; required if the server always writes one that is not empty |
| the status of a kind | an empty one; what its writer always writes is 0, empty or false until then, as in Go |
| spec and status of a kind that keeps unknown fields and does not describe them | `Any` |

Guaranteed: the source compiles, passes strict type checks, and decodes what the server stores. Bounds and rules are
left to the server and are not repeated. Source is generated for the requested fields and everything below them. The
kinds of one module share the classes of definitions that both refer to.
"""

from __future__ import annotations

import json
import keyword
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kubeshard.core.kinds import Kind, default_plural
from kubeshard.crd.schema import Schema

Definitions = Mapping[str, Schema]
"""The schemas that a `$ref` points to, by name."""

_NONE: Definitions = {}

Tree = Mapping[str, "Wanted"]
Wanted = Tree | None
"""The wanted fields of an object, and what is wanted of each; None means everything."""

_META = frozenset({"apiVersion", "kind", "metadata"})
_WIDTH = 110

_PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}

_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_NOTHING: Schema = {}

_KNOWN = {
    "Condition": {
        **dict.fromkeys(("type", "status", "reason", "message", "lastTransitionTime"), "string"),
        "observedGeneration": "integer",
    },
    "LabelSelector": {"matchLabels": "object", "matchExpressions": "array"},
}
"""Classes of `kubeshard.core`, with the types of the properties that identify them."""

_BY_NAME = {
    "ObjectMeta": "ObjectMeta",
    "Condition": "Condition",
    "LabelSelector": "LabelSelector",
    "LabelSelectorRequirement": "LabelSelectorRequirement",
    "Quantity": "str",
    "Time": "str",
    "MicroTime": "str",
    "IntOrString": "int | str",
    "RawExtension": "Any",
    "FieldsV1": "Any",
}
"""Classes for apimachinery's definitions."""

Imports = Mapping[str, Sequence[str]]
"""Which modules kubeshard's own names are imported from."""

AS_USERS: Imports = {
    "kubeshard": ("KubeObject", "ObjectMeta", "Struct", "field"),
    "kubeshard.core": ("Condition", "LabelSelector", "LabelSelectorRequirement"),
}
_TAKEN = frozenset({"Any", "Mapping", *(name for names in AS_USERS.values() for name in names)})


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


class Described(NamedTuple):
    """A kind, its schema or a reference to it, and what is wanted of it."""

    kind: Kind
    schema: Schema
    wanted: Wanted = None


def source_of(described: Sequence[Described], definitions: Definitions = _NONE, *, command: str = "") -> str:
    """Raises UnknownField, and ValueError for two kinds with the same name."""
    module = ModuleWriter(definitions)
    module.write(described)
    names = [f"{each.kind.kind} of {each.kind.api_version}" for each in described]
    head = f"{_listed(names)}, as far as {'it is' if len(names) == 1 else 'they are'} used here."
    return module.text(head, command)


def reference(schema: Schema) -> str:
    """The name of the definition that a schema refers to, or `""`."""
    if len(all_of := schema.get("allOf", ())) == 1 and "$ref" in all_of[0]:
        schema = all_of[0]
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _nowhere(name: str) -> str:
    return ""


@dataclass
class ModuleWriter:
    """Writes one module. `elsewhere` returns the module that has the class of a definition, or `""`."""

    definitions: Definitions
    elsewhere: Callable[[str], str] = _nowhere
    imports: Imports = field(default_factory=lambda: AS_USERS)
    classes: dict[str, str] = field(default_factory=dict)
    """Source by class name; what a class uses comes before it."""
    _wanted: dict[str, Wanted] = field(default_factory=dict)
    """What all uses of a definition want of it together, by definition."""
    _kinds: dict[str | int, Kind] = field(default_factory=dict)
    """The kinds, by definition, or by the identity of an inline schema."""
    _names: dict[str | int, str] = field(default_factory=dict)
    _statuses: set[str | int] = field(default_factory=set)
    """The definitions of the kinds' statuses, likewise."""
    _constructible: set[str] = field(default_factory=set)
    """Names of classes whose fields all have defaults."""
    _imported: dict[str, set[str]] = field(default_factory=dict)
    """Names of classes that are elsewhere, by module."""

    def write(self, described: Sequence[Described]) -> None:
        """Writes the classes of kinds, once."""
        for kind, schema, wanted in described:
            inner, ref = self._resolved(schema)
            if (
                other := next((each for each in self._kinds.values() if each.kind == kind.kind), kind)
            ) != kind:
                raise ValueError(f"{other} and {kind} have the same name: write them into two modules")
            self._kinds[ref or id(inner)] = kind
            self._names[ref or id(inner)] = _class_name(kind.kind, _TAKEN)
            self._collect(schema, wanted, kind.kind)
        for kind, schema, wanted in described:
            self._hint(schema, wanted, "", _class_name(kind.kind, _TAKEN), ())

    def refer(self, name: str) -> None:
        """Writes the class of a definition, unless it is there."""
        schema = {"$ref": name}
        self._collect(schema, None, name)
        self._hint(schema, None, "", "", ())

    # Collecting what is wanted of definitions that several fields share

    def _collect(self, schema: Schema, wanted: Wanted, where: str) -> None:
        schema, ref = self._resolved(schema)
        if ref:
            if _of_apimachinery(ref) or self.elsewhere(ref):
                return
            together = _both(self._wanted[ref], wanted) if ref in self._wanted else wanted
            if ref in self._wanted and together == self._wanted[ref]:
                return
            self._wanted[ref] = wanted = together
        for name, inner, below in self._chosen(self._properties(schema, ref or id(schema)), wanted, where):
            self._collect(_innermost(inner), below, f"{where}.{name}")

    def _properties(self, schema: Schema, identity: str | int) -> Mapping[str, Schema]:
        if identity not in self._kinds:
            return schema["properties"] if _is_struct(schema) else {}
        implied = {"spec": _NOTHING, "status": _NOTHING} if schema.get(_PRESERVE) else {}
        return {**implied, **schema.get("properties", {})}

    def _chosen(
        self, properties: Mapping[str, Schema], wanted: Wanted, where: str
    ) -> Iterator[tuple[str, Schema, Wanted]]:
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
        ref = reference(schema)
        if ref and ref not in self.definitions:
            raise UnknownField(f"the schema refers to {ref}, which is not there")
        return (self.definitions[ref], ref) if ref else (schema, "")

    # Generating the source

    def _hint(self, schema: Schema, wanted: Wanted, key: str, parent: str, inside: tuple[str, ...]) -> str:
        ref = reference(schema)
        if module := self.elsewhere(ref) if ref else "":
            name = _camel(ref.rpartition(".")[2])
            self._imported.setdefault(module, set()).add(name)
            return name
        if known := _of_apimachinery(ref):
            return known
        schema, ref = self._resolved(schema)
        if schema.get("x-kubernetes-int-or-string"):
            return "int | str"
        if (ref or id(schema)) in self._kinds or _is_struct(schema):
            if any(_NO_FIELD.search(key) for key in schema.get("properties", ())) and inside:
                return "Mapping[str, Any]"
            return self._struct(schema, wanted, ref, key, parent, inside)
        match schema.get("type"):
            case "array":
                return f"tuple[{self._inner(schema.get('items', {}), wanted, key, parent, inside)}, ...]"
            case "object":
                values = schema.get("additionalProperties")
                value = "Any"
                if isinstance(values, dict) and values:
                    value = self._inner(values, wanted, key, parent, inside)
                return f"Mapping[str, {value}]"
            case str(type_) if type_ in _PLAIN:
                return _PLAIN[type_]
        return "Any"

    def _inner(self, schema: Schema, wanted: Wanted, key: str, parent: str, inside: tuple[str, ...]) -> str:
        """The type of what is in a list or a map."""
        return self._nullable(schema, self._hint(schema, wanted, _singular(key), parent, inside))

    def _nullable(self, schema: Schema, hint: str) -> str:
        """The type of what may be null, but not absent."""
        return f"{hint} | None" if self._resolved(schema)[0].get("nullable") and hint != "Any" else hint

    def _struct(
        self, schema: Schema, wanted: Wanted, ref: str, key: str, parent: str, inside: tuple[str, ...]
    ) -> str:
        if not ref and wanted is None and (known := _known(schema)):
            return known
        if ref:
            wanted = self._wanted[ref]
        name = self._name(schema, ref, key, parent)
        if name in inside:
            return "Any"
        if name not in self.classes:
            self.classes[name] = self._class(name, schema, wanted, ref or id(schema), (*inside, name))
        return name

    def _name(self, schema: Schema, ref: str, key: str, parent: str) -> str:
        identity = ref or id(schema)
        if identity not in self._names:
            name = _camel(ref.rpartition(".")[2] if ref else key)
            if not ref and any(parent == _class_name(kind.kind, _TAKEN) for kind in self._kinds.values()):
                name = parent + name  # BackupSpec
            taken = {*self._names.values(), *_TAKEN}
            while name in taken:
                name = f"{parent or 'The'}{name}"
            self._names[identity] = name
        return self._names[identity]

    def _class(
        self, name: str, schema: Schema, wanted: Wanted, identity: str | int, inside: tuple[str, ...]
    ) -> str:
        kind = self._kinds.get(identity)
        required = frozenset(schema.get("required", ()))
        fields: list[tuple[bool, list[str]]] = []
        names: set[str] = set()
        for key, inner, below in self._chosen(self._properties(schema, identity), wanted, name):
            if kind and (key in _META or _NO_FIELD.search(key)):
                continue
            behind, ref = self._resolved(inner)
            if kind and key == "status":
                self._statuses.add(ref or id(behind))
            hint = self._hint(inner, below, key, name, inside)
            default = self._default(inner, hint, key, required, identity)
            python = _snake(key, of_kind=kind is not None)
            while python in names:  # `fooBar` and `foo_bar`
                python += "_"
            names.add(python)
            declared = self._nullable(inner, hint) if default is None else hint
            lines = [_declared(python, key, declared, default)]
            if _told(inner) != _told(behind) or hint not in self.classes:
                lines += _docstring(_told(inner))
            fields.append((default is not None, lines))
        if all(has_default for has_default, _ in fields):
            self._constructible.add(name)
        # Fields are keyword-only. Required ones come first, as readers expect.
        lines = [line for _, lines in sorted(fields, key=lambda each: each[0]) for line in lines]
        doc = _docstring(_told(schema))
        body = [*doc, *([""] if doc and lines else []), *lines] or ["    pass"]
        return "\n".join([*_head(name, kind), *body])

    def _default(
        self, schema: Schema, hint: str, key: str, required: frozenset[str], owner: str | int
    ) -> str | None:
        """The default of a field, or None for a required one."""
        if owner in self._kinds and key in ("spec", "status") and hint in self.classes:
            if not (key == "spec" and key in required) and hint in self._constructible:
                return f"default_factory={hint}"
            if key == "spec" and schema.get("default") == {}:
                return None
        if key not in required:
            return "None"
        return _zero(hint) if owner in self._statuses else None

    def text(self, docstring: str, command: str = "") -> str:
        classes = "\n\n\n".join(self.classes.values())
        used = set(re.findall(r"\b[A-Za-z]\w*", re.sub(r'"""(?:[^"\\]|\\.|"(?!""))*"""', "", classes)))
        standard = {"collections.abc": ("Mapping",), "typing": ("Any",)}
        ours = {module: sorted(names) for module, names in self._imported.items()}
        head = _docstring(docstring, indentation="")
        if command:
            head += ["", *_commented(f"Written by: {command}")]
        blocks = [
            "\n".join(head),
            "from __future__ import annotations",
            _imports(standard, used),
            _imports({**self.imports, **ours}, used),
        ]
        return "\n\n".join(filter(None, blocks)) + f"\n\n\n{classes}\n"


def _head(name: str, kind: Kind | None) -> list[str]:
    if kind is None:
        return [f"class {name}(Struct):"]
    says = [f'group="{kind.group}"'] if kind.group else []
    says.append(f'version="{kind.version}"')
    if kind.kind != name:
        says.append(f'kind="{kind.kind}"')
    if kind.plural != default_plural(kind.kind):
        says.append(f'plural="{kind.plural}"')
    if not kind.namespaced:
        says.append("namespaced=False")
    bases = f"KubeObject, {', '.join(says)}"
    line = f"class {name}({bases}):"
    return [line] if len(line) <= _WIDTH else [f"class {name}(", f"    {bases}", "):"]


def _imports(modules: Imports, used: set[str]) -> str:
    lines = []
    for module, names in sorted(modules.items()):
        chosen = [name for name in names if name in used]
        line = f"from {module} import {', '.join(chosen)}"
        if len(line) > _WIDTH:
            line = "\n".join([f"from {module} import (", *(f"    {name}," for name in chosen), ")"])
        if chosen:
            lines.append(line)
    return "\n".join(lines)


def _declared(name: str, key: str, hint: str, default: str | None) -> str:
    says = [f"name={json.dumps(key, ensure_ascii=False)}"] if _wire(name) != key else []
    if default == "None" and hint != "Any":
        hint = f"{hint} | None"
    if default is not None and "=" in default:
        says.insert(0, default)
    elif default is not None and says:
        says.insert(0, f"default={default}")
    if not says:
        return f"    {name}: {hint}" + (f" = {default}" if default is not None else "")
    line = f"    {name}: {hint} = field({', '.join(says)})"
    if len(line) > _WIDTH:
        line = "\n".join([f"    {name}: {hint} = field(", f"        {', '.join(says)}", "    )"])
    return line


def _zero(hint: str) -> str | None:
    """What a field without `omitempty` says in Go before anything is written."""
    if hint.startswith("tuple["):
        return "()"
    return {"str": '""', "int": "0", "float": "0.0", "bool": "False"}.get(hint)


def _of_apimachinery(ref: str) -> str:
    return _BY_NAME.get(ref.rpartition(".")[2], "") if ".apimachinery." in ref else ""


def _known(schema: Schema) -> str:
    types = {name: inner.get("type") for name, inner in schema.get("properties", {}).items()}
    return next((name for name, known in _KNOWN.items() if known == types), "")


def _is_struct(schema: Schema) -> bool:
    """Whether its values are objects with fields. Beside another type, properties are allowed, and say nothing."""
    anything = schema.get(_PRESERVE) and "type" not in schema
    return "properties" in schema and schema.get("type", "object") == "object" and not anything


def _innermost(schema: Schema) -> Schema:
    """The item schema inside nested lists and maps."""
    while not _is_struct(schema) and isinstance(
        values := schema.get("items") or schema.get("additionalProperties"), dict
    ):
        schema = values
    return schema


_NO_FIELD = re.compile(r'[\x00-\x1f"\\]')
"""What the name of a field cannot have (msgspec), although a schema's property can: such an object stays a map."""

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def _told(schema: Schema) -> str:
    """The first sentence of the description, and the values of an enumeration."""
    text = " ".join(_UNPRINTABLE.sub(" ", str(schema.get("description", ""))).split())
    sentence = re.split(r"(?<=[.!?])\s+(?=[A-Z])", text, maxsplit=1)[0]
    said = (value if value != "" else '""' for value in schema.get("enum", ()) if value is not None)
    values = [_UNPRINTABLE.sub("?", str(value)) for value in said]
    if values:
        sentence = f"{sentence} One of {', '.join(values)}.".strip()
    return sentence.replace("\\", "\\\\").replace('"""', "'''")


def _docstring(text: str, indentation: str = "    ") -> list[str]:
    if not text:
        return []
    if text.endswith('"'):
        text += " "
    room = _WIDTH - len(indentation)
    if len(text) + 6 <= room:
        return [f'{indentation}"""{text}"""']
    lines = textwrap.wrap(text, room, initial_indent='"""', break_long_words=False, break_on_hyphens=False)
    if len(lines) == 1:  # there is room for the text, but not for the quotes at its end
        lines = textwrap.wrap(
            text, room - 3, initial_indent='"""', break_long_words=False, break_on_hyphens=False
        )
    return [*(f"{indentation}{line}" for line in lines), f'{indentation}"""']


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
    name = "".join(part[:1].upper() + part[1:] for part in re.split(r"[^A-Za-z0-9]", key)) or "Value"
    return _class_name(name)


def _class_name(name: str, taken: frozenset[str] = frozenset()) -> str:
    """A name of a class: a kind may have dashes, and be called `None` or `Condition`."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", name)
    name = f"C{name}" if name[:1].isdigit() else name
    return f"{name}_" if keyword.iskeyword(name) or name in taken else name


def _listed(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _singular(key: str) -> str:
    for ending, single in (("ies", "y"), ("sses", "ss"), ("s", "")):
        if key.endswith(ending) and not key.endswith("ss"):
            return key.removesuffix(ending) + single
    return key
