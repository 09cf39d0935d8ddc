// SPDX-License-Identifier: Apache-2.0
// The page of `assay repeat --html`: every operator in every run.   docs/formats/page.md
#pragma once
#include "repeat/outcome.hpp"
#include "report/html/page.hpp"

namespace assay::report::html {

[[nodiscard]] Page repeat_page(const repeat::Outcome& outcome);

}  // namespace assay::report::html
