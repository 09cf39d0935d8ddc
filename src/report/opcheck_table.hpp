// SPDX-License-Identifier: Apache-2.0
// The columns of an opcheck report: the original's in its order, ours to the right.   docs/opcheck.md
#pragma once
#include <string>
#include <vector>

#include "opcheck/check.hpp"
#include "report/table.hpp"

namespace assay::report {

struct OpcheckTableOptions {
  bool absolute = false;            // -metric abs
  bool cosine = false;              // -metric cos_sim
  bool kl = false;                  // -metric kl
  bool optimization = false;        // -opt: column optimization_closed
  bool o1_names = false;            // names and words of ait 0.2
  std::vector<std::string> custom;  // names of -alg's columns
};

[[nodiscard]] std::vector<std::string> opcheck_columns(const OpcheckTableOptions& options);
/// One row an output.
[[nodiscard]] std::vector<std::vector<Cell>> opcheck_rows(const opcheck::CaseResult& result,
                                                          const OpcheckTableOptions& options);

}  // namespace assay::report
