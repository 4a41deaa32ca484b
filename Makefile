# make demo   train, evaluate and map the embedded Indian Pines scene
# make test   all tests          make check  lint and types
# make bench  speed, as ratios   make setup  only make the environment
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.up-to-date
DEMO := runs/demo

.PHONY: setup tools demo test check bench results clean

setup: $(STAMP)

# Exact versions come from constraints.txt; the stamp is only made when every install step succeeded.
$(STAMP): pyproject.toml constraints.txt hatch_build.py src/hypercaps/compute/native/kernels.c
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: setup
	$(BIN)/hypercaps train indian-pines --out $(DEMO) --force

# Tests look at what hypercaps writes with programs that share nothing with it; without Debian's packages they skip that.
tools:
	@for tool in gdalinfo:gdal-bin chromium:chromium; do \
	  command -v $${tool%%:*} >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	    { apt-get install -y -qq $${tool##*:} || { apt-get update -qq && apt-get install -y -qq $${tool##*:}; }; } >/dev/null 2>&1; } || \
	    echo "$${tool%%:*} is not here and can't be installed: tests that need it are skipped"; \
	done

test: setup tools
	$(BIN)/python -m pytest -n 2 --dist loadgroup

check: setup
	$(BIN)/ruff check src tests benchmarks hatch_build.py
	$(BIN)/ruff format --check src tests benchmarks hatch_build.py
	$(BIN)/mypy

bench: setup
	$(BIN)/python benchmarks/run.py $(if $(QUICK),--quick)

# What docs/results/ shows: hours on two cores. It can be stopped and goes on where it was.
results: setup
	$(BIN)/hypercaps study benchmarks/studies/indian-pines.toml --out studies/results --workers 2
	$(BIN)/hypercaps study benchmarks/studies/small-scenes.toml --out studies/results --workers 2

clean:
	rm -rf $(VENV) runs build dist .pytest_cache .mypy_cache .ruff_cache
