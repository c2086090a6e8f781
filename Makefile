# What one does with this repository. The environment is made by `make setup`.
PYTHON ?= python3
BIN := .venv/bin
export PYTHONUTF8 = 1

.DEFAULT_GOAL := help
.PHONY: help setup check test test-slow e2e docs bench format release

help: ## print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "%-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## make .venv with what is pinned in requirements/dev.txt
	@line=$$($(PYTHON) .ci/readme.py tests) && $(PYTHON) -c 'import sys; print(sys.argv[1].rpartition(" && ")[0])' "$$line" | sh -e

check: ## lint, types, imports, line budgets, fast tests of what differs from main (or AGAINST=...): a minute at most
	@$(BIN)/python .ci/check.py $(AGAINST)

test: ## all tests but the slow ones
	$(BIN)/pytest -n auto -m "not slow" tests

test-slow: ## the slow tests: processes killed at any moment, every benchmark on little data
	$(BIN)/pytest -n auto -m slow --hypothesis-profile=thorough tests

e2e: ## the tests with the real Claude Code and a model that is played (see tests/e2e/README.md)
	CRYSTAL_E2E=1 $(BIN)/pytest -n auto -m e2e tests/e2e

docs: ## write the generated pages anew, then run every code block and follow every link
	for page in docs/generate_*.py; do $(BIN)/python $$page || exit 1; done
	.ci/docs

bench: ## three short measurements: the hook, a search, a turn (benchmarks/README.md has the others)
	$(BIN)/python benchmarks/hook_latency.py 10
	$(BIN)/python benchmarks/search.py --sizes 10000 --wide --command --runs 3 --queries 10
	$(BIN)/python benchmarks/worker_cost.py --runs 3

format: ## let ruff format the code and mend what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

release: ## build twice, compare, write checksums into dist/ (.ci/release)
	.ci/release
