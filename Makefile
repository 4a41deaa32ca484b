# make demo   train, evaluate and map the embedded Indian Pines scene
# make test   all tests          make check  lint and types
# make bench  speed, as ratios   make setup  only make the environment
# make demo-serve   label and map that scene in a browser      make bench-serve   how fast that is
# make qgis-plugin  the archive that QGIS installs   make test-qgis  tests in QGIS itself
# make docs   the documentation as a site, in build/docs; runs its notebooks
# make dist   source distribution and wheel, in dist; installs and runs each
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.up-to-date
DEMO := runs/demo
# The page of hypercaps serve: installing bundles it, and make check looks at its sources where npm is.
PAGE := src/hypercaps/workbench/frontend
PAGE_SOURCES := $(addprefix $(PAGE)/,package.json package-lock.json build.mjs index.html icon.svg style.css) $(wildcard $(PAGE)/src/*.ts)
PAGE_TOOLS := $(PAGE)/node_modules/.package-lock.json

.PHONY: setup tools demo demo-serve test check check-page docs bench bench-serve results qgis-plugin test-qgis dist clean

# Byte code is written as pip does for other installations: where Python may not write it, every start would compile
# the sources again.
setup: $(STAMP)
	@$(BIN)/python -m compileall -q src

# Exact versions come from constraints.txt; the stamp is only made when every install step succeeded.
$(STAMP): pyproject.toml constraints.txt hatch_build.py src/hypercaps/compute/native/kernels.c $(PAGE_SOURCES)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: setup
	$(BIN)/hypercaps train indian-pines --out $(DEMO) --force

demo-serve: setup
	$(BIN)/hypercaps serve --project $(DEMO).hypercaps

# Tests look at what hypercaps writes with programs that share nothing with it, and run the kernels for ARM in an
# emulator; without Debian's packages they skip that.
TOOLS := gdalinfo:gdal-bin chromium:chromium qemu-aarch64:qemu-user aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu \
  /usr/aarch64-linux-gnu/include/stdio.h:libc6-dev-arm64-cross

tools:
	@for tool in $(TOOLS); do \
	  command -v $${tool%%:*} >/dev/null || [ -e $${tool%%:*} ] || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	    { apt-get install -y -qq $${tool##*:} || { apt-get update -qq && apt-get install -y -qq $${tool##*:}; }; } >/dev/null 2>&1; } || \
	    echo "$${tool%%:*} is not here and can't be installed: tests that need it are skipped"; \
	done

test: setup tools
	@command -v npm >/dev/null && $(MAKE) --no-print-directory $(PAGE_TOOLS) || echo "npm is not here: accessibility of the page is not tested"
	$(BIN)/python -m pytest -n 2 --dist loadgroup

LINTED := src tests benchmarks qgis release hatch_build.py docs/conf.py docs/_ext

check: setup
	$(BIN)/ruff check $(LINTED)
	$(BIN)/ruff format --check $(LINTED)
	$(BIN)/mypy
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory check-page; else echo "npm is not here: the page's sources are not checked"; fi

check-page: $(PAGE_TOOLS)
	cd $(PAGE) && npm run --silent check && npm run --silent test

$(PAGE_TOOLS): $(PAGE)/package-lock.json
	cd $(PAGE) && npm ci --ignore-scripts --no-audit --no-fund --silent
	touch $@

# Warnings are errors: a link that leads nowhere, a page that is in no list, a notebook or an example that fails.
docs: $(VENV)/.docs-up-to-date
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs
	@echo "the site is in build/docs/index.html"

$(VENV)/.docs-up-to-date: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

# The wheel is built from the source distribution, as pip does where there is no wheel.
dist: setup
	rm -f dist/hypercaps-*.whl dist/hypercaps-*.tar.gz
	$(BIN)/python -m build --outdir dist
	$(BIN)/python release/check_dist.py dist

bench: setup
	$(BIN)/python benchmarks/run.py $(if $(QUICK),--quick)

bench-serve: setup tools
	@command -v npm >/dev/null && $(MAKE) --no-print-directory $(PAGE_TOOLS) || echo "npm is not here: accessibility of the page is not measured"
	$(BIN)/python benchmarks/serve.py $(if $(QUICK),--quick)

# What docs/results/ shows: hours on two cores, less those of the runs whose records are in docs/results/runs. It says how
# long it will take, can be stopped and continues where it was.
results: setup
	$(BIN)/python benchmarks/publish_results.py --start
	$(BIN)/hypercaps study benchmarks/studies/indian-pines.toml --out studies/results --workers 2
	$(BIN)/hypercaps study benchmarks/studies/fewer-labels.toml --out studies/results --workers 2
	$(BIN)/hypercaps study benchmarks/studies/small-scenes.toml --out studies/results --workers 2
	$(BIN)/python benchmarks/publish_results.py

qgis-plugin:
	$(PYTHON) qgis/build_plugin.py

# QGIS comes from Debian. Where it is not there and can't be installed, nothing is tested.
test-qgis: setup
	@command -v qgis_process >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  { apt-get install -y -qq --no-install-recommends qgis python3-qgis || \
	    { apt-get update -qq && apt-get install -y -qq --no-install-recommends qgis python3-qgis; }; } >/dev/null 2>&1; } || true
	@if command -v qgis_process >/dev/null; then \
	  HYPERCAPS_TEST_QGIS=1 $(BIN)/python -m pytest -n 0 tests/qgis/test_in_qgis.py; \
	else echo "QGIS is not here and can't be installed: the tests in QGIS are skipped"; fi

clean:
	rm -rf $(VENV) runs build dist .pytest_cache .mypy_cache .ruff_cache
