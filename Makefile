# The front door. `make` alone lists what there is.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help run examples test mcp-clients asan tsan fuzz format format-check lint bench install package program soak mutants

PREFIX ?= /usr/local

help: ## list these targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

run: program ## install what is missing, build, run the example in a sandbox
	@scripts/run_example

program: ## build/release/casemate
	@scripts/bootstrap run
	@scripts/build release --target casemate_program

examples: ## the programs of examples/ that embed the library, as build/release/NAME
	@scripts/bootstrap run
	@scripts/build release --target casemate_examples

test: ## install what is missing, build, run every test this machine can run
	@scripts/bootstrap test
	@scripts/build release --with-tests
	@scripts/run_tests build/release

mcp-clients: ## install public MCP clients into build/, by npm and pip, for the tests that use them
	@scripts/bootstrap test
	@scripts/mcp_clients

asan: ## the same tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@scripts/bootstrap test
	@scripts/build asan --with-tests
	@scripts/run_tests build/asan

tsan: ## the same tests under ThreadSanitizer
	@scripts/bootstrap test
	@scripts/build tsan --with-tests
	@scripts/run_tests build/tsan

fuzz: ## every fuzzer for FUZZ_SECONDS (60); prints what each reached
	@scripts/bootstrap run
	@scripts/bootstrap fuzz
	@scripts/build fuzz --target casemate_fuzzers
	@scripts/fuzz

mutants: ## flip comparisons and plant faults, for an hour or more; each must turn a test or a fuzzer red
	@scripts/bootstrap test
	@scripts/bootstrap fuzz
	@scripts/mutate
	@scripts/plant_mutants

soak: ## kill hosts and keepers at every system call and run hostile programs, for minutes
	@scripts/bootstrap test
	@scripts/build release --with-tests
	@CASEMATE_SOAK=1 scripts/run_tests build/release --only soak
	@CASEMATE_SOAK=1 scripts/run_tests build/release --only cases_exec

format: ## rewrite the sources in the project's format
	@scripts/bootstrap test
	@scripts/sources | xargs -r clang-format-19 -i

format-check: ## fail if a source is not in the project's format
	@scripts/bootstrap test
	@scripts/sources | xargs -r clang-format-19 --dry-run -Werror

lint: ## clang-tidy over everything that is compiled
	@scripts/bootstrap test
	@scripts/build debug --target casemate_fmt
	@scripts/lint

bench: program ## measure this build beside other sandboxes
	@scripts/bootstrap engines
	@build/release/casemate bench

install: ## install the program and the library under PREFIX (/usr/local)
	@scripts/bootstrap run
	@scripts/build release --target casemate_installed
	cmake --install build/release --prefix $(PREFIX)

package: ## Debian packages of the program and of the library, in build/packages
	@scripts/bootstrap test
	@scripts/build release --target casemate_installed
	cpack --config build/release/CPackConfig.cmake -B build/packages
