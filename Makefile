# Novale's commands. Each needs a Rust toolchain; the scripts name, and as root install, the rest.

.PHONY: help run check test lint bench install uninstall
.DEFAULT_GOAL := help

help:
	@echo 'make run    build Novale, mount a pool in memory, work in it and compare; the mount stays'
	@echo 'make check  what a small change should pass, in a minute'
	@echo 'make test   everything that a change must pass; the last line is the total'
	@echo 'make lint   formatting, clippy, docs and the tidy test alone'
	@echo 'make bench  what operations cost: lines, fences, nanoseconds'
	@echo 'make install PREFIX=/usr/local  the program, libnovale, its header and manual; make uninstall'

run:
	@scripts/demo.sh

check:
	@scripts/check.sh

test:
	@scripts/test.sh

lint:
	@scripts/test.sh lint

bench:
	@cargo run --release --package novale-bench

install:
	@PREFIX='$(PREFIX)' LIBDIR='$(LIBDIR)' DESTDIR='$(DESTDIR)' scripts/install.sh

uninstall:
	@PREFIX='$(PREFIX)' LIBDIR='$(LIBDIR)' DESTDIR='$(DESTDIR)' scripts/install.sh remove
