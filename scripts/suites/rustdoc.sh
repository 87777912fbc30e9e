#!/usr/bin/env bash
# rustdoc that checks the error codes of compile_fail doctests, which the stable one ignores. Only
# rustdoc sees the variable, so nothing is compiled a second time for it.
exec env RUSTC_BOOTSTRAP=1 rustdoc "$@"
