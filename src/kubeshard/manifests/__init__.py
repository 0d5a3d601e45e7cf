"""What a cluster needs to run a sharder, a ring or an operator, as manifests from one typed source.

Guaranteed: `kubeshard manifests`, `deploy/kustomize` and `deploy/helm` show the same objects for the same values; roles
allow what the programs ask for and nothing beyond; pods fit into a namespace of the Pod Security level *restricted*.

Not guaranteed: that an image of the given name exists.
"""
