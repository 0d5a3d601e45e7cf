"""Structural schemas, which prune, default and validate JSON values as the API server does for custom resources; and
the Go types of built-in kinds.

Pure functions over plain schema dicts (`openAPIV3Schema`). CEL rules are in `resources.custom_rules`.
"""

from kubeshard_apiserver.schema.structural import drop_nulls, fill, is_settled, prune
from kubeshard_apiserver.schema.validation import Validator

__all__ = ["Validator", "drop_nulls", "fill", "is_settled", "prune"]
