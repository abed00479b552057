# Set-up, demo and tests of custody. `make` alone lists what there is.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

BIN := .venv/bin
STAMP := .venv/custody.stamp
# Must be the options that requirements.lock was made with.
LOCK_OPTIONS := --all-extras --universal --python-version 3.11 --generate-hashes --no-header --no-annotate
# One worker more than cores, for those that wait for an Airflow leave theirs idle; four at most: each may start a Spark.
WORKERS := $(shell cores=$$(getconf _NPROCESSORS_ONLN); echo $$((cores < 3 ? cores + 1 : 4)))
PARALLEL := -n $(WORKERS) --dist loadscope --no-loadscope-reorder
# Classes of an old protoc run on every later protobuf, those of a new one on none before it, which other packages may ask for.
PROTOC := grpcio-tools==1.62.3
# Hundreds of Pythons start in a run of the tests. Each compiles what it imports, Airflow and the tests above all, unless
# the first one may keep the result: images often forbid it.
unexport PYTHONDONTWRITEBYTECODE
SPELLED := $(wildcard *.md .ci benchmarks dags docs include plugins soak spark_jobs tests Dockerfile Makefile)

.PHONY: help env pages demo stop test lint types unit slow ui soak bench proto lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

env: $(STAMP) ## make .venv with all that is needed (PYTHON=... names another Python)

$(STAMP): pyproject.toml requirements.lock .ci/environment .ci/uv
	@rm -f $@
	@.ci/environment $(PYTHON)
	@touch $@

pages: env ## build the pages for browsers, with Node from PyPI and packages from npm's registry
	@$(BIN)/python -m custody_pages.build

demo: env ## run the demo (REPO=folder uses a repository of yours, UI=1 leaves Airflow open, DATABASE=url)
	@$(BIN)/python -m custody_pages.build --if-possible
	@$(BIN)/python -m custody_local.demo $(if $(REPO),--repository "$(REPO)") $(if $(UI),--ui) \
		$(if $(DATABASE),--database "$(DATABASE)")

stop: env ## stop the Airflow that the demo left open with UI=1
	@$(BIN)/python -m custody_local.demo --stop

test: env lint ## all checks and all tests, with real Spark and real Airflow; CUSTODY_TEST_SEED=... names other crashes
	@.ci/beside types $(BIN)/pytest $(PARALLEL) --durations=40 --durations-min=8

lint: env ## style, import contracts, spelling, containers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/hadolint --failure-threshold warning Dockerfile
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.override.yml
	$(BIN)/codespell --skip '*_pb2.py*,*/__pycache__/*,*.jars,*/custody_pages/built/*,*/package-lock.json' $(SPELLED)

types: env ## type check
	$(BIN)/mypy

unit: env ## the tests that start neither Spark nor Airflow
	$(BIN)/pytest $(PARALLEL) -m "not spark and not airflow and not slow and not benchmark"

slow: env ## the long tests: crashes at every operation in every mode, killed Airflows, a week's backfill, a browser
	CUSTODY_TEST_SEED=all $(BIN)/pytest -m "slow or in_parts"

ui: env ## the pages and Airflow's in the system's Chromium, on the system's PostgreSQL; renews the pictures in docs/images
	$(BIN)/pytest -m slow tests/airflow/test_page.py tests/airflow/test_pages_in_airflow.py tests/pages

soak: env ## thirty minutes of everything at once, with random kills; writes docs/soak.md
	PYTHONPATH=include $(BIN)/python -m soak

bench: env ## acknowledged events a second beside NiFi, SQLite and the raw disk (ten minutes)
	PYTHONPATH=include $(BIN)/python -m benchmarks.append

proto: env ## make the protobuf classes of the catalog and of the gRPC service from their .proto
	.ci/uv run --quiet --isolated --no-project --with '$(PROTOC)' --with 'setuptools<81' \
		python -W ignore -m grpc_tools.protoc -Iinclude --python_out=include --pyi_out=include \
		custody/catalog/transaction.proto custody/serving/provenance.proto

lock: env ## resolve requirements.lock anew from pyproject.toml
	.ci/uv pip compile pyproject.toml $(LOCK_OPTIONS) --upgrade --output-file requirements.lock

clean: ## remove what the targets above have made, the demo's state included
	rm -rf .venv .local include/custody_pages/built build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find benchmarks dags include plugins soak spark_jobs tests -name __pycache__ -prune -exec rm -rf {} +
