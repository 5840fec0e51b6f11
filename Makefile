# Two commands for a fresh machine: `make compare` and `make test`. `make help` lists the rest.
# Each sets up what it needs first (tools/setup.sh), once.
SHELL := /bin/bash
.DEFAULT_GOAL := help

JOBS ?= $(shell nproc)
PREFIX ?= $(CURDIR)/build/install
# More arguments for ctest, e.g. make test CTEST_ARGS='-R install'.
CTEST_ARGS ?=
# The newest of every minor version that Overdrive supports.
TORCH_VERSIONS = 2.11.0 2.12.1 2.13.0 2.14.1 2.15.0

# Asked anew by each recipe, because set-up may have installed ninja in the meantime.
CMAKE_GENERATOR ?= $(if $(shell command -v ninja),Ninja,Unix Makefiles)
export CMAKE_GENERATOR
export CTEST_OUTPUT_ON_FAILURE := 1

# A thread sanitizer needs a memory layout that some kernels randomise too far.
# What takes half of the suite's time: `make test` leaves it to `make test-slow`.
SLOW_TESTS = parity_faults_test parity_fuzz_test python_threads_test python_libraries_test engine_native_nodes_test \
  package_test python_examples_test engine_contract_threads_test python_fuzz_test python_dynamo_test \
  python_step_file_test python_parts_fuzz python_numbers_fuzz python_counters_fuzz python_capture_fuzz \
  python_notebooks_fuzz replay_random_steps_test engine_page_faults_test python_integrations_lightning_test \
  forward_ad_op_table_test engine_instructions_test
empty :=
space := $(empty) $(empty)
SLOW = '^($(subst $(space),|,$(strip $(SLOW_TESTS))))$$'

NO_ASLR := $(shell setarch $(shell uname -m) -R true 2>/dev/null && echo setarch $(shell uname -m) -R)
SOURCES = $(shell find engine hooks forward_ad checkpoint inspect replay python test bench examples docs -name '*.h' -o -name '*.cpp')
BUILD = cmake --build --preset $(1) -j $(JOBS)
TEST = $(NO_ASLR) ctest --preset $(1) -j $(JOBS) $(CTEST_ARGS)

## compare:   train the example models under both engines and print the comparison
compare: configure-release
	$(call BUILD,release) --target overdrive_cli
	build/bin/overdrive compare --all --quick --json build/compare.json --html build/compare.html

## results:   train every model to its end under both engines and captured, and write the tables of README and docs and their picture
results: configure-release
	$(call BUILD,release) --target overdrive_cli
	build/bin/overdrive compare --all --capture --json build/results.json
	python3 tools/results.py build/results.json

## test:      build, and run the tests but the slowest twenty
test: setup-python build
	$(call TEST,release) -E $(SLOW)

## test-slow: the slowest twenty; test-all: both
test-slow: setup-python build
	$(call TEST,release) -R $(SLOW)
test-all: test test-slow

## build:     build everything
build: configure-release
	$(call BUILD,release)

## bench:     engine benchmark, stock beside ours, into build/bench-engine.json
bench: configure-release
	$(call BUILD,release) --target overdrive_cli
	build/bin/overdrive bench engine --json build/bench-engine.json

## bench-peers: the models of `overdrive bench capture` in JAX and by AOTInductor, into build/peers-*.json
bench-peers: setup-peers
	@mkdir -p build
	.deps/peers/bin/python bench/peers/jax_steps.py --json build/peers-jax.json
	.deps/peers/bin/python bench/peers/aoti_steps.py --json build/peers-aoti.json

## bench-lanes: `overdrive bench lanes` beside JAX with one thread and with two, in turn, into build/lanes-beside-jax.json
bench-lanes: setup-peers configure-release
	$(call BUILD,release) --target overdrive_cli
	.deps/peers/bin/python bench/peers/beside_lanes.py build/bin/overdrive --json build/lanes-beside-jax.json

## recipes:   the libraries that people train with and four programs of C++, each stock, switched, captured and compiled, into docs/recipes/README.md; half an hour
##            RECIPES_ARGS: --only NAME ..., --rounds N, --no-compile
recipes: setup-recipes configure-release
	$(call BUILD,release) --target overdrive overdrive_recipes
	PYTHONPATH=build/python .deps/recipes/bin/python -B examples/recipes/run.py --write $(RECIPES_ARGS)

## asan:      the whole suite under AddressSanitizer and UBSan, in build-asan/
## tsan:      the whole suite under ThreadSanitizer, in build-tsan/
asan tsan: %: configure-%
	$(call BUILD,$@)
	$(call TEST,$@)

