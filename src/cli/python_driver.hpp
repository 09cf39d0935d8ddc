// SPDX-License-Identifier: Apache-2.0
// Commands whose work Python does: starting a module of our package.
#pragma once
#include <string>
#include <string_view>

#include "cli/argparse.hpp"

namespace assay::cli {

/// The words that run `main` of a module with what follows them as its arguments. A package that is
/// missing is one sentence and status 2.
///
/// imports   lines of Python that bring `main`: "from assay.twin.__main__ import main"
/// extra     of our distribution that has what they need: "twin"
/// next      the command that is named behind the sentence; empty: none
[[nodiscard]] Words python_driver(std::string_view imports, std::string_view extra,
                                  std::string_view next = {});

}  // namespace assay::cli
