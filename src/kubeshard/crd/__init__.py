"""CustomResourceDefinitions: made from classes, made into classes, and compared.

    class BackupSpec(Struct):
        schedule: Annotated[str, Meta(pattern=r"^(\\S+ ){4}\\S+$")]
        keep: Annotated[int, Meta(ge=1)] = 3

    @CustomResource(short_names=["bk"], columns=[Column("Keep", ".spec.keep")])
    class Backup(KubeObject, group="example.com", version="v1"):
        spec: BackupSpec

    manifest = definition(Backup)

`declaring` is what a class says, `schema` and `defining` what becomes of it. Everything is a function of its
arguments: nothing here talks to a server. Not offered: what structural schemas cannot say.
"""

from kubeshard.crd.declaring import Column, CustomResource, ListMap, Rule, Scale
from kubeshard.crd.defining import definition

__all__ = ["Column", "CustomResource", "ListMap", "Rule", "Scale", "definition"]
