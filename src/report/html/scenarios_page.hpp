// SPDX-License-Identifier: Apache-2.0
// The page of `assay invariance --html`: every operator in every scenario.   docs/formats/page.md
#pragma once
#include <string_view>

#include "report/html/page.hpp"
#include "run/run.hpp"

namespace assay::report::html {

/// parts  what python/assay/invariance.py gathers: sentence, tone, next, facts, lists, first_row
///        and rows (an object: name of a column to a list of cells)
/// alone  the run of the row alone
/// Precondition: `parts` is JSON of that form.
[[nodiscard]] Page scenarios_page(std::string_view parts, const run::Run& alone);

}  // namespace assay::report::html
