// SPDX-License-Identifier: Apache-2.0
// What a page says about a run as a whole.
#pragma once
#include "report/html/page.hpp"
#include "run/run.hpp"

namespace assay::report::html {

/// A list of texts, as JSON takes them.
[[nodiscard]] Json texts_json(const std::vector<std::string>& texts);

/// {"name", "path", "layout", "records", "properties": {...}, "complete", "planned", "captured",
/// "missed", "findings", "warnings"}
[[nodiscard]] Json side_json(const run::Run& run, std::string_view name);

}  // namespace assay::report::html
