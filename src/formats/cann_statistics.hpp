// SPDX-License-Identifier: Apache-2.0
// Statistics of the operands of one operator, as CANN writes them with dump_data = stats.
// Columns: docs/formats/cann-statistics.md
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "stats/tensor_stats.hpp"
#include "tensor/dims.hpp"
#include "tensor/dtype.hpp"

namespace assay::formats {

/// One selectable statistic, in the order of the columns.
enum class CannStatistic : uint8_t { Max, Min, Average, Nan, NegativeInf, PositiveInf, L2Norm };

/// "Max", "Min", "Avg", "Nan", "Negative Inf", "Positive Inf", "L2norm": case and blanks exact.
[[nodiscard]] std::optional<CannStatistic> cann_statistic(std::string_view name);

struct CannStatisticsRow {
  bool is_input = true;
  uint32_t index = 0;  // of the operator in our files, of the file in the vendor's
  uint64_t size_bytes = 0;
  std::string data_type;      // "DT_FLOAT"; "-" or "UNKNOW" when the writer did not know
  std::string format;         // "ND", "-"
  std::optional<Dims> shape;  // empty: a scalar
  std::optional<uint64_t> count;
  std::optional<double> max, min, average, l2_norm;  // nothing: the column is absent, empty or NA
  std::optional<uint64_t> nan, negative_inf, positive_inf;
};

/// Both dialects: the thirteen classic columns, or Count and a choice of statistics behind Shape.
///
/// text      the whole file; never trusted. A row that cannot be read gives a warning and is left
///           out.
/// errors    Invalid (the first line is no such header) | TooLarge (more than 1 M rows)
struct CannStatistics {
  std::vector<CannStatisticsRow> rows;
  std::vector<std::string> warnings;
};
[[nodiscard]] Result<CannStatistics> read_cann_statistics(std::string_view text);

/// True when the first line can only be the header of such a file.
[[nodiscard]] bool looks_like_cann_statistics(std::string_view text);

/// The file's text with a header line. `chosen` empty means the six of the classic header. Numbers
/// have as many digits as they need to be read back as float32, those of integers and of 64-bit
/// types as float64; counts are integers; what is absent is NA.
[[nodiscard]] std::string write_cann_statistics(const std::vector<CannStatisticsRow>& rows,
                                                const std::vector<CannStatistic>& chosen = {});

/// A row of the statistics that this project computes. NaN is counted and left out of max, min,
/// average and norm; infinities take part. Of an empty tensor, and of NaN alone, these four are
/// absent.
[[nodiscard]] CannStatisticsRow cann_statistics_row(bool is_input, uint32_t index, DType dtype,
                                                    const Dims& shape,
                                                    const stats::TensorStats& stats);

}  // namespace assay::formats
