// SPDX-License-Identifier: Apache-2.0
// The columns of an opcheck report: the original's in its order, ours to the right.
//   docs/opcheck.md
#pragma once
#include <string>
#include <vector>

#include "opcheck/check.hpp"
#include "report/table.hpp"

namespace assay::report {

struct OpcheckTableOptions {
  bool absolute = false;                 // -metric abs
  bool cosine = false;                   // -metric cos_sim
  bool kl = false;                       // -metric kl
  bool optimization = false;             // -opt: column optimization_closed
  bool by_rounding = false;              // operators: none of the above, see operator_rows.hpp
  bool o1_names = false;                 // names and words of ait 0.2
  std::vector<std::string> custom = {};  // names of -alg's columns
  measure::Standard standard = measure::Standard::Atb;  // what `result` follows
};

[[nodiscard]] std::vector<std::string> opcheck_columns(const OpcheckTableOptions& options);
/// One row an output.
[[nodiscard]] std::vector<std::vector<Cell>> opcheck_rows(const opcheck::CaseResult& result,
                                                          const OpcheckTableOptions& options);

/// "outtensor0"; of a result in place "intensor2 after".
[[nodiscard]] std::string output_name(const opcheck::OutputRow& row);
/// The worst element of a row: "[0, 2]: golden -1.095444, mine -1.098633"; empty without one.
[[nodiscard]] std::string worst_text(const opcheck::OutputRow& row);
/// What lies around it: "golden 0.7302963 -1.095444 0.7302963, mine 0.730957 -1.098633 0.7304688".
[[nodiscard]] std::string neighbours_text(const opcheck::OutputRow& row);

/// How the operations of one type did, in cases.
struct OpcheckTotals {
  std::string op_type;
  size_t cases = 0, outputs = 0;
  size_t passed = 0, failed = 0, not_supported = 0, errors = 0;
  std::string first_reason;  // of the first case that is no pass
};
/// By name of the type.
[[nodiscard]] std::vector<OpcheckTotals> opcheck_totals(const opcheck::Report& report);
/// A row a type, the sum below, and what was not judged at all.
[[nodiscard]] Table build_opcheck_summary(const opcheck::Report& report);

}  // namespace assay::report
