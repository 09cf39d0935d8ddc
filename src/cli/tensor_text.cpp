// SPDX-License-Identifier: Apache-2.0
// Values are written with the fewest digits that read back as the same number. Histograms read the
// tensor in blocks.
#include "cli/tensor_text.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "tensor/convert.hpp"

namespace assay::cli {
namespace {

constexpr int64_t kBlockElements = 65536;

/// Shortest digits that give the same float, or the same double.
std::string real_text(double value, bool as_double) {
  char buffer[40];
  const auto end =
      as_double ? std::to_chars(buffer, buffer + sizeof(buffer), value).ptr
                : std::to_chars(buffer, buffer + sizeof(buffer), static_cast<float>(value)).ptr;
  return {buffer, end};
}

template <typename Integer>
std::vector<std::string> integer_texts(const TensorView& view, int64_t first, int64_t count) {
  std::vector<Integer> values(static_cast<size_t>(count));
  gather_bytes(view, first, count, std::as_writable_bytes(std::span(values)));
  std::vector<std::string> texts;
  for (const Integer value : values)
    texts.push_back(std::to_string(view.negative ? Integer{} - value : value));
  return texts;
}

std::string index_text(const Dims& shape, int64_t flat_index) {
  Dims index;
  index.resize(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    index[i] = flat_index % shape[i];
    flat_index /= shape[i];
  }
  return list_text(index.span());
}

}  // namespace

std::vector<std::string> value_texts(const TensorView& view, int64_t first, int64_t count) {
  // Only these two have values that a double cannot hold.
  if (view.dtype == DType::Int64) return integer_texts<int64_t>(view, first, count);
  if (view.dtype == DType::UInt64) return integer_texts<uint64_t>(view, first, count);
  const int per_element = values_per_element(view.dtype);
  std::vector<double> values(static_cast<size_t>(count * per_element));
  read_values(view, first, count, values);
  const bool as_double =
      view.dtype == DType::Float64 || view.dtype == DType::Complex128 || is_integer(view.dtype);
  std::vector<std::string> texts;
  if (is_complex(view.dtype)) {
    for (size_t i = 0; i + 1 < values.size(); i += 2) {
      std::string imaginary = real_text(values[i + 1], as_double);
      if (imaginary[0] != '-') imaginary.insert(0, "+");
      texts.push_back(real_text(values[i], as_double) + imaginary + "j");
    }
  } else if (view.dtype == DType::Bool) {
    for (const double value : values) texts.emplace_back(value != 0 ? "True" : "False");
  } else {
    for (const double value : values) texts.push_back(real_text(value, as_double));
  }
  return texts;
}

std::string value_lines(const TensorView& view, int64_t edge, int width) {
  const int64_t total = view.element_count();
  std::string out;
  const auto append_range = [&](int64_t begin, int64_t end) {
    constexpr int64_t kValueColumns = 14;
    const int64_t index_columns =
        static_cast<int64_t>(index_text(view.shape, std::max<int64_t>(total - 1, 0)).size()) + 2;
    const int64_t last_dimension =
        view.shape.empty() ? 1 : std::max<int64_t>(view.shape[view.shape.size() - 1], 1);
    const int64_t per_line = std::clamp<int64_t>((width - index_columns) / kValueColumns, 1, 16);
    for (int64_t i = begin; i < end;) {
      // A line never runs over the end of the last dimension, so that columns mean the same in
      // every line.
      const int64_t stop = std::min({end, i + per_line, (i / last_dimension + 1) * last_dimension});
      std::string line = index_text(view.shape, i);
      line.resize(std::max(line.size(), static_cast<size_t>(index_columns)), ' ');
      for (const std::string& text : value_texts(view, i, stop - i)) {
        line.append(text.size() < kValueColumns ? kValueColumns - text.size() : 1, ' ');
        line += text;
      }
      out += line + '\n';
      i = stop;
    }
  };
  if (total == 0) return "(no elements)\n";
  if (edge < 0 || total <= 2 * edge) {
    append_range(0, total);
  } else {
    append_range(0, edge);
    out += "... " + std::to_string(total - 2 * edge) + " more (--all shows them)\n";
    append_range(total - edge, total);
  }
  return out;
}

std::string histogram_lines(const TensorView& view, const stats::TensorStats& stats, int bins,
                            int width) {
  if (stats.finite_count() == 0 || !(stats.min <= stats.max)) return "(no finite values)\n";
  if (stats.min == stats.max) bins = 1;
  // Halves keep the range finite when it spans most of the doubles.
  const double half_range = stats.max / 2 - stats.min / 2;
  std::vector<int64_t> counts(static_cast<size_t>(bins));
  const int per_element = values_per_element(view.dtype);
  const int64_t total = view.element_count();
  std::vector<double> values;
  for (int64_t first = 0; first < total; first += kBlockElements) {
    const int64_t count = std::min(kBlockElements, total - first);
    values.resize(static_cast<size_t>(count * per_element));
    read_values(view, first, count, values);
    for (size_t i = 0; i < values.size(); i += is_complex(view.dtype) ? 2 : 1) {
      const double value =
          is_complex(view.dtype) ? std::hypot(values[i], values[i + 1]) : values[i];
      if (!std::isfinite(value)) continue;
      const double position = half_range > 0 ? (value / 2 - stats.min / 2) / half_range * bins : 0;
      ++counts[static_cast<size_t>(std::clamp(position, 0.0, bins - 1.0))];
    }
  }
  const int64_t highest = *std::max_element(counts.begin(), counts.end());
  constexpr int kEdgeColumns = 13;
  const int count_columns = static_cast<int>(std::to_string(highest).size());
  const int bar_columns = std::max(8, width - kEdgeColumns - count_columns - 4);
  std::string out;
  for (int bin = 0; bin < bins; ++bin) {
    const int64_t count = counts[static_cast<size_t>(bin)];
    const double lower = stats.min + 2 * (half_range * (static_cast<double>(bin) / bins));
    // A bin that is not empty shows at least one mark.
    auto bar = static_cast<size_t>(
        std::llround(static_cast<double>(count) / static_cast<double>(highest) * bar_columns));
    if (count > 0) bar = std::max<size_t>(bar, 1);
    char head[64];
    std::snprintf(head, sizeof(head), "%*s  ", kEdgeColumns, short_number(lower).c_str());
    out += head + std::string(bar, '#') +
           std::string(static_cast<size_t>(bar_columns) + 1 -
                           std::min(bar, static_cast<size_t>(bar_columns)),
                       ' ');
    char tail[64];
    std::snprintf(tail, sizeof(tail), "%*lld\n", count_columns, static_cast<long long>(count));
    out += tail;
  }
  if (stats.has_non_finite()) {
    out += "left out: " + std::to_string(stats.nan_count) + " NaN, " +
           std::to_string(stats.positive_inf_count) + " +Inf, " +
           std::to_string(stats.negative_inf_count) + " -Inf\n";
  }
  return out;
}

std::string short_number(double value) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return text;
}

}  // namespace assay::cli
