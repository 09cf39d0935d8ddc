// SPDX-License-Identifier: Apache-2.0
// The command line of `assay`, and of `msit` and `ait` when the program was started by one of these
// names.
#pragma once

namespace assay::cli {

/// Parses the arguments of main(), runs one command, and returns the exit status of the process
/// (docs/commands/assay.md).
int assay_main(int argc, char** argv);

}  // namespace assay::cli
