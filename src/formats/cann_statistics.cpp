// SPDX-License-Identifier: Apache-2.0
// A table with a row for each operand. Columns are found by name, since the two dialects order them
// differently:
//
//   Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,Nan Count,...    classic
//   Input/Output,Index,Data Size,Data Type,Format,Shape,Count,Max Value,...                                  host
//   Input,0,8,DT_FLOAT,ND,2,1,-2,-0.5,2,0,0,0
#include "formats/cann_statistics.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/numbers.hpp"
#include "base/text.hpp"
#include "formats/cann_types.hpp"
#include "formats/csv.hpp"

namespace assay::formats {
namespace {

constexpr size_t kMaxRows = 1'000'000;
constexpr size_t kMaxRank = 64;
constexpr std::string_view kNotAvailable = "NA";

constexpr std::array<std::string_view, 6> kBaseColumns = {"Input/Output", "Index",  "Data Size",
                                                          "Data Type",    "Format", "Shape"};
constexpr std::string_view kCountColumn = "Count";

struct StatisticNames {
  CannStatistic statistic;
  std::string_view option;  // in a dump's configuration
  std::string_view column;
};
constexpr std::array<StatisticNames, 7> kStatistics = {{
    {CannStatistic::Max, "Max", "Max Value"},
    {CannStatistic::Min, "Min", "Min Value"},
    {CannStatistic::Average, "Avg", "Avg Value"},
    {CannStatistic::Nan, "Nan", "Nan Count"},
    {CannStatistic::NegativeInf, "Negative Inf", "Negative Inf Count"},
    {CannStatistic::PositiveInf, "Positive Inf", "Positive Inf Count"},
    {CannStatistic::L2Norm, "L2norm", "l2norm"},
}};
constexpr size_t kClassicStatistics = 6;

// ---- writing ------------------------------------------------------------------------------------

/// The columns behind Shape, in the file's order; an empty name stands for Count.
std::vector<const StatisticNames*> statistic_columns(const std::vector<CannStatistic>& chosen) {
  std::vector<const StatisticNames*> columns;
  for (const StatisticNames& names : kStatistics) {
    const bool wanted =
        chosen.empty() ? names.statistic != CannStatistic::L2Norm
                       : std::find(chosen.begin(), chosen.end(), names.statistic) != chosen.end();
    if (wanted) columns.push_back(&names);
  }
  const bool is_classic = columns.size() == kClassicStatistics &&
                          columns.back()->statistic == CannStatistic::PositiveInf;
  // The classic header has Count behind the average, every other one behind Shape.
  columns.insert(columns.begin() + (is_classic ? 3 : 0), nullptr);
  return columns;
}

enum class Digits : uint8_t { Single, Double };

Digits digits_of(std::string_view data_type) {
  const std::optional<DType> dtype = [&]() -> std::optional<DType> {
    const std::optional<int32_t> number = cann_dtype_from_name(data_type);
    return number ? dtype_from_cann(*number) : std::nullopt;
  }();
  // The types without one here have at most six bits.
  if (!dtype) return data_type.starts_with("DT_FLOAT") ? Digits::Single : Digits::Double;
  const bool is_narrow_float = (is_float(*dtype) && *dtype != DType::Float64) ||
                               *dtype == DType::Complex64 || *dtype == DType::Complex32;
  return is_narrow_float ? Digits::Single : Digits::Double;
}

std::string number_text(double value, Digits digits) {
  // Whole numbers of any integer type that a double holds stay as they are: 1000000, not 1e+06.
  constexpr double kLargestExact = 9007199254740992.0;  // 2^53
  if (std::isnan(value)) return "nan";
  const auto single = static_cast<float>(value);
  // An L2 norm can leave float32's range although no value does.
  const bool fits = digits == Digits::Single && (std::isfinite(single) || !std::isfinite(value)) &&
                    (single != 0 || value == 0);
  const double written = fits ? double{single} : value;
  if (std::abs(written) <= kLargestExact && written == std::trunc(written))
    return std::to_string(static_cast<int64_t>(written));
  std::array<char, 32> text;
  const std::to_chars_result result =
      fits ? std::to_chars(text.data(), text.data() + text.size(), single)
           : std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), result.ptr};
}

