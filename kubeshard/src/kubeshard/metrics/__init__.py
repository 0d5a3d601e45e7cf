"""The metrics of kubeshard's programs, each declared once: name, type, labels, what exposes it, and its meaning.

What counts takes its families from here (`families`), and rules, dashboards and docs/metrics.md are rendered from here
(`kubeshard.monitoring`). Guaranteed: a name that is not declared, or is declared with another type, raises when the
program starts or is scraped. The declarations themselves import nothing.
"""
