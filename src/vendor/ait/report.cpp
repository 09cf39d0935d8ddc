// SPDX-License-Identifier: Apache-2.0
// Source: Ascend/msit, release 0.2.1: ait/components/llm/llm/compare and
// ait/components/llm/llm/opcheck/opchecker.py
#include "vendor/ait/report.hpp"

#include <unistd.h>

#include "vendor/ait/metrics.hpp"

namespace assay::vendor::ait {
namespace {

// Four metrics, no operator types; the same for statistics.
constexpr std::string_view kColumns =
    "token_id data_id "
    "golden_data_path golden_dtype golden_shape golden_max_value golden_min_value "
    "golden_mean_value "
    "my_data_path my_dtype my_shape my_max_value my_min_value my_mean_value "
    "cosine_similarity max_relative_error mean_relative_error relative_euclidean_distance "
    "cmp_fail_reason";

// Under the common names stand ait's own values, which are behind those of the user's algorithms.
report::Columns<report::JudgedRow> own_columns() {
  report::Columns<report::JudgedRow> columns;
  for (size_t i = 0; i < kMetricNames.size(); ++i) {
    columns.push_back({kMetricNames[i], [i](const report::JudgedRow& row) {
                         const auto& values = row.row.custom;
                         const size_t place = values.size() - kMetricNames.size() + i;
                         return values.size() < kMetricNames.size()
                                    ? report::Cell{}
                                    : report::Cell::of(values[place].value);
                       }});
  }
  return columns;
}

std::string only_file(const std::string& folder) {
  return folder + (folder.ends_with('/') ? "" : "/") + std::to_string(::getpid()) +
         "/cmp_report.csv";
}

}  // namespace

const report::Style& style() {
  static constexpr report::Style kStyle{.tensors = kColumns,
                                        .more_tensors = "",
                                        .statistics = kColumns,
                                        .more_statistics = "",
                                        .more_weights = "",
                                        .verdict = "",
                                        .own_columns = own_columns,
                                        .to_the_letter = true,
                                        .only_file = only_file};
  return kStyle;
}

report::OpcheckStyle opcheck_style() {
  return {.standard = measure::Standard::LegacyO1,
          .result = "excuted_information",
          .rate = "precision_result(%)",
          .absolute_rate = "abs_precision_result(%)",
          .passed = "execution successful",
          .failed = "execution failed",
          .folder_end = "/after",
          .has_reason = false,
          .max_rel = &measure::Measures::legacy_o1_max_rel,
          .absolute_within = &measure::Measures::legacy_o1_abs_within,
          .max_abs = &measure::Measures::legacy_o1_max_abs};
}

}  // namespace assay::vendor::ait