std::string value_cell(const CannStatisticsRow& row, const StatisticNames* column) {
  const auto number = [&](const std::optional<double>& value) {
    return value ? number_text(*value, digits_of(row.data_type)) : std::string(kNotAvailable);
  };
  const auto count = [](const std::optional<uint64_t>& value) {
    return value ? std::to_string(*value) : std::string(kNotAvailable);
  };
  if (column == nullptr) return count(row.count);
  switch (column->statistic) {
    case CannStatistic::Max:
      return number(row.max);
    case CannStatistic::Min:
      return number(row.min);
    case CannStatistic::Average:
      return number(row.average);
    case CannStatistic::Nan:
      return count(row.nan);
    case CannStatistic::NegativeInf:
      return count(row.negative_inf);
    case CannStatistic::PositiveInf:
      return count(row.positive_inf);
    case CannStatistic::L2Norm:
      return number(row.l2_norm);
  }
  return std::string(kNotAvailable);
}

/// "2x3"; "-" for a scalar.
std::string shape_cell(const std::optional<Dims>& shape) {
  if (!shape || shape->empty()) return "-";
  std::string text;
  for (const int64_t size : *shape) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text;
}

// ---- reading ------------------------------------------------------------------------------------

/// Where the columns of a file are; npos: it does not have the column.
struct Columns {
  static constexpr size_t npos = static_cast<size_t>(-1);
  size_t count = npos;
  std::array<size_t, kStatistics.size()> statistic;
};

std::optional<Columns> columns_of(const std::vector<std::string>& header) {
  if (header.size() < kBaseColumns.size() ||
      !std::equal(kBaseColumns.begin(), kBaseColumns.end(), header.begin()))
    return std::nullopt;
  Columns columns;
  columns.statistic.fill(Columns::npos);
  for (size_t i = kBaseColumns.size(); i < header.size(); ++i) {
    if (header[i] == kCountColumn) columns.count = i;
    for (size_t k = 0; k < kStatistics.size(); ++k) {
      if (header[i] == kStatistics[k].column) columns.statistic[k] = i;
    }
  }
  return columns;
}

std::optional<Dims> shape_of(std::string_view cell) {
  Dims shape;
  if (cell == "-") return shape;
  for (const std::string_view part : split(cell, 'x')) {
    const auto size = parse_number<int64_t>(part);
    if (!size || shape.size() == kMaxRank) return std::nullopt;
    shape.push_back(*size);
  }
  return shape;
}

/// The cell's number; nothing when it is empty, NA or not there. `problem` names a cell that is
/// none of these.
template <typename Number>
std::optional<Number> number_of(const std::vector<std::string>& cells, size_t column,
                                std::string* problem) {
  if (column >= cells.size()) return std::nullopt;
  const std::string& cell = cells[column];
  if (cell.empty() || cell == kNotAvailable || cell == "-") return std::nullopt;
  const auto number = parse_number<Number>(cell);
  if (!number) *problem = "\"" + repair_utf8(cell.substr(0, 40)) + "\" is no number";
  return number;
}

Result<CannStatisticsRow> row_of(const std::vector<std::string>& cells, const Columns& columns,
                                 std::string* problem) {
  if (cells.size() < kBaseColumns.size())
    return fail(Errc::Invalid, "has " + std::to_string(cells.size()) + " cells");
  if (cells[0] != "Input" && cells[0] != "Output")
    return fail(Errc::Invalid, "is neither an input nor an output");
  CannStatisticsRow row;
  row.is_input = cells[0] == "Input";
  const auto index = parse_number<uint32_t>(cells[1]);
  const auto size_bytes = parse_number<uint64_t>(cells[2]);
  if (!index || !size_bytes) return fail(Errc::Invalid, "has no index or no size");
  row.index = *index;
  row.size_bytes = *size_bytes;
  row.data_type = repair_utf8(cells[3]);
  row.format = repair_utf8(cells[4]);
  row.shape = shape_of(cells[5]);
  if (!row.shape) *problem = "\"" + repair_utf8(cells[5].substr(0, 40)) + "\" is no shape";
  const auto at = [&](CannStatistic statistic) {
    return columns.statistic[static_cast<size_t>(statistic)];
  };
  row.count = number_of<uint64_t>(cells, columns.count, problem);
  row.max = number_of<double>(cells, at(CannStatistic::Max), problem);
  row.min = number_of<double>(cells, at(CannStatistic::Min), problem);
  row.average = number_of<double>(cells, at(CannStatistic::Average), problem);
  row.nan = number_of<uint64_t>(cells, at(CannStatistic::Nan), problem);
  row.negative_inf = number_of<uint64_t>(cells, at(CannStatistic::NegativeInf), problem);
  row.positive_inf = number_of<uint64_t>(cells, at(CannStatistic::PositiveInf), problem);
  row.l2_norm = number_of<double>(cells, at(CannStatistic::L2Norm), problem);
  return row;
}