## fast-asan, fast-tsan: the same for the tests labelled so, and nothing else is built
fast-asan fast-tsan: fast-%: configure-%
	$(call BUILD,$*) --target overdrive_$*_tests
	$(call TEST,$*) -L '^fast-$*$$' --no-tests=error

## analyze:   each source and header of the library alone, by clang, with its thread-safety analysis
analyze: configure-release setup-clang
	python3 tools/check_threads.py build

## wheel:     one Python package for all of VERSIONS, in build/wheel/ (default: every version of PyTorch that there is a library for)
wheel: setup-python
	JOBS=$(JOBS) python3 tools/check_versions.py --only-build build/versions $(or $(VERSIONS),$(TORCH_VERSIONS))
	.deps/python/bin/python tools/make_wheel.py build/wheel $(patsubst %,build/versions/%/library,$(or $(VERSIONS),$(TORCH_VERSIONS)))

## package:   a .deb and a .tar.gz of library, headers, program and guides, in build/package/
package: configure-release
	$(call BUILD,release) --target overdrive overdrive_autoload overdrive_cli overdrive_man
	umask 022 && cpack -Wno-dev --config build/CPackConfig.cmake

## release:   wheel, .deb, .tar.gz, SPDX lists and checksums, in build/release/; refuses a tree whose docs/versions.md is not up to date
release:
	python3 tools/make_release.py --check $(TORCH_VERSIONS)
	rm -rf build/package
	$(MAKE) wheel package
	python3 tools/make_release.py build/release build

## docs:      the API reference from the public headers, in build/docs/html/
docs: setup-docs configure-release
	python3 tools/make_reference.py build build/docs

## check:     directions of includes and of Python's imports, and Notes (make test runs them too)
check:
	python3 tools/check_layers.py
	python3 tools/check_rooms.py
	python3 tools/check_notes.py

## check-headers: build the library against the headers of every LibTorch version (VERSIONS), and write docs/versions.md
check-headers: setup
	JOBS=$(JOBS) python3 tools/check_versions.py --library build/versions $(or $(VERSIONS),$(TORCH_VERSIONS))

## check-versions: build everything for LibTorch versions (VERSIONS), run the suite there, and write docs/versions.md; hours
check-versions: setup
	JOBS=$(JOBS) python3 tools/check_versions.py build/versions $(or $(VERSIONS),2.11.0 2.13.0 2.15.0)

## check-newest: build the library for the newest LibTorch, and run a short list of tests there; minutes, and fetches 0.6 GB
check-newest: setup-python
	JOBS=$(JOBS) python3 tools/check_versions.py --short build/versions $(lastword $(TORCH_VERSIONS))

## check-pythons: run the suite of the package under each Python (VERSIONS) that can be had, and write docs/versions.md; hours
check-pythons: configure-release
	$(call BUILD,release) --target overdrive overdrive_autoload overdrive_test_plugin overdrive_test_step_program \
	  step_file_train step_file_letters step_file_cart
	tools/check_pythons.sh $(VERSIONS)

## check-arm: cross-build for 64-bit ARM and run a part of the suite by qemu; hours; ARM_ARGS: arguments for ctest
check-arm:
	JOBS=$(JOBS) tools/check_arm.sh $(ARM_ARGS)

## bare:      follow the README on a new Debian, as root and as a user without sudo; hours, by root; BARE_ARGS: --short, --user, ...
bare:
	tools/bare_machine.sh $(BARE_ARGS)

## gpu-check: on a machine with a GPU: build, test and measure there, into build-gpu/
gpu-check:
	tools/gpu_check.sh

## format:    clang-format on every source of ours; check-format only looks
format: setup-format
	clang-format-16 -i $(SOURCES)
check-format: setup-format
	clang-format-16 --dry-run -Werror $(SOURCES)

## lint:      ruff over our Python, and mypy --strict over the package; status 77 where the two cannot be fetched
lint:
	@tools/lint.sh

## tidy:      clang-tidy over the library, sixteen sources at a time: LibTorch's headers take most of a minute to check
tidy: setup-tidy setup-clang configure-tidy
	sed -nE 's|^ *"file": "(.*(/overdrive.dir/Unity/\|/quantise_kernels).*)".*|\1|p' build-tidy/compile_commands.json | \
	  xargs -P $(JOBS) -n 1 clang-tidy-16 -p build-tidy --quiet

