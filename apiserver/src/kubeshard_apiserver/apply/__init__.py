"""Field management and server-side apply: which manager owns which fields of an object, and the consequences. Pure.

`field_manager` is the entry; below it `managed_fields`, `fieldset` (set algebra) and `shape` (how values divide into
fields).
"""
