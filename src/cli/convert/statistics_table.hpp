// SPDX-License-Identifier: Apache-2.0
// One table of the statistics of all operators of a dump.   Columns: docs/commands/convert.md
#pragma once
#include <string>
#include <vector>

#include "base/result.hpp"

namespace assay::cli {

struct StatisticsTable {
  std::string csv;
  size_t row_count = 0;
  std::vector<std::string> problems;  // files and operands without statistics: one sentence each
};

/// Takes the rows of the statistics files below `path`, and computes those of dump files that have
/// none beside them. Rows are in the order of the dumps' times. A column of values that no row has
/// is left out.
///
/// errors    NotFound | Permission | Usage: holds neither kind of file
[[nodiscard]] Result<StatisticsTable> merge_statistics(const std::string& path);

}  // namespace assay::cli