## fuzz-capture: random captured programs of Python beside eager twins: steps, numbers, counters, parts and notebooks; FUZZ_ARGS: --seed N, --programs N, --seconds S, --show
fuzz-capture: setup-python configure-release
	$(call BUILD,release) --target overdrive
	PYTHONPATH=build/python .deps/python/bin/python -B test/python/capture_fuzz.py $(or $(FUZZ_ARGS),--seconds 300)
	PYTHONPATH=build/python .deps/python/bin/python -B test/python/parts_fuzz.py $(or $(FUZZ_ARGS),--seconds 300)
	PYTHONPATH=build/python .deps/python/bin/python -B test/python/numbers_fuzz.py $(or $(FUZZ_ARGS),--seconds 300)
	PYTHONPATH=build/python .deps/python/bin/python -B test/python/counters_fuzz.py $(or $(FUZZ_ARGS),--seconds 300)
	PYTHONPATH=build/python .deps/python/bin/python -B test/python/fuzz/run.py $(or $(FUZZ_ARGS),--seconds 300 --shrink build/fuzz)

## databases: PyTorch's databases captured and under the engine, beside stock; hours
##            DATABASE_ARGS: operators, modules, optimizers, functions, custom, higher_order, --seconds S, --only TEXT, --from NAME, --samples N
databases: setup-database configure-release
	$(call BUILD,release) --target overdrive
	PYTHONPATH=build/python:.deps/database OMP_NUM_THREADS=1 .deps/python/bin/python -B test/python/databases/run.py --json build/databases.json $(DATABASE_ARGS)

## test-configs: the suite under each setting of test/configs/; CONFIGS: names and options of test/configs/run.py
test-configs: setup-python build
	python3 -B test/configs/run.py --jobs $(JOBS) $(CONFIGS)

## recordings: a digest of every program that the suites record, sorted, into build/recordings.txt: a commit that changes none leaves the file as it
##            was. RECORDINGS_TESTS: a regular expression of the tests (default: all that record)
recordings: setup-python build
	rm -f build/recordings.all
	-OVERDRIVE_RECORDINGS=$(CURDIR)/build/recordings.all $(call TEST,release) -R '$(or $(RECORDINGS_TESTS),^(replay_|python_|recipe_|capture_example|documents_code_test|cli_compare_captured))' \
	  -E 'fuzz|random|mutated|lasting'
	LC_ALL=C sort build/recordings.all > build/recordings.txt
	@wc -l build/recordings.txt; sha256sum build/recordings.txt

## mutate:    seed small mistakes in the library, one at a time, and look which of them the tests see; minutes
##            MUTATE_ARGS: --again, --only TEXT, --table FILE; a run that was stopped goes on
mutate: build
	$(call BUILD,release) --target overdrive_faulty
	python3 -B test/parity/faults/mutate.py --jobs $(JOBS) $(MUTATE_ARGS) build/bin build/test/parity/faults/lib \
	  build/mutations.json

## coverage:  line and branch coverage of the suite, a row per folder, in build-coverage/
coverage: configure-coverage
	$(call BUILD,coverage)
	find build-coverage -name '*.gcda' -delete
	-$(call TEST,coverage)
	python3 tools/coverage.py --table build-coverage/coverage.md build-coverage

## install:   install into PREFIX (default: build/install)
install: build
	cmake --install build --prefix "$(PREFIX)"

## clean:     remove what was built; what was set up stays
clean:
	rm -rf build build-*

## help:      this list
help:
	@sed -n 's/^## /  make /p' $(MAKEFILE_LIST)

# --- how a build folder comes to be ---

setup:
	@tools/setup.sh
setup-%:
	@tools/setup.sh $*

# $(1): preset, $(2): its folder. Configured again when a preset or the LibTorch in use changed.
define CONFIGURE
configure-$(1): setup
	@if [ ! -e $(2)/.configured -o CMakePresets.json -nt $(2)/.configured -o .deps/torch_dir -nt $(2)/.configured ]; then \
	  cmake --preset $(1) -DTorch_DIR="$$$$(cat .deps/torch_dir)" && touch $(2)/.configured; \
	fi
endef
$(eval $(call CONFIGURE,release,build))
$(foreach preset,debug asan tsan coverage tidy,$(eval $(call CONFIGURE,$(preset),build-$(preset))))

.PHONY: compare results recipes fuzz-capture databases recordings test-configs test test-slow test-all wheel package release docs build bench bench-peers bench-lanes asan tsan fast-asan fast-tsan analyze check check-headers check-versions check-newest check-pythons check-arm bare gpu-check \
  format check-format lint tidy mutate coverage install clean help setup configure-release configure-debug configure-asan configure-tsan \
  configure-coverage configure-tidy
