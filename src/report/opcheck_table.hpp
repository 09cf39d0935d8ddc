// SPDX-License-Identifier: Apache-2.0
// The columns of an opcheck report: the original's in its order, ours to the right.
//   docs/opcheck.md
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "opcheck/check.hpp"
#include "report/column.hpp"
#include "report/table.hpp"

namespace assay::report {

/// The columns of the original and the words in them, which differ between its versions. The
/// defaults are msit 8.2's.
struct OpcheckStyle {
  measure::Standard standard = measure::Standard::LegacyO4;
  const char* result = "precision_result";
  const char* rate = "rel_precision_rate(%)";
  const char* absolute_rate = "abs_precision_rate(%)";
  const char* passed = "PASS";
  const char* failed = "FAILED";
  const char* folder_end = "";  // behind the folder of the tensors
  bool has_reason = true;       // a column fail_reason
  double measure::Measures::* max_rel = &measure::Measures::legacy_o4_max_rel;
  int64_t measure::Measures::* absolute_within = &measure::Measures::legacy_abs_within;
  double measure::Measures::* max_abs = &measure::Measures::legacy_max_abs;
};

struct OpcheckTableOptions {
  bool absolute = false;      // -metric abs
  bool cosine = false;        // -metric cos_sim
  bool kl = false;            // -metric kl
  bool optimization = false;  // -opt: column optimization_closed
  bool by_rounding = false;   // operators, which no standard judges: none of the above
  OpcheckStyle style = {};
  std::vector<std::string> custom = {};                 // names of -alg's columns
  measure::Standard standard = measure::Standard::Atb;  // what `result` follows
};

struct CaseRow;

/// The columns of a report, and its rows.
class OpcheckTable {
 public:
  explicit OpcheckTable(const OpcheckTableOptions& options);

  [[nodiscard]] std::vector<std::string> columns() const { return names_of(columns_); }
  /// One row an output.
  [[nodiscard]] std::vector<Cells> rows(const opcheck::CaseResult& result) const;

 private:
  OpcheckTableOptions options_;
  Columns<CaseRow> columns_;
};

/// "outtensor0"; of a result in place "intensor2 after".
[[nodiscard]] std::string output_name(const opcheck::OutputRow& row);
/// The worst element of a row: "[0, 2]: golden -1.095444, mine -1.098633"; empty without one.
[[nodiscard]] std::string worst_text(const opcheck::OutputRow& row);
/// What lies around it: "golden 0.7302963 -1.095444 0.7302963, mine 0.730957 -1.098633 0.7304688".
[[nodiscard]] std::string neighbours_text(const opcheck::OutputRow& row);

/// An output in a report.
struct OutputPlace {
  size_t number = SIZE_MAX;  // of its case
  size_t row = SIZE_MAX;     // of that case's rows
  bool operator==(const OutputPlace&) const = default;
};

/// How the operations of one type did, in cases.
struct OpcheckTotals {
  std::string op_type;
  size_t cases = 0, outputs = 0;
  size_t passed = 0, failed = 0, not_supported = 0, errors = 0;
  std::string first_reason;  // of the first case that is no pass
  OutputPlace first = {};    // whose reason that is
};
/// By name of the type.
[[nodiscard]] std::vector<OpcheckTotals> opcheck_totals(const opcheck::Report& report);
/// The verdict above a row a type, the sum below, what was not judged at all, coverage, warnings.
[[nodiscard]] Table build_opcheck_summary(const opcheck::Report& report);

}  // namespace assay::report
