# Everything a user or developer types. Each target does all the set-up it needs.
#   make demo    a small Llama captured twice, once with a planted fault, and compared
#   make test    all tests: C++, Python, command line
#   make check   the fast tests only (a developer's loop)
#   make bench   the measurements of docs/benchmarks.md; RIVALS=1 adds other people's tools
#   make lint    format, lint, type and include-direction checks
#   make engines   llama-cpp-python, compiled: its tests are skipped without it
#   make asan tsan fuzz wheels smoke clean
.PHONY: demo test check bench lint format asan tsan fuzz wheels smoke setup engines install clean

SHELL := /bin/bash
VENV := $(CURDIR)/.venv
PY := $(VENV)/bin/python
BUILD := build/release
STAMP := $(BUILD)/installed.stamp
SOURCES := $(shell find src python compat cmake tests/support CMakeLists.txt pyproject.toml -type f -not -path '*/__pycache__/*' -not -path '*.egg-info/*' 2>/dev/null)
PIP_INSTALL := $(VENV)/bin/pip install -q --disable-pip-version-check --no-deps --no-build-isolation --force-reinstall
# The same in all builds, or the compiler's cache would not serve the wheels.
WARNINGS := ASSAY_WERROR=$(if $(CI),ON,OFF)
# Two compilers at once: the link of a test program and a vector kernel together stay within 2 GB.
export CMAKE_BUILD_PARALLEL_LEVEL ?= 2
export CCACHE_NOHASHDIR := 1
export CCACHE_BASEDIR := $(CURDIR)
# The tools and tests call the commands of the environment by name.
export PATH := $(VENV)/bin:$(PATH)

setup:
	@tools/setup.sh

engines: setup
	@tools/build_llama_cpp.sh

install: setup $(STAMP)

$(STAMP): $(SOURCES) requirements-dev.txt requirements-engines.txt | setup
	@echo "build: compiling and installing into .venv (the first time takes a few minutes)"
	@ASSAY_BUILD_TESTS=ON $(WARNINGS) $(PIP_INSTALL) -C build-dir=$(BUILD) . 2> >(grep -v '^WARNING: Location' >&2)
	@$(PIP_INSTALL) ./compat 2> >(grep -v '^WARNING: Location' >&2)
	@touch $@

demo: install
	@$(PY) examples/demo.py

test: install
	ctest --test-dir $(BUILD) --output-on-failure -j 2
	$(PY) -m pytest -n 2

check: install
	ctest --test-dir $(BUILD) --output-on-failure -j 2
	$(PY) -m pytest -n 2 -m "not slow"

bench: install
	cmake -S . -B build/bench -G Ninja -DCMAKE_BUILD_TYPE=Release -DASSAY_BUILD_BENCH=ON -DASSAY_BUILD_TESTS=OFF >/dev/null
	cmake --build build/bench
	$(PY) bench/run.py $(if $(RIVALS),--rivals)

lint:
	@tools/setup.sh --lint
	$(PY) tools/check_includes.py
	git ls-files '*.cpp' '*.hpp' '*.h' | xargs clang-format-19 --dry-run -Werror
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	codespell --config tools/codespell.cfg $$(git ls-files '*.md' '*.py' '*.cpp' '*.hpp' '*.sh')

format:
	git ls-files '*.cpp' '*.hpp' '*.h' | xargs clang-format-19 -i
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

asan: setup
	cmake --preset asan >/dev/null
	cmake --build build/asan
	ctest --test-dir build/asan --output-on-failure -j 2

# The modules that start threads: a data race cannot be elsewhere.
THREADED := base writer capture reference run compare opcheck locate
tsan: setup
	cmake --preset tsan >/dev/null
	cmake --build build/tsan --target $(addsuffix _test,$(THREADED))
	ctest --test-dir build/tsan --output-on-failure -j 2 -E '_NOT_BUILT|_replay$$'

# A few seconds for every reader; SECONDS_EACH=600 for a real search.
SECONDS_EACH ?= 5
fuzz:
	@tools/setup.sh --lint
	cmake --preset fuzz >/dev/null
	cmake --build build/fuzz --target fuzzers
	tools/run_fuzzers.sh build/fuzz $(SECONDS_EACH)

wheels: setup
	rm -rf dist
	$(WARNINGS) $(VENV)/bin/pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation -C build-dir=build/wheel -w dist . ./compat 2> >(grep -v '^WARNING: Location' >&2)
	@ls dist

smoke: wheels
	$(PY) tools/smoke_test.py dist

clean:
	rm -rf build dist .venv demo-output
