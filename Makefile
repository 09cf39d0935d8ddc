# Everything a user or developer types. Each target does the set-up it needs, and no more.
#   make demo      a small Llama captured twice, once with a planted fault, and compared
#   make install   the program, the Python packages and examples/atb_host; wheels in dist/
#   make test      all tests: C++, Python, command line; OPTIONS='-k compare' goes to pytest
#   make check     the fast tests only: make test SLOW=0; the slow ones only: make test SLOW=1
#   make unit MODULE=locate FILTER='Walk*'   one module's C++ tests: seconds from an edit to its test
#   make bench     the measurements of docs/benchmarks; RIVALS=1 adds other people's tools
#   make campaign MINUTES=60   what is too long for CI: verdicts, kills, fuzzing; goes on where it stopped
#   make lint      format, lint, type, include-direction and unit checks
#   make engines   a trained model, and llama-cpp-python, compiled: their campaign and tests are skipped without them
#   make smoke     audits the wheels, uses them in bare systems of Debian 11 to 13, makes them again elsewhere
#   make aarch64   the wheels for 64-bit ARM in dist/aarch64, unit tests and use under qemu
#   make source    the archive that pip can install from, in dist/
#   make asan tsan fuzz wheels clean
.PHONY: demo install tested test check unit bench campaign lint format asan tsan fuzz wheels source aarch64 smoke engines clean

SHELL := /bin/bash
VENV := $(CURDIR)/.venv
PY := $(VENV)/bin/python
BUILD := build/release
# Kept in build/, so that `make clean` takes them along.
INSTALLED := $(BUILD)/installed.stamp
WHEELS := $(BUILD)/wheels.stamp
SOURCES := $(shell find src python compat cmake examples/atb_host CMakeLists.txt pyproject.toml -type f -not -name '*_test.cpp' -not -name '*_fuzz.cpp' -not -path '*_fuzz_corpus/*' -not -path '*/__pycache__/*' -not -path '*.egg-info/*' 2>/dev/null)
PIP := $(VENV)/bin/pip --disable-pip-version-check -q
# Two compilers at once: the link of a test program and a vector kernel together stay within 2 GB.
export CMAKE_BUILD_PARALLEL_LEVEL ?= 2
export CCACHE_NOHASHDIR := 1
export CCACHE_BASEDIR := $(CURDIR)
# The compiler lists the headers that it read: the cache need not run the preprocessor for that.
export CCACHE_DEPEND := 1
# pytest keeps the test files as it has rewritten them: to do so again took half of what it needs before the first test.
unexport PYTHONDONTWRITEBYTECODE
# The tools and tests call the commands of the environment by name.
export PATH := $(VENV)/bin:$(PATH)

# The demonstration runs from the build folder: the program and the capture module are all it needs. Its Python packages are
# installed while those are compiled.
demo:
	@tools/setup.sh build
	@tools/setup.sh demo & packages=$$!; tools/build.py assay _capture || { kill $$packages 2>/dev/null; exit 1; }; wait $$packages
	@PATH="$(CURDIR)/$(BUILD)/bin:$$PATH" PYTHONPATH="$(CURDIR)/$(BUILD)/python" $(PY) examples/demo.py

install: $(INSTALLED)
	@tools/setup.sh build demo

$(WHEELS): $(SOURCES) requirements-build.txt
	@tools/setup.sh build
	@tools/build.py --wheels dist
	@touch $@

