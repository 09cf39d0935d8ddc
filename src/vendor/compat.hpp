// SPDX-License-Identifier: Apache-2.0
// The programs whose results `--compat` reproduces. A new one is a room beside msit and ait, and a
// row in compat.cpp.
#pragma once
#include <string_view>

#include "compare/dispatch.hpp"
#include "report/style.hpp"

namespace assay::vendor {

/// What the command line and Python hand to the comparison and to its report.
struct Compat {
  std::string_view name;
  compare::Conventions conventions;
  report::Style style;
  compare::LevelChoice level = compare::LevelChoice::Default;  // when the user names none
};

/// "none" (ours), "msit", "ait-0.2".
/// errors   Usage: another name
[[nodiscard]] Result<Compat> compat(std::string_view name);

}  // namespace assay::vendor
