"""Manifests of what a cluster needs to run a sharder, a ring or an operator, from one typed source.

Guaranteed: `kubeshard manifests`, `deploy/kustomize` and `deploy/helm` produce the same objects for the same values.
Roles allow what the programs request and nothing more. Pods run in a namespace of the Pod Security level *restricted*.

Not guaranteed: that an image of the given name exists.
"""
