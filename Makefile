# Everything from a fresh clone, with nothing but Python 3.11 or newer and make.
#
#   make train    set up .venv, install hmx at pinned versions, train an agent on HackMatrix
#   make test     the same set-up plus the test tools, then the tests
#   make test-optimised   all tests, compiled as users compile; before a release and with a new version of JAX
#   make test-extras   the tests of optional extras, in .venv-extras with these installed
#   make test-lowest   a part of the tests with the lowest versions that pyproject.toml allows, in .venv-lowest
#   make test-slurm   the tests that submit jobs, on a machine with a running SLURM
#   make check    what CI runs: lint, format, types, layers, generated docs, documentation site, tests
#   make docs     regenerate man pages, completions and the reference pages
#   make site     build the documentation site in site/
#   make clean    remove .venv, .venv-extras, .venv-lowest, site and caches; runs/ stays
#
# Variables: PYTHON (interpreter to build the environment with), VENV and VENV_EXTRAS (where they go),
# ARGS (more options for `make train`, `make test` or `make test-extras`), WORKERS (processes that run tests; each takes up
# to 3 GB), PINS (the file of pinned versions; empty for the newest versions, as in `make test PINS= VENV=.venv-newest`).

VENV ?= .venv
VENV_EXTRAS ?= .venv-extras
VENV_LOWEST ?= .venv-lowest
PYTHON ?= python3
ARGS ?=
WORKERS ?= 2
PINS ?= constraints.txt
BIN := $(VENV)/bin
PINNED := $(if $(PINS),--constraint $(PINS)) --editable
EXTRAS := gymnasium,gymnax,brax,playground,smax,craftax,navix,xminigrid,jumanji,tensorboard,stablehlo,onnx,board,study,hub,test,test-extras
INSTALLED := $(VENV)/.installed
INSTALLED_TEST := $(VENV)/.installed-test
FILES := $(wildcard hmx tests tools benchmarks examples)

# Tests start hundreds of processes; without bytecode files, each would compile the source again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install train test test-most test-long-runs test-marked-optimised test-optimised test-extras test-lowest check static lint format types layers docs docs-current site site-current constraints clean

# Install into the environment $(1) what $(2) says. uv takes seconds, but does not read the settings of pip, such as a mirror:
# where uv fails, pip installs.
define install
	@$(1)/bin/python -m pip -q --disable-pip-version-check install uv && \
	$(1)/bin/uv pip install --python $(1)/bin/python $(2) || \
	$(1)/bin/python -m pip --disable-pip-version-check install $(2)
endef

help:
	@sed -n 's/^#   //p' Makefile

$(VENV)/.created:
	@PYTHON="$(PYTHON)" sh tools/make-venv.sh "$(VENV)"
	@touch $@

$(INSTALLED): $(VENV)/.created pyproject.toml $(PINS)
	@echo "Installing hmx and its dependencies into $(VENV) (a few minutes the first time) ..."
	$(call install,$(VENV),$(PINNED) .)
	@touch $@
	@echo "Installed. The command is $(BIN)/hmx"

$(INSTALLED_TEST): $(VENV)/.created pyproject.toml $(PINS)
	@echo "Installing hmx, its dependencies and the test tools into $(VENV) (a few minutes the first time) ..."
	$(call install,$(VENV),$(PINNED) '.[test]')
	@touch $(INSTALLED) $@

install: $(INSTALLED)

train: $(INSTALLED)
	@echo "Training: $(BIN)/hmx train --preset gumbel $(ARGS)"
	@$(BIN)/hmx train --preset gumbel $(ARGS)

test: test-most test-long-runs test-marked-optimised

test-most: $(INSTALLED_TEST)
	@echo "Testing, with $(WORKERS) processes ..."
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

test-long-runs: $(INSTALLED_TEST)
	@echo "Testing what runs for longer than it compiles ..."
	@$(BIN)/python -m pytest --only-long-runs $(ARGS) || test $$? -eq 5

test-marked-optimised: $(INSTALLED_TEST)
	@echo "Testing what must be compiled as users compile ..."
	@XLA_FLAGS= $(BIN)/python -m pytest --only-optimised $(ARGS) || test $$? -eq 5

