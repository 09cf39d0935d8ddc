# SPDX-License-Identifier: Apache-2.0
"""The command before any sub-command: help, version, unknown words."""

from __future__ import annotations


def test_without_arguments_the_help_goes_to_stderr_and_the_status_says_usage(assay):
    done = assay()
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Usage: assay [OPTIONS] SUBCOMMAND" in done.stderr
    assert "compare" in done.stderr


def test_version_is_one_line(assay):
    done = assay("--version")
    assert (done.returncode, done.stdout) == (0, "assay 0.1.0\n")


def test_help_of_a_command_shows_the_whole_command_line(assay):
    assert "Usage: assay compare [OPTIONS]" in assay("compare", "--help").stdout


def test_a_wrong_option_names_the_help_of_its_command(assay):
    done = assay("show", "--frob")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "hint: assay show --help lists the options"


def test_an_unknown_command_is_a_usage_error(assay):
    done = assay("frobnicate")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.splitlines()[-1] == "hint: assay --help lists the commands"
