# Front door. The real build is CMakeLists.txt; everything made here goes into build/ and dist/.
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
DEMO_BUILD ?= build/demo
DEMO_OPTIONS ?=
STEPS ?= 5000
PORT ?= 8080
FUZZ_SECONDS ?= 600

.PHONY: help demo test test-all test-core test-webgpu test-web fuzz web serve bench bench-peers lint format one-file curves docs clean

help:
	@echo 'make demo       build, train a small network on sin x, draw what it learned (a C compiler and CMake suffice)'
	@echo 'make test       install what the tests need, build with gcc and clang, with and without sanitizers, run everything'
	@echo 'make test-all   that, and what make test leaves out to be quick: every suite with every compiler, longer fuzzing'
	@echo 'make test-core  one gcc build, all suites'
	@echo 'make test-webgpu  one gcc build, the suites and the command line tool on WebGPU (Dawn on a software adapter)'
	@echo 'make test-web   the package for browsers and Node: built and run in Node and in headless Chromium'
	@echo 'make fuzz       all fuzzers of fuzz/ for FUZZ_SECONDS=600 each, with sanitizers; what they find goes to build/test/corpus'
	@echo 'make web        build the package into web/dist (clang 19 for WebAssembly, Node 20)'
	@echo 'make serve      build the package and its demo page, and serve it on localhost (PORT=8080)'
	@echo 'make bench      the examples and the matrix product on this machine, peers beside them (BENCH="--markdown", "--json", ...)'
	@echo 'make bench-peers  install jax-js and tfjs into bench/node_modules, for make bench in a browser'
	@echo 'make lint       formatting, static analysis, include direction, forbidden calls'
	@echo 'make format     format the C files in place'
	@echo 'make one-file   dist/tensorgrad.c and dist/tensorgrad.h, for vendoring'
	@echo 'make curves     train the stored PyTorch curves of tests/curves again (needs python3-torch)'
	@echo 'make docs       write docs/ops.md again from src/ir/ops.def'
	@echo 'make clean      remove build/ and dist/'

demo:
	@mkdir -p $(DEMO_BUILD)
	@echo 'building (log: $(DEMO_BUILD)/build.log) ...'
	@( cmake -S . -B $(DEMO_BUILD) -DTENSORGRAD_BUILD_EXAMPLES=OFF $(DEMO_OPTIONS) && cmake --build $(DEMO_BUILD) -j $(JOBS) ) \
	  > $(DEMO_BUILD)/build.log 2>&1 || { tail -n 40 $(DEMO_BUILD)/build.log; exit 1; }
	@$(DEMO_BUILD)/tensorgrad train mlp-sin --device cpu --steps $(STEPS) --picture --target-loss 1e-4

test:
	@bash scripts/setup.sh
	@python3 scripts/test.py --jobs $(JOBS)

test-all:
	@bash scripts/setup.sh
	@python3 scripts/test.py --jobs $(JOBS) --all --fuzz-seconds 30

test-core:
	@bash scripts/setup.sh core
	@python3 scripts/test.py --jobs $(JOBS) source gcc "cli: gcc"

test-webgpu:
	@bash scripts/setup.sh core
	@bash scripts/setup.sh webgpu
	@python3 scripts/test.py --jobs $(JOBS) webgpu

test-web:
	@bash scripts/setup.sh core
	@bash scripts/setup.sh web
	@python3 scripts/test.py --jobs $(JOBS) web

fuzz:
	@bash scripts/setup.sh
	@python3 scripts/test.py --jobs $(JOBS) --fuzz-seconds $(FUZZ_SECONDS) fuzz

web:
	@bash scripts/setup.sh web
	@bash scripts/build-wasm build/wasm
	@cd web && npm ci --ignore-scripts --no-audit --no-fund && node build.mjs

serve: web
	@cd web && node demo/build.mjs --serve $(PORT)

bench:
	@cmake -S . -B build/bench -DTENSORGRAD_BUILD_BENCH=ON > /dev/null
	@cmake --build build/bench -j $(JOBS) > build/bench/build.log 2>&1 || { tail -n 40 build/bench/build.log; exit 1; }
	@python3 bench/bench.py $(BENCH)

bench-peers: web
	@cd bench && npm ci --ignore-scripts --no-audit --no-fund

lint:
	@bash scripts/setup.sh lint
	@bash scripts/lint.sh

format:
	@clang-format -i $$(python3 scripts/check_source.py --list-c)

one-file:
	@python3 scripts/amalgamate.py dist

curves:
	@bash scripts/make_curves.sh

docs:
	@python3 scripts/make_ops_page.py docs/ops.md

clean:
	rm -rf build dist
