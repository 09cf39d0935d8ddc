// SPDX-License-Identifier: Apache-2.0
// The page of a run whose operations were recomputed: opcheck_result_{time}.html
//   docs/formats/page.md
#pragma once
#include "report/html/page.hpp"
#include "report/opcheck_table.hpp"

namespace assay::report::html {

[[nodiscard]] Page opcheck_page(const opcheck::Report& report, const OpcheckTable& columns);

}  // namespace assay::report::html
