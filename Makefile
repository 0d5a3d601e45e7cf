# Every target creates what it needs: a machine with Python 3.11 or newer and pip is enough (`make kube` also needs Go).

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
RUNS   := $(VENV)/.runs

# Tests and programs here start hundreds of interpreters: each of them would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

install: $(if $(wildcard $(STAMP)),$(STAMP),$(RUNS)) ## Install the commands into .venv: what they need, and no more

demo: install ## Watch a ring of shards work, grow, crash and recover (ARGS=--real: on a real kube-apiserver, after `make kube`)
	@$(BIN)/kubeshard demo $(ARGS)

# The tiers of docs/testing.md. Each test is in one of them.
QUICK   = (main_job or not (system or long)) and not (kube or interop or go or nightly)
LONG    = long and not (system or main_job) and not (kube or interop or go or nightly)
SYSTEM  = system and not main_job and not (kube or interop or go or nightly)
OUTSIDE = (kube or interop or go) and not nightly
NIGHTLY = nightly and not (kube or interop or go)
LIVE    = nightly and (kube or interop or go)
# Folders without a quick test, which `make test` does not read. Those of tests/house are run by `make lint`.
SLOW    = $(addprefix --ignore=,tests/house kubeshard/tests/install kubeshard/tests/interop kubeshard/tests/kube apiserver/tests/kubectl apiserver/tests/peers)
# Tests of a file run in one process, which creates its fixtures once, and in order, so that slow tests do not come last.
SPREAD  = --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
# Tests whose servers work as much as they do.
PAIRS   = --numprocesses 2 --dist loadfile --no-loadscope-reorder
# Tests that start programs, and wait for them half of the time.
WAITING = --numprocesses 3 --dist loadfile --no-loadscope-reorder

test: $(STAMP) ## Run the tests to run after every change: all parts in process, and the main job end to end
	$(BIN)/pytest -m "$(QUICK)" --kube=embedded $(SLOW) $(SPREAD) $(ARGS)

test-long: $(STAMP) ## Run the tests in process that take long: whole clusters on virtual time
	$(BIN)/pytest -m "$(LONG)" --kube=embedded $(SLOW) $(SPREAD) $(ARGS)

test-system: $(STAMP) ## Run the tests that start programs or wait in real time, on the embedded API server
	$(BIN)/pytest -m "$(SYSTEM)" --kube=embedded $(WAITING) $(ARGS)

test-all: export HYPOTHESIS_PROFILE = gate
test-all: test test-long test-system ## Run what .ci/run does that needs neither Go nor a real kube-apiserver

test-nightly: ## Run everything: what .ci/run leaves out, too (hours)
	.ci/nightly

# Parts of test-nightly that .ci/run leaves out.
test-more: $(STAMP) ## Run the tests that only test-nightly runs: further seeds, rows and scenes
	$(BIN)/pytest -m "$(NIGHTLY)" --kube=embedded $(PAIRS) $(ARGS)

test-more-kube: $(STAMP) kube ## Run those of them that need a real kube-apiserver: the embedded one beside it
	$(BIN)/pytest -m "$(LIVE)" $(PAIRS) $(ARGS)

record: $(STAMP) kube ## Record the answers of a real kube-apiserver to the conformance cases: once per release of Kubernetes, and for new cases (ARGS="-k case")
	$(BIN)/pytest -m kube apiserver/tests/conformance --record $(PAIRS) $(ARGS)

PYTHONS ?= 3.11.2 3.12 3.13
PARTS   ?= $(addprefix kubeshard/tests/,core runtime sharding workqueue crd leases client cache controller manager shard sharder webhook) \
	  apiserver/tests/apiserver
test-pythons: $(STAMP) ## Run the tests of each part on the other Pythons that this machine has; 3.11.2 is the one of Debian 12 and of the image
	$(BIN)/python tools/test_pythons.py $(PYTHONS) -- -m "$(QUICK)" $(SPREAD) --kube=embedded $(PARTS) $(ARGS)

