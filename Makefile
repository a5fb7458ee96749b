# `make help` lists the targets. Everything is installed into $(VENV), nothing outside this folder.

VENV ?= .venv
# The first of these that is a Python >= 3.11; `make study PYTHON=/path/to/python` decides otherwise.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
# Where to find PyTorch first. Without an NVIDIA GPU, https://download.pytorch.org/whl/cpu saves gigabytes.
TORCH_INDEX ?=
# Which TensorFlow joins it: its CPU build where there is no NVIDIA driver; `tensorflow-gpu` brings gigabytes and is asked for by name.
TENSORFLOW ?= $(if $(wildcard /proc/driver/nvidia/version),,tensorflow-cpu)

# Whether every file that is installed must have a hash that locks/ names.
HASHES ?= yes

BIN := $(VENV)/bin
READY := $(VENV)/.installed
LAB := $(VENV)/.installed-lab
TOOLS := build/tools/.installed
STRIP := $(BIN)/nbstripout --keep-id --extra-keys "metadata.papermill metadata.language_info cell.metadata.papermill cell.metadata.execution"
NOTEBOOKS := $(sort $(wildcard notebooks/*.ipynb))

# A launch starts many processes that import a framework. Where the caller forbids byte code, as many container images do, each of them
# would compile the whole framework again: installing leaves that to the first import.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help study test jobs gpu-test fuzz soak lint format report browser lab clean lock audit

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "Without an NVIDIA GPU:  make study TORCH_INDEX=https://download.pytorch.org/whl/cpu"

study: $(READY) ## measure the default grid on this machine, execute the notebooks, build the report
	@$(BIN)/python -m multigpu study

# Tests marked alone compare times of real Runs. What fails gets a second try with nothing beside it, and only that counts: three workers on
# two cores, or another process, may have taken the time that a Run needed. What is wrong fails twice.
PYTEST = $(BIN)/python -m pytest -q
BESIDE = $(PYTEST) -n 3 --dist loadfile --no-loadscope-reorder
AGAIN = --last-failed --last-failed-no-failures none
ALONE = $$(grep -rl --include='test_*.py' 'mark\.alone' tests)
test: $(READY) ## every kind of test: of many cases of one kind the few that show each feature
	@$(BESIDE) -m "not alone and not further" || $(PYTEST) $(AGAIN) -m "not alone and not further"; others=$$?; \
		$(PYTEST) -m "alone and not further" $(ALONE) || $(PYTEST) $(AGAIN) -m "alone and not further" $(ALONE) && exit $$others

# What make test leaves out of many cases of a kind: those marked further, which with this variable are also all users' jobs.
jobs: export MULTIGPU_JOBS = all
jobs: $(READY) ## the further cases of each kind: every job, hang, placement and page that make test leaves out
	@$(BESIDE) -m "further and not alone" || $(PYTEST) $(AGAIN) -m "further and not alone"; others=$$?; \
		$(PYTEST) -m "further and alone" $(ALONE) || $(PYTEST) $(AGAIN) -m "further and alone" $(ALONE) && exit $$others

# A rank a GPU, beside each other: data, sharded, tensor and pipeline parallel in every form, and `wrap`. Then what one process tests.
GPUS ?= $(shell $(BIN)/python -c 'from multigpu.machine.machine import gpu_count; print(min(2, gpu_count()))')
# each with processes of its own: NCCL does not make a second group under torchrun's first address
OF_RANKS = tests/multigpu/engines/test_forms_gpu.py tests/multigpu/user_model/test_wrap_gpu.py tests/multigpu/user_model/test_own_update_gpu.py
RANKS = $(BIN)/torchrun --nproc-per-node $(GPUS) -m pytest -q -c /dev/null --noconftest -p no:cacheprovider -m "not further"
gpu-test: $(READY) ## on GPUs, two where there are (at most two minutes is the goal): placements in every form, kernels, `wrap`
	@test "$(GPUS)" != 0 || { echo "gpu-test needs an NVIDIA GPU, and this machine has none: make test tests on CPUs." >&2; exit 2; }
	@set -e; for file in $(OF_RANKS); do $(RANKS) $$file; done
	@$(PYTEST) -n 0 -m "gpu and not slow" tests/multigpu/kernels tests/multigpu/engines/test_dispatch.py tests/multigpu/workloads

# Each test of tests/multigpu/fuzz tries so many times its usual number of examples, other ones in every call.
FUZZ ?= 200
fuzz: $(READY) ## an hour of odd fields, command lines, files and models (FUZZ=400: two hours)
	@MULTIGPU_FUZZ=$(FUZZ) $(PYTEST) --timeout 0 tests/multigpu/fuzz

soak: $(READY) ## 1,000 tiny Runs on CPUs, a random process killed every 20, 5 that hang, 5 without memory; about half an hour
	@$(BIN)/python benchmarks/soak.py --hangs 5 --short 5 --out build/soak.csv

lint: $(READY) ## check format, style and types, and that notebooks carry no outputs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(if $(NOTEBOOKS),$(STRIP) --verify $(NOTEBOOKS))

format: $(READY) ## format code and notebooks, drop the notebooks' outputs
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .
	$(if $(NOTEBOOKS),$(STRIP) $(NOTEBOOKS))

report: $(READY) ## build the report from the Records there are; measure nothing (PUBLISH=1: the published one)
	@$(BIN)/python -m multigpu report $(if $(PARAMETERS),--parameters $(PARAMETERS)) $(if $(PUBLISH),--publish)

browser: $(READY) ## drive the built report in Chromium, at two widths: needs `make report` and a browser (CHROMIUM=PATH)
	@$(PYTEST) --timeout 300 tests/browser

# Its settings ask nobody about news, and show notes as they read.
lab: $(LAB) ## open a page of three notebooks in JupyterLab
	@$(BIN)/python -m jupyter lab --notebook-dir=. --LabApp.default_url=/lab/tree/notebooks/start.md \
		--LabApp.app_settings_dir=$(CURDIR)/notebooks/lab $(if $(filter 0,$(shell id -u)),--allow-root)

# Tools that read packages and are none of the study's, in an environment of their own.
$(TOOLS): locks/tools.txt
	@$(PYTHON) -m venv --clear build/tools
	@build/tools/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r locks/tools.txt
	@touch $@

# WHEELS names a folder that holds the CPU build of PyTorch, where its index cannot be reached.
lock: $(TOOLS) $(READY) ## after a change of constraints.txt: versions, hashes and licences of all packages, into locks/
	@PATH=$(CURDIR)/build/tools/bin:$$PATH build/tools/bin/python locks/update.py --environment $(VENV) $(if $(WHEELS),--find-links $(WHEELS))

audit: $(TOOLS) ## look locked packages up among known vulnerabilities (needs the network)
	@build/tools/bin/python locks/audit.py

clean: ## remove what was built and every cache; Records, figures and the environment stay
	rm -rf build .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find src tests notebooks report -name __pycache__ -prune -exec rm -rf {} + -o -name .ipynb_checkpoints -prune -exec rm -rf {} +

# The environment. The stamp is newer than what decides its content, or the environment is brought up to date.
$(READY): pyproject.toml constraints.txt locks/install.sh $(wildcard locks/*.txt)
	@test -n "$(PYTHON)" || { echo "No Python >= 3.11 was found: install one, or name it with PYTHON=/path/to/python." >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "PYTHON=$(PYTHON) is $$($(PYTHON) --version 2>&1): Python 3.11 or later is needed." >&2; exit 2; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || { \
		echo "$(PYTHON) cannot create an environment in $(VENV): on Debian and Ubuntu, apt-get install python3-venv." >&2; exit 2; }
	@echo "Installing into $(VENV); this takes a few minutes, once."
	@sh locks/install.sh $(BIN)/python "$(TENSORFLOW)" "$(TORCH_INDEX)" $(HASHES)
	@touch $@

$(LAB): $(READY)
	$(BIN)/python -m pip --disable-pip-version-check install --no-compile --require-hashes --no-deps -r locks/lab.txt
	@touch $@
