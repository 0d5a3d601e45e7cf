"""The kinds of Kubernetes itself, as classes with all their fields: Deployment, Secret, Job, and what they are made of.

    from kubeshard.kinds import Container, Deployment, DeploymentSpec, LabelSelector, PodSpec, PodTemplateSpec

Guaranteed: every kind of a stable API version is here, with all fields that it has in the Kubernetes release which the
modules name. Importing this package loads none of them; a name loads the module of its API group and what that needs,
and a decoder is built when it is first used. Objects are read and written as those of all classes: a field that is left
at None is not sent, and fields that a later release adds stay as they are, because objects are patched. Not guaranteed:
that a cache is as small as with a class that declares the few fields which a controller reads.

Where several groups have a name, `kubeshard.kinds` has the one of the newer API (`Event` is that of `events.k8s.io`),
or the one that is used more. The other one is in the module of its group and version:

    from kubeshard.kinds import core_v1  # core_v1.Event

The modules are written by `make types`.
"""

from __future__ import annotations

from importlib import import_module

from kubeshard.kinds.generated.homes import HOMES

GROUPS = {home.rpartition(".")[2]: home for home in HOMES.values() if home[-1].isdigit()}
"""The modules of groups, such as `core_v1`. What they share with others is in further modules."""

__all__ = sorted(HOMES)


def __getattr__(name: str) -> object:
    if name in GROUPS:
        return import_module(GROUPS[name])
    if home := HOMES.get(name):
        value: object = getattr(import_module(home), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *GROUPS})