test-lowest: $(STAMP) ## Import everything and run a quick part of the tests with the oldest dependencies that are allowed
	$(BIN)/python tools/test_lowest.py -- -m "$(QUICK)" $(SPREAD) --kube=embedded \
	  $(addprefix kubeshard/tests/,core runtime crd client webhook kubectl) \
	  $(addprefix kubeshard/tests/,cli/test_cli_rbac.py cli/test_cli_types.py manager/test_manager_pages.py manager/test_metric_series.py) \
	  $(addprefix apiserver/tests/apiserver/test_,cel.py apiserver_protobuf.py apiserver_same_bytes.py) $(ARGS)

dist: $(STAMP) ## Make the release artifacts in dist/, and try out the wheels in a new virtual environment, as a user would
	$(BIN)/python tools/make_dist.py

image: $(STAMP) ## Make the container image without Docker, in build/image/ (as root; needs Debian's mmdebstrap and umoci)
	$(BIN)/python tools/make_image.py

test-image: image kube ## Make the image and run its sharder as a container on a real kube-apiserver (as root)
	$(BIN)/python tools/try_image.py

test-kube: $(STAMP) kube ## Run the tests against a real kube-apiserver, one for each of three processes
	$(BIN)/pytest -m "$(OUTSIDE)" $(WAITING) $(ARGS)

corpus: $(STAMP) kube ## Apply the definitions and objects of a folder to the embedded API server and a real one, and print what differs (ARGS=FOLDER)
	$(BIN)/python apiserver/tests/differential/corpus.py $(ARGS)

test-install: $(STAMP) kube ## Install the sharder by kustomize and Helm, run it as installed, upgrade it and roll back (part of test-kube; IMAGE=build/image: as containers of it, as root)
	$(if $(IMAGE),KUBESHARD_IMAGE=$(abspath $(IMAGE)) )$(BIN)/pytest -m "$(OUTSIDE) or $(LIVE)" kubeshard/tests/install kubeshard/tests/manifests kubeshard/tests/kube/test_policies_kube.py -s $(ARGS)

kube: $(STAMP) ## Build etcd, kube-apiserver and friends once (skipped if KUBEBUILDER_ASSETS is set; RELEASE=v1.36.3: those of another release)
	@if [ -n "$$KUBEBUILDER_ASSETS" ]; then echo "using the control plane in $$KUBEBUILDER_ASSETS"; \
	else $(BIN)/python tools/build_control_plane.py $(if $(RELEASE),--release $(RELEASE)); fi

cluster: $(STAMP) kube ## Run an empty cluster until Ctrl-C (ARGS=--pods: with a simulated node that runs pods)
	@$(BIN)/python -m kubeshard_apiserver.testing $(ARGS)

manifests: $(STAMP) ## Generate deploy/, docs/commands.md and the tables of docs/metrics.md again, which are never edited by hand
	$(BIN)/python tools/render_manifests.py

isolation: $(STAMP) ## Write docs/guarantees.md from the table of lab/tests/isolation
	PYTHONPATH=lab/tests/scenes:kubeshard/tests/webhook $(BIN)/python lab/tests/isolation/isolation_page.py

traces: $(STAMP) ## Run the traces of lab/tests/traces on the Go project's protocol and on ours, print what was noticed, and write docs/guarantees.md
	PYTHONPATH=lab/tests/traces $(BIN)/python lab/tests/traces/traces_page.py

chaos: $(STAMP) kube ## Break sharders, shards, API servers, etcd and the network between them on a real control plane (ARGS="--scenario C1 --repeat 10"; --list)
	@PYTHONPATH=kubeshard/tests/chaos $(BIN)/python kubeshard/tests/chaos/chaos_run.py $(ARGS)

