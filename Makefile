# Every target makes .venv and installs what it needs by itself, and does nothing of that the second time.
# PYTHON=/path/to/python3.12 names another interpreter than the one that tools/venv.sh finds.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test quick lint bench soak wheel docs reference java base spark dev peers clean

BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
# Tests that share nothing run side by side. So do those of the pipeline, file by file: much of their time Java starts
# and Spark waits. Those with sockets of their own wait for their nodes to find each other most of the time that they
# take, and bear it that others run beside them; those of them that are slow measure, load the processors, or let
# processes die and sleep: one at a time.
SMALL := -n 4 tests/integration
REAL := tests/integration
SPARK := -n 2 --dist loadfile tests/pipeline
PURE := -n 2 --dist worksteal tests --ignore=tests/integration --ignore=tests/pipeline
# How long `make soak` goes on; smaller numbers make a shorter one.
SOAK_SEEDS ?= 2000
SOAK_FUZZ_SECONDS ?= 300
SOAK_CHAOS_MINUTES ?= 30

help:  ## Show this list
	@echo "Vivum: live groups for Python. Commands:"
	@sed -n 's/^\([a-z]*\):.*##  *\(.*\)/  make \1|\2/p' Makefile | while IFS='|' read -r name text; do printf '%-16s %s\n' "$$name" "$$text"; done

demo:  ## A market, from publishers to Spark and back, with packets lost on the way; two minutes
	@tools/java.sh >/dev/null
	@tools/venv.sh spark
	@JAVA_HOME=$$(tools/java.sh) $(BIN)/vivum demo

test: dev  ## Lint, and all tests but the soak: what must pass before a commit
	@tools/lint.sh
	@tools/java.sh >/dev/null
	@echo "vivum: tests that need a processor each"
	@$(PYTEST) -m "not soak" $(PURE)
	@VIVUM_PURE=source $(PYTEST) -m "plain and not soak" $(PURE)
	@echo "vivum: tests with Spark, two files at a time"
	@$(PYTEST) -m "not soak" $(SPARK)
	@echo "vivum: tests with real sockets, four at a time"
	@$(PYTEST) -m "not slow and not soak" $(SMALL)
	@echo "vivum: tests with real processes under load, one at a time"
	@$(PYTEST) -m "slow and not soak" $(REAL)

quick: dev  ## The tests that take less than a second each
	@$(PYTEST) -m "not slow and not soak" $(PURE)
	@VIVUM_PURE=source $(PYTEST) -m "plain and not slow and not soak" $(PURE)
	@$(PYTEST) -m "not slow and not soak" $(SMALL)

lint: dev  ## ruff (rules and format) and mypy
	@tools/lint.sh

bench: peers  ## Measure, beside the peers and the limit of the machine; the figures go to out/ as JSON too
	@tools/java.sh >/dev/null
	@tools/bench.sh codec membership simulator pipeline sweep peers groups plain throughput latency consensus \
		peers-hosts peers-hosts-buffers peers-hosts-unicast link link-1gbit link-2-senders link-4-senders sleeper

soak: dev  ## The long tests: soak marks, a large swarm, minutes of fuzzing, half an hour of chaos between hosts
	@tools/soak.sh $(SOAK_SEEDS) $(SOAK_FUZZ_SECONDS) $(SOAK_CHAOS_MINUTES)

wheel: base  ## An sdist and a manylinux wheel in dist, tried where no compiler is; prints size and time
	@tools/wheel.sh

docs: base  ## The documentation as a site in build/site, with the API; warnings are errors
	@tools/docs.sh

reference: dev  ## Write docs/reference anew from the code
	@$(BIN)/python tools/reference.py

java:  ## Find Java 17 for Spark, or install it where that is possible
	@tools/java.sh

# What the other targets stand on. The scripts know by themselves when there is nothing to do.
base:
	@tools/venv.sh base

spark:
	@tools/venv.sh spark

dev:
	@tools/venv.sh dev

peers:
	@tools/venv.sh bench
	@tools/packages.sh nats-server redis-server iproute2 nftables

clean:  ## Remove everything that make made
	@rm -rf .venv build dist out src/*.egg-info .mypy_cache .ruff_cache .hypothesis
	@find . -path ./.git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
	@find src -name '*.so' -exec rm -f {} +
	@find src -name '*.pyx' | while read -r file; do rm -f "$${file%.pyx}.c"; done
