"""Complete controllers built with kubeshard: the webhosting operator and the checksum controller.

They have the same API, names, labels, owned objects and metrics as the Go project's examples, so that either can
replace the other and measurements compare like with like.
"""
