# Two commands are enough: `make demo` and `make test`. Both install what is missing (as root, from
# Debian's packages), build, run and clean up after themselves.

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)

.DEFAULT_GOAL := help
.PHONY: help setup build dist demo test test-kernel test-kubernetes bench docs clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: ## install Open vSwitch, nftables and the rest from Debian's packages
	@deploy/setup.sh

build: setup ## build every binary into target/release
	$(CARGO) build --release --locked --workspace --bins
	$(TARGET)/release/xtask cni $(TARGET)/release

dist: setup ## the programs as images carry them, small and static, into target/dist/bin
	$(CARGO) run --locked -p xtask -- dist $(abspath $(TARGET))/dist/bin

demo: build ## three nodes, a dozen Pods, a reachability matrix, one packet's way; then clean up
	$(TARGET)/release/antrea-lab demo

test: setup ## every test: formatting, lints, layering, unit, netns, OVS, lab, docs
	$(CARGO) build --locked --workspace --all-targets
	$(TARGET)/debug/xtask ci

test-kernel: build ## the lab's matrix and restarts on the kernel datapath, in a virtual machine
	@deploy/setup.sh qemu-system-x86 seabios busybox-static kmod
	$(TARGET)/release/xtask test-kernel $(ARGS)

test-kubernetes: build ## the lab with Kubernetes' own API server and controller manager, built with Go
	$(TARGET)/release/xtask test-kubernetes $(ARGS)

bench: build dist ## the figures of docs/performance.md, measured and held against their budgets
	$(TARGET)/release/xtask bench

docs: build ## run every command of README and docs, and build the API docs
	$(TARGET)/release/xtask docs

clean: ## remove build output
	$(CARGO) clean