$(INSTALLED): $(WHEELS)
	@# What was installed under the name that the distribution had before.
	@$(PIP) uninstall -y assay 2>/dev/null || true
	@$(PIP) install --no-deps --no-index --force-reinstall dist/*.whl
	@touch $@

# Once configured with the tests a folder stays so: `make install` then builds them, too.
tested:
	@tools/setup.sh build demo test
	@tools/build.py --tests
	@$(MAKE) --no-print-directory install

test: tested
	$(if $(filter 1,$(SLOW)),,ctest --test-dir $(BUILD) --output-on-failure -j 2)
	$(PY) -m pytest -n 2 --dist worksteal $(if $(filter 0,$(SLOW)),-m "not slow") $(if $(filter 1,$(SLOW)),-m slow) $(OPTIONS)

check:
	@$(MAKE) --no-print-directory test SLOW=0

unit:
	@tools/setup.sh build test
	@tools/build.py --tests $(MODULE)_test
	@$$(find $(BUILD)/src -name $(MODULE)_test -type f) --gtest_brief=1 --gtest_filter='$(or $(FILTER),*)'

bench: install
	@tools/setup.sh bench
	cmake -S . -B build/bench -G Ninja -DCMAKE_BUILD_TYPE=Release -DASSAY_BUILD_BENCH=ON -DASSAY_BUILD_TESTS=OFF >/dev/null
	cmake --build build/bench
	$(PY) bench/run.py $(if $(RIVALS),--rivals)

# Results in build/campaign; PUBLISH=1 puts them into docs/benchmarks, SEED= and ONLY= choose. SAMPLE=1 runs the fixed sample of CI,
# with the fuzzers of `make asan` when these are built.
MINUTES ?= 60
campaign: install
	@tools/setup.sh build demo test
	@[ -n "$(SAMPLE)" ] || { tools/setup.sh sanitize && cmake --preset fuzz >/dev/null && cmake --build build/fuzz --target fuzzers; }
	$(PY) -m bench.campaign $(if $(SAMPLE),--sample --jobs 2 --fuzzers build/asan,--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY)) $(if $(PUBLISH),--publish)

lint:
	@tools/setup.sh build demo test lint
	$(PY) tools/check_includes.py
	$(PY) tools/check_units.py
	$(PY) tools/check_markdown.py
	git ls-files '*.cpp' '*.hpp' '*.h' | xargs -P 2 -n 100 clang-format-19 --dry-run -Werror
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	codespell --config tools/codespell.cfg $$(git ls-files '*.md' '*.py' '*.cpp' '*.hpp' '*.sh')

format:
	git ls-files '*.cpp' '*.hpp' '*.h' | xargs clang-format-19 -i
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

# Without it the compiler's cache leaves alone what begins with precompiled headers (cmake/precompiled.cmake).
asan tsan fuzz campaign: export CCACHE_SLOPPINESS := pch_defines,time_macros

# The unit tests and the fuzz targets share one build.
asan:
	@tools/setup.sh build test sanitize
	cmake --preset asan >/dev/null
	cmake --build build/asan
	ctest --test-dir build/asan --output-on-failure -j 2

# The tests of what starts threads (cmake/add_unit_test.cmake).
tsan:
	@tools/setup.sh build test sanitize
	cmake --preset tsan >/dev/null
	cmake --build build/tsan --target unit_tests
	ctest --test-dir build/tsan --no-tests=error --output-on-failure -j 2 -R '_test$$'

# A few seconds for every reader; SECONDS_EACH=600 for a real search.
SECONDS_EACH ?= 5
fuzz:
	@tools/setup.sh build test sanitize
	cmake --preset asan >/dev/null
	cmake --build build/asan --target fuzzers
	tools/run_fuzzers.sh build/asan $(SECONDS_EACH)

engines:
	@tools/setup.sh build demo test
	@tools/fetch_trained_model.sh
	@tools/build_llama_cpp.sh

wheels: $(WHEELS)
	@ls -l dist

source:
	@tools/setup.sh build
	@tools/build.py --source dist
	@ls -l dist/*.tar.gz

# The kernels, and what differs between processors below them; without two tests of gigabytes. All under qemu would take an hour.
ELSEWHERE := base older_glibc tensor stats measure formats writer capture
SHIPPED := assay _core _opcheck _capture atb_probe atb_probe_abi0 atb_probe_abi1 ggml_probe
aarch64: export GTEST_FILTER := -*ThreadsDoNotChangeABit:*CountsBeyondTwoToThe31
aarch64:
	@tools/setup.sh build demo test aarch64
	@tools/build.py --machine aarch64 --tests --wheels dist/aarch64 $(SHIPPED) atb_host_abi0 atb_host_abi1 $(addsuffix _test,$(ELSEWHERE))
	ctest --test-dir build/aarch64 --no-tests=error --output-on-failure -j 2 -R '^($(subst $() ,|,$(ELSEWHERE)))_test$$'
	$(PY) tools/smoke_test.py dist/aarch64
	$(PY) tools/smoke_roots.py dist/aarch64 --machine aarch64 --suites bookworm

smoke:
	@tools/setup.sh build demo test
	@# A commit that changed no source is in the wheels, too.
	@rm -f $(WHEELS)
	@$(MAKE) --no-print-directory wheels
	$(PY) tools/smoke_test.py dist
	$(PY) tools/smoke_roots.py dist
	tools/reproduce.sh dist

clean:
	rm -rf build dist .venv demo-output
