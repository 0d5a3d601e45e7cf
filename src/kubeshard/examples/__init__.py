"""Complete controllers built with kubeshard: the webhosting operator and the checksum controller.

They keep API, names, labels, owned objects and metrics of the reference's examples, so that either can
replace the other and side-by-side measurements compare like with like.
"""
