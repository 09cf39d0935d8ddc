// SPDX-License-Identifier: Apache-2.0
// The reports of ait 0.2: its columns, its words, its file.
//   docs/commands/compare.md, docs/commands/opcheck.md
#pragma once
#include "report/opcheck_table.hpp"
#include "report/style.hpp"

namespace assay::vendor::ait {

[[nodiscard]] const report::Style& style();
[[nodiscard]] report::OpcheckStyle opcheck_style();

}  // namespace assay::vendor::ait
