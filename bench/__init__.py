# SPDX-License-Identifier: Apache-2.0
"""What we claim about speed, beside floors (the machine's own limits) and rivals (other people's ways).

`make bench` runs all of it; `bench/run.py --help` lists the parts. docs/benchmarks.md says what is claimed, the
pages of docs/benchmarks have the tables.
"""
