"""The commands of `kubeshard` that try operators and rings out: simulate, experiment, measure, report."""
