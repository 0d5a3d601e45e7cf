"""Reports of load experiments: a page for each run.

| module | what it knows |
|---|---|
| `recorded` | a run's folder as it was left |
| `series` | rows to values over time: percentiles, rates, what processes used |
| `figures` | a run in figures |
| `charts` | what a chart shows, without saying how it is drawn; its CSV |
| `run_charts` | which charts a run has |
| `drawing`, `colours` | charts as SVG and PNG, by matplotlib |
| `words` | numbers and verdicts for people |
| `html` | pages and tables; everything is escaped here |
| `page` | the page of a run, with its charts as files |

A page needs no network and no other file. It is made from the samples of a run where there are any, not from buckets
of histograms, and from whatever a run has left: one that was killed has a page as well.
"""
