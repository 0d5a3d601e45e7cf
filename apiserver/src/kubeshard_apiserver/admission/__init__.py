"""What is asked about a write before it happens: admission webhooks and ValidatingAdmissionPolicies.

Guaranteed: who is asked, with which words, in which order, and what the answers lead to are as on the real
server. Not guaranteed: that validating webhooks are asked at the same time (they are asked one after the other).
"""
