// SPDX-License-Identifier: Apache-2.0
// The columns of an opcheck report of operators, which no standard judges.   docs/opcheck.md
#pragma once
#include <string>
#include <vector>

#include "opcheck/check.hpp"
#include "report/table.hpp"

namespace assay::report {

[[nodiscard]] std::vector<std::string> operator_columns();
/// One row an output, each with OutputRow::rounding.
[[nodiscard]] std::vector<std::vector<Cell>> operator_rows(const opcheck::CaseResult& result);

}  // namespace assay::report
