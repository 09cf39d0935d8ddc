// SPDX-License-Identifier: Apache-2.0
// A table as a page holds it: column by column, each in the smallest form that its cells allow.
//   docs/formats/page.md, "Tables"
#pragma once
#include <string>
#include <vector>

#include "report/html/page.hpp"
#include "report/table.hpp"

namespace assay::report::html {

/// Adds a blob for each column that is not constant.
/// prefix    of the names of these blobs
/// returns   {"rows": N, "columns": [{"name", "form", ...}, ...]}
[[nodiscard]] Json add_table(const Table& table, const std::string& prefix,
                             std::vector<Blob>* blobs);

}  // namespace assay::report::html
