"""Admission: what webhooks and ValidatingAdmissionPolicies have to say about a write before it happens.

Guaranteed: which of them are called, in what order, with what request, and what their answers lead to is as on the real
server. Not guaranteed: that validating webhooks are called concurrently (they are called one after the other).
"""