types: $(STAMP) kube ## Read the types of the built-in kinds from a real kube-apiserver
	$(BIN)/python tools/learn_types.py
	$(BIN)/python tools/learn_field_numbers.py
	$(BIN)/python tools/learn_kinds.py

lint: $(STAMP) ## Check style, types, the import contract and the rules of the house (tests/house)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q -m "$(QUICK)" tests/house

docs: $(STAMP) ## Build the documentation in build/site/, with the reference from the docstrings
	@NO_MKDOCS_2_WARNING=1 PYTHONPATH=kubeshard/src:apiserver/src:lab/src $(BIN)/mkdocs build --strict && echo "build/site/index.html"

model: $(STAMP) ## Check the model of the protocol with TLC (needs Java and Maven; ARGS=--full: the large configurations too)
	@$(BIN)/python tools/check_model.py $(ARGS)

modules: $(STAMP) ## Count modules and lines of the three distributions
	@$(BIN)/python tools/modules.py $(ARGS)

budget: $(STAMP) ## Count the calls, requests and bytes of every operation, beside tools/budget.toml (ARGS="--functions assign": where they are made; --write: make it the table)
	@$(BIN)/python tools/budget.py $(ARGS)

evaluation: $(STAMP) ## Repeat the published evaluation in about an hour, and write its tables to docs/project/performance.md (ARGS=--full: at full rates)
	$(BIN)/python tools/evaluation.py $(ARGS)

# The benchmarks of one part run in one process. docs/project/performance.md lists the others, which need a control plane and longer.
BENCHMARKS ?= workqueue store informer
bench: $(STAMP) ## Run benchmarks: BENCHMARKS="workqueue store ...", the files of benchmarks/
	@for name in $(BENCHMARKS); do echo "== $$name"; $(BIN)/python benchmarks/$$name.py $(ARGS) || exit 1; done

LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-header --no-annotate --no-emit-package kubeshard --no-emit-package kubeshard-apiserver --no-emit-package kubeshard-lab kubeshard/pyproject.toml
lock: $(STAMP) ## Regenerate requirements.txt, and its subsets for programs and for the image, from the pyproject.toml files
	$(LOCK) apiserver/pyproject.toml lab/pyproject.toml --all-extras --group dev --group docs --output-file requirements.txt
	$(LOCK) apiserver/pyproject.toml lab/pyproject.toml --extra kubectl --extra speed --group build --constraint requirements.txt --output-file requirements-run.txt
	$(LOCK) --extra speed --constraint requirements.txt --output-file requirements-image.txt

MAKE_VENV = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kubeshard needs Python 3.11 or newer: make PYTHON=python3.11 ...")' && \
	{ test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || $(PYTHON) -m venv --without-pip $(VENV); } && \
	{ $(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; }
PIP = $(BIN)/python -m pip --disable-pip-version-check
OURS = $(PIP) install --quiet --no-deps --no-build-isolation --editable ./kubeshard --editable ./apiserver --editable ./lab

# What developers need: 133 packages.
$(STAMP): pyproject.toml kubeshard/pyproject.toml apiserver/pyproject.toml lab/pyproject.toml requirements.txt
	@$(MAKE_VENV)
	@echo "installing the developers' packages into $(VENV): 1 GB, some minutes"
	@$(PIP) install --quiet --require-hashes --requirement requirements.txt
	@$(OURS)
	@touch $@

# What users need, with pip's progress.
$(RUNS): kubeshard/pyproject.toml apiserver/pyproject.toml lab/pyproject.toml requirements-run.txt
	@$(MAKE_VENV)
	@$(PIP) install --no-compile --require-hashes --requirement requirements-run.txt
	@$(OURS)
	@touch $@

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) $(addprefix .venv-,$(PYTHONS) lowest) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist

.PHONY: help demo test test-long test-system test-all test-nightly test-more test-more-kube record test-pythons test-lowest dist image test-image test-kube corpus test-install kube cluster manifests isolation traces chaos types lint model budget docs bench lock install clean