// ---- our statistics -----------------------------------------------------------------------------

std::optional<double> if_known(double value, bool known) {
  return known ? std::optional(value) : std::nullopt;
}

}  // namespace

std::optional<CannStatistic> cann_statistic(std::string_view name) {
  for (const StatisticNames& names : kStatistics) {
    if (names.option == name) return names.statistic;
  }
  return std::nullopt;
}

bool looks_like_cann_statistics(std::string_view text) {
  const CsvTable first = read_csv(text.substr(0, std::min(text.find('\n'), size_t{4096})));
  return !first.rows.empty() && columns_of(first.rows[0]).has_value();
}

Result<CannStatistics> read_cann_statistics(std::string_view text) {
  if (!looks_like_cann_statistics(text))
    return fail(Errc::Invalid,
                "the first line is not \"Input/Output,Index,Data Size,Data Type,Format,Shape,...\"",
                0);
  if (std::count(text.begin(), text.end(), '\n') > static_cast<std::ptrdiff_t>(kMaxRows + 1))
    return fail(Errc::TooLarge, "more than 1000000 rows");
  const CsvTable table = read_csv(text);
  const std::optional<Columns> columns = columns_of(table.rows[0]);
  if (!columns) return fail(Errc::Invalid, "the first line is no header of statistics", 0);
  CannStatistics statistics;
  for (size_t i = 1; i < table.rows.size(); ++i) {
    std::string problem;
    Result<CannStatisticsRow> row = row_of(table.rows[i], *columns, &problem);
    if (!row) problem = row.error().message;
    if (!problem.empty())
      statistics.warnings.push_back("row " + std::to_string(i) + " " +
                                    (row ? "has a cell that cannot be read: " : "is left out: ") +
                                    problem);
    if (row) statistics.rows.push_back(*std::move(row));
  }
  if (table.unterminated_quote) statistics.warnings.emplace_back("the file ends inside a quote");
  return statistics;
}

std::string write_cann_statistics(const std::vector<CannStatisticsRow>& rows,
                                  const std::vector<CannStatistic>& chosen) {
  const CsvOptions options{.line_end = "\n"};
  const std::vector<const StatisticNames*> columns = statistic_columns(chosen);
  std::vector<std::string> cells(kBaseColumns.begin(), kBaseColumns.end());
  for (const StatisticNames* column : columns)
    cells.emplace_back(column == nullptr ? kCountColumn : column->column);
  std::string text;
  append_csv_row(cells, options, &text);
  for (const CannStatisticsRow& row : rows) {
    cells = {row.is_input ? "Input" : "Output",
             std::to_string(row.index),
             std::to_string(row.size_bytes),
             row.data_type,
             row.format,
             shape_cell(row.shape)};
    for (const StatisticNames* column : columns) cells.push_back(value_cell(row, column));
    append_csv_row(cells, options, &text);
  }
  return text;
}

CannStatisticsRow cann_statistics_row(bool is_input, uint32_t index, DType dtype, const Dims& shape,
                                      const stats::TensorStats& stats) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const int64_t count = element_count(shape).value_or(0);
  const std::optional<int32_t> number = cann_from_dtype(dtype);
  CannStatisticsRow row;
  row.is_input = is_input;
  row.index = index;
  row.size_bytes = storage_bytes(dtype, static_cast<uint64_t>(count)).value_or(0);
  row.data_type = number ? cann_dtype_name(*number) : "UNKNOW";
  row.format = cann_format_name(kCannFormatNd);
  row.shape = cann_shape(dtype, shape);
  row.count = static_cast<uint64_t>(element_count(*row.shape).value_or(0));
  // Bits types have elements and no values.
  if (stats.count == 0 && count != 0) return row;
  row.nan = static_cast<uint64_t>(stats.nan_count);
  row.negative_inf = static_cast<uint64_t>(stats.negative_inf_count);
  row.positive_inf = static_cast<uint64_t>(stats.positive_inf_count);
  const bool up = stats.positive_inf_count != 0;
  const bool down = stats.negative_inf_count != 0;
  const bool known = stats.count != stats.nan_count;
  const bool finite = stats.finite_count() != 0;
  row.max = if_known(up ? kInf : finite ? stats.max : -kInf, known);
  row.min = if_known(down ? -kInf : finite ? stats.min : kInf, known);
  row.average = if_known(up && down ? NAN : up ? kInf : down ? -kInf : stats.mean, known);
  row.l2_norm = if_known(up || down ? kInf : stats.l2_norm, known);
  return row;
}

}  // namespace assay::formats
