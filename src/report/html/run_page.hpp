// SPDX-License-Identifier: Apache-2.0
// The page of one run: `assay show RUN --html`.   docs/formats/page.md
#pragma once
#include <span>

#include "report/html/page.hpp"
#include "run/run.hpp"

namespace assay::report::html {

/// records   indices into those of the run: what the page lists
[[nodiscard]] Page run_page(const run::Run& run, std::span<const size_t> records);

}  // namespace assay::report::html
