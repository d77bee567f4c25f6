# `make serve` starts the server with the built-in model, `make test` runs every check.
# Variables: VENV, PYTHON, HOST, PORT, ARGS (for adapter.serve), PYTEST_ARGS.

VENV ?= .venv
# The first that really runs: a version manager may have a python3.11 that only prints an error.
PYTHON ?= $(shell for python in python3.11 python3; do \
	if $$python -c '' 2>/dev/null; then echo $$python; break; fi; done)
HOST ?= 127.0.0.1
PORT ?= 8000
ARGS ?=
PYTEST_ARGS ?=

RUN := $(VENV)/bin/python -m
# A stamp stands for a complete installation, and is older than pyproject.toml when that changed.
ENV_STAMP := $(VENV)/.installed-cpu
DEV_STAMP := $(VENV)/.installed-cpu-dev
SETUP_INPUTS := pyproject.toml .ci/setup-env.sh

define CURL_EXAMPLE
curl http://$(HOST):$(PORT)/v2/completions -H 'Content-Type: application/json' -d '{"model": "smollm2-135m-instruct", "prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}'
endef
export CURL_EXAMPLE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help serve test lint types unit live bench env env-dev clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

serve: env ## start the server with the built-in model (ARGS="..." are flags of vllm serve)
	@echo "==> Starting the server on http://$(HOST):$(PORT). The first start also downloads the"
	@echo "    built-in model. When it says \"Application startup complete\", ask it:"
	@printf '%s\n' "$$CURL_EXAMPLE"
	$(RUN) adapter.serve --host $(HOST) --port $(PORT) $(ARGS)

test: env-dev lint types ## every check: lint, types, all tests (live ones included)
	$(RUN) pytest $(PYTEST_ARGS)

lint: env-dev ## ruff's rules and formatting
	$(RUN) ruff check .
	$(RUN) ruff format --check .

types: env-dev ## mypy, strict
	$(RUN) mypy --strict adapter benchmarks tests

unit: env-dev ## only the tests that do without vLLM (seconds)
	$(RUN) pytest -m "not live" $(PYTEST_ARGS)

live: env-dev ## only the tests with real weights or a running server (minutes)
	$(RUN) pytest -m live $(PYTEST_ARGS)

bench: env-dev ## a small version of every benchmark, and a report of it (minutes)
	$(RUN) benchmarks.everything

env: $(ENV_STAMP) ## the virtual environment to serve from

env-dev: $(DEV_STAMP) ## the same with the tools for the checks

$(ENV_STAMP): $(SETUP_INPUTS)
	@rm -f $(ENV_STAMP) $(DEV_STAMP)
	@sh .ci/setup-env.sh "$(VENV)" "$(PYTHON)" cpu
	@touch $(ENV_STAMP)

$(DEV_STAMP): $(SETUP_INPUTS)
	@rm -f $(ENV_STAMP) $(DEV_STAMP)
	@sh .ci/setup-env.sh "$(VENV)" "$(PYTHON)" cpu,dev
	@touch $(ENV_STAMP) $(DEV_STAMP)

clean: ## remove the virtual environment, caches and build outputs (not the cached model)
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find adapter tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
	@# VENV may be anything: only what is a virtual environment is removed.
	if [ -f "$(VENV)/pyvenv.cfg" ]; then rm -rf "$(VENV)"; fi
