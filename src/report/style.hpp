// SPDX-License-Identifier: Apache-2.0
// What a report of a comparison looks like: which columns, in which order. A value, so that a
// vendor's room can hand in its own.
#pragma once
#include <string>
#include <string_view>

#include "compare/compare.hpp"
#include "report/column.hpp"
#include "report/judged_rows.hpp"

namespace assay::report {

/// A row of a comparison with what the verdict says of it.
struct JudgedRow {
  const compare::Row& row;
  const RowVerdict* verdict = nullptr;  // null: none was asked for
};

// Names of columns with blanks between. Scripts read the first list of each kind by position; ours
// stand to its right. "[algorithms]" stands for the user's metrics.
inline constexpr std::string_view kTensorColumns =
    "token_id data_id "
    "golden_data_path golden_op_type golden_dtype golden_shape golden_max_value golden_min_value "
    "golden_mean_value my_data_path my_op_type my_dtype my_shape my_max_value my_min_value "
    "my_mean_value cosine_similarity max_relative_error mean_relative_error max_absolute_error "
    "mean_absolute_error kl_divergence relative_euclidean_distance cmp_fail_reason [algorithms]";
inline constexpr std::string_view kMoreTensorColumns =
    "kl_row_mean kl_row_max value_count compared_count masked_count nan_only_in_golden "
    "nan_only_in_my nan_in_both inf_only_in_golden inf_only_in_my inf_in_both inf_sign_mismatches "
    "worst_absolute_index worst_relative_index outside_tolerance "
    "node rank matched_by confidence note result exceeded";
inline constexpr std::string_view kStatisticsColumns =
    "token_id data_id golden_data_path golden_op_type my_data_path my_op_type "
    "max_stat_absolute_error max_stat_relative_error min_stat_absolute_error "
    "min_stat_relative_error mean_stat_absolute_error mean_stat_relative_error "
    "l2norm_stat_absolute_error l2norm_stat_relative_error";
inline constexpr std::string_view kMoreStatisticsColumns =
    "cmp_fail_reason golden_max_value golden_min_value golden_mean_value golden_l2norm_value "
    "my_max_value my_min_value my_mean_value my_l2norm_value "
    "node rank matched_by confidence note result exceeded";
inline constexpr std::string_view kWeightColumns =
    "weight_name golden_dtype golden_shape golden_max_value golden_min_value golden_mean_value "
    "my_dtype my_shape my_max_value my_min_value my_mean_value "
    "cosine_similarity max_relative_error mean_relative_error max_absolute_error "
    "mean_absolute_error kl_divergence relative_euclidean_distance";
inline constexpr std::string_view kMoreWeightColumns =
    "cmp_fail_reason [algorithms] sqnr_db quantisation value_count compared_count "
    "nan_only_in_golden nan_only_in_my nan_in_both inf_only_in_golden inf_only_in_my inf_in_both "
    "inf_sign_mismatches worst_absolute_index outside_tolerance golden_data_path my_data_path "
    "matched_by note result exceeded";
inline constexpr std::string_view kVerdictColumns =
    "err_in err_out err_own own_source noise_floor amplification verdict verdict_confidence";

/// The defaults are our own report.
struct Style {
  std::string_view tensors = kTensorColumns;
  std::string_view more_tensors = kMoreTensorColumns;
  std::string_view statistics = kStatisticsColumns;
  std::string_view more_statistics = kMoreStatisticsColumns;
  std::string_view weights = kWeightColumns;
  std::string_view more_weights = kMoreWeightColumns;
  std::string_view verdict = kVerdictColumns;
  /// Columns that mean something else than the common ones of their names; null: none.
  Columns<JudgedRow> (*own_columns)() = nullptr;
  /// Another program's report to the letter: texts that a spreadsheet would run are not marked,
  /// rows of statistics that have a reason are left out, a workbook keeps the rows that its csv
  /// leaves out and has no summary, and no file is written twice.
  bool to_the_letter = false;
  /// The only file of two runs, a csv of all sheets without a column "level"; null: files with the
  /// usual names.
  std::string (*only_file)(const std::string& folder) = nullptr;
};

inline constexpr Style kOurStyle{};

/// The columns of a table of this comparison.
[[nodiscard]] Columns<JudgedRow> columns_of(const compare::Comparison& comparison,
                                            const Style& style, bool with_verdicts);

}  // namespace assay::report
