"""`kubeshard measure`: queries of a file, answered by a Prometheus, written as CSV, and compared with their limits.

`queries` is the file, `prometheus` the server, `answers` what it says, also as CSV, `measurement` all of it in
order; `standard_queries` are the queries that come with kubeshard. File format and CSV are those of the Go project's
tool. Not guaranteed: that a Prometheus has the series; a query without an answer is a failure, unless it is optional.
"""
