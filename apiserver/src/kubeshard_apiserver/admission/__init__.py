"""Admission: webhooks and ValidatingAdmissionPolicies, which can change or deny a write before it is stored.

Guaranteed: which of them are called, in what order and with what request, and the effect of their responses are as on
the real server. Not guaranteed: that validating webhooks are called concurrently (they are called one after another).
"""
