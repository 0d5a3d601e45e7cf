"""Structural schemas: pruning, defaulting and validation of JSON values by them, as the API server does for
custom resources; the Go types of built-in kinds (`catalog`, `decoding`) with their texts (`quantities`, `times`).

Pure functions over plain schema dicts (`openAPIV3Schema`). Not covered: `allOf`/`anyOf`/`oneOf`/`not`,
`format`, CEL rules (`x-kubernetes-validations`): a schema that uses them is accepted, and what they would
refuse is not refused.
"""

from kubeshard.apiserver.schema.defaulting import fill
from kubeshard.apiserver.schema.pruning import prune
from kubeshard.apiserver.schema.validation import validate

__all__ = ["fill", "prune", "validate"]
