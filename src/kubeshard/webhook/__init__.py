"""Admission webhooks: an HTTPS server that answers the API server's AdmissionReviews (reliability 4.3).

Guaranteed: what is no AdmissionReview, too large or too slow is refused without harm to others; a handler that
raises lets the user's request pass, with a warning; certificates change without a lost connection. Not
guaranteed: that an API server calls at all - its webhook configuration decides, and its failure policy.

`server` listens, `app` answers, `review` is the wire, `certificates` and `selfsigned` are where TLS comes from.
"""
