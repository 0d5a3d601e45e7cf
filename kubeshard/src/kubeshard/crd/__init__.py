"""CustomResourceDefinitions: generated from classes, turned into classes, and compared.

    class BackupSpec(Struct):
        schedule: Annotated[str, Meta(pattern=r"^(\\S+ ){4}\\S+$")]
        keep: Annotated[int, Meta(ge=1)] = 3

    @CustomResource(short_names=["bk"], columns=[Column("Keep", ".spec.keep")])
    class Backup(KubeObject, group="example.com", version="v1"):
        spec: BackupSpec

    manifest = definition(Backup)

`declaring` contains the class decorators; `schema` and `defining` generate the manifest. Everything is a pure function:
nothing here talks to a server. Not supported: whatever structural schemas cannot express.
"""

from kubeshard.crd.declaring import Column, CustomResource, ListMap, Rule, Scale
from kubeshard.crd.defining import definition

__all__ = ["Column", "CustomResource", "ListMap", "Rule", "Scale", "definition"]
