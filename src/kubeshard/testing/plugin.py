"""The pytest plugin is in `kubeshard_apiserver.testing.plugin`; environments that were made before find it here."""

from importlib import import_module

globals().update(
    {
        name: value
        for name, value in vars(import_module("kubeshard_apiserver.testing.plugin")).items()
        if name[0] != "_"
    }
)