test-optimised: $(INSTALLED_TEST)
	@echo "Testing, compiled as users compile ..."
	@XLA_FLAGS= $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

$(VENV_EXTRAS)/.created:
	@PYTHON="$(PYTHON)" sh tools/make-venv.sh "$(VENV_EXTRAS)"
	@touch $@

$(VENV_EXTRAS)/.installed: $(VENV_EXTRAS)/.created pyproject.toml $(PINS)
	@echo "Installing hmx, its extras and the test tools into $(VENV_EXTRAS) (a few minutes the first time) ..."
	$(call install,$(VENV_EXTRAS),$(PINNED) '.[$(EXTRAS)]')
	@touch $@

test-extras: $(VENV_EXTRAS)/.installed
	@echo "Testing: what needs an extra ..."
	@$(VENV_EXTRAS)/bin/python -m pytest tests/extras $(ARGS)
	@XLA_FLAGS= $(VENV_EXTRAS)/bin/python -m pytest tests/extras --only-optimised $(ARGS)

$(VENV_LOWEST)/.created:
	@PYTHON="$(PYTHON)" sh tools/make-venv.sh "$(VENV_LOWEST)"
	@touch $@

$(VENV_LOWEST)/.installed: $(VENV_LOWEST)/.created pyproject.toml
	@echo "Installing the lowest versions into $(VENV_LOWEST) (a few minutes the first time) ..."
	@$(VENV_LOWEST)/bin/python -m pip -q --disable-pip-version-check install uv
	@$(VENV_LOWEST)/bin/uv pip install --python $(VENV_LOWEST)/bin/python --resolution lowest-direct --editable .
	@$(VENV_LOWEST)/bin/uv pip install --python $(VENV_LOWEST)/bin/python --editable '.[test]'
	@touch $@

LOWEST := tests/config tests/records tests/stats tests/render tests/cli/test_hello.py tests/jobs/test_train_job.py tests/jobs/test_resume_job.py

test-lowest: $(VENV_LOWEST)/.installed
	@echo "Testing with the lowest versions ..."
	@$(VENV_LOWEST)/bin/python -m pytest -n $(WORKERS) --dist worksteal $(LOWEST) $(ARGS)

test-slurm: $(INSTALLED_TEST)
	@echo "Testing on the SLURM of this machine ..."
	@$(BIN)/python -m pytest tests/extras/test_slurm.py --slurm $(ARGS)

check: static test
	@echo "All checks passed."

static: lint types layers docs-current site-current

lint: $(INSTALLED_TEST)
	@echo "Lint and format ..."
	@$(BIN)/ruff check $(FILES)
	@$(BIN)/ruff format --check $(FILES)

format: $(INSTALLED_TEST)
	@$(BIN)/ruff check --fix $(FILES)
	@$(BIN)/ruff format $(FILES)

types: $(INSTALLED_TEST)
	@echo "Types ..."
	@$(BIN)/mypy

layers: $(INSTALLED_TEST)
	@echo "Layers ..."
	@$(BIN)/lint-imports --no-logo

docs: $(INSTALLED)
	@$(BIN)/python tools/docs.py

docs-current: $(INSTALLED_TEST)
	@echo "Generated docs ..."
	@$(BIN)/python tools/docs.py --check

site: $(INSTALLED_TEST)
	@$(BIN)/python tools/site_pages.py

site-current: $(INSTALLED_TEST)
	@echo "Documentation site ..."
	@$(BIN)/python tools/site_pages.py --check

constraints: $(VENV_EXTRAS)/.installed
	@{ grep '^#' constraints.txt; $(VENV_EXTRAS)/bin/uv pip freeze --python $(VENV_EXTRAS)/bin/python --exclude-editable \
	    | grep -Ev '^(pip|setuptools|uv)=='; } > $(VENV_EXTRAS)/pins.txt
	@mv $(VENV_EXTRAS)/pins.txt constraints.txt

clean:
	@echo "Removing $(VENV), $(VENV_EXTRAS), $(VENV_LOWEST), site and caches; runs/ stays."
	@rm -rf "$(VENV)" "$(VENV_EXTRAS)" "$(VENV_LOWEST)" site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find hmx tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
