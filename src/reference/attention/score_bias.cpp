// SPDX-License-Identifier: Apache-2.0
// The terms of a row are added in this order: the dense mask or its shifted blocks, the slopes of
// ALiBi, then what the causal rule and the window forbid.
#include "reference/attention/score_bias.hpp"

#include <algorithm>
#include <cmath>

#include "reference/attention/softmax_row.hpp"
#include "tensor/convert.hpp"

namespace assay::reference {
namespace {

/// Columns [first, first + out.size()) of a row of a [heads, rows, columns] view.
void read_row(const TensorView& dense, int64_t head, int64_t row, std::span<double> out) {
  TensorView line = dense;
  line.offset_elements += head * dense.strides[0] + row * dense.strides[1];
  line.shape = {static_cast<int64_t>(out.size())};
  line.strides = {dense.strides[2]};
  read_values(line, 0, static_cast<int64_t>(out.size()), out);
}

void add_dense(const ScoreBias& bias, int64_t head, int64_t row, std::span<double> scores,
               std::span<double> scratch) {
  const double of_head =
      bias.head_coefficients.empty() ? 1 : bias.head_coefficients[static_cast<size_t>(head)];
  const auto add = [&](std::span<double> part, int64_t from_row) {
    const std::span<double> values = scratch.first(part.size());
    read_row(*bias.dense, head, from_row, values);
    add_row(part.data(), values.data(), static_cast<int64_t>(part.size()),
            bias.coefficient * of_head);
  };
  if (bias.block_columns <= 0) {
    add(scores, row);
    return;
  }
  const auto width = static_cast<size_t>(bias.block_columns);
  int64_t from_row = row;
  for (size_t first = 0; first < scores.size(); first += width, from_row -= bias.block_columns) {
    const std::span<double> part = scores.subspan(first, std::min(width, scores.size() - first));
    if (from_row >= 0) {
      add(part, from_row);
    } else {
      for (double& score : part) score += bias.forbidden;
    }
  }
}

void add_slopes(const ScoreBias& bias, double slope, int64_t position, std::span<double> scores) {
  const auto columns = static_cast<int64_t>(scores.size());
  if (bias.distance == ScoreBias::Distance::Column) {
    for (int64_t j = 0; j < columns; ++j)
      scores[static_cast<size_t>(j)] += slope * static_cast<double>(j);
    return;
  }
  const bool root = bias.distance == ScoreBias::Distance::SquareRoot;
  for (int64_t j = 0; j < std::min(columns, position + 1); ++j) {
    const auto distance = static_cast<double>(position - j);
    scores[static_cast<size_t>(j)] += slope * (root ? std::sqrt(distance) : distance);
  }
}

}  // namespace

void add_bias(const ScoreBias& bias, int64_t head, int64_t row, std::span<double> scores,
              std::span<double> scratch) {
  const auto columns = static_cast<int64_t>(scores.size());
  const int64_t position = row + bias.offset;
  if (bias.dense) add_dense(bias, head, row, scores, scratch);
  if (!bias.slopes.empty())
    add_slopes(bias, bias.slopes[static_cast<size_t>(head)], position, scores);
  const auto forbid = [&](int64_t first, int64_t last) {
    for (int64_t j = std::max<int64_t>(first, 0); j < std::min(last, columns); ++j)
      scores[static_cast<size_t>(j)] += bias.forbidden;
  };
  if (bias.causal) forbid(position + 1, columns);
  if (bias.window > 0) forbid(0, position - bias.window + 1);
}

int64_t visible_columns(const ScoreBias& bias, int64_t row, int64_t columns) {
  if (!bias.causal || !std::isinf(bias.forbidden)) return columns;
  return std::clamp<int64_t>(row + bias.offset + 1, 0, columns);
}

std::vector<double> alibi_slopes(int64_t heads, double max_bias) {
  std::vector<double> slopes;
  if (heads <= 0) return slopes;
  int64_t power = 1;
  while (power * 2 <= heads) power *= 2;
  const auto n = static_cast<double>(power);
  for (int64_t k = 1; k <= power; ++k)
    slopes.push_back(std::exp2(-max_bias * static_cast<double>(k) / n));
  for (int64_t k = 1; k <= heads - power; ++k)
    slopes.push_back(std::exp2(-max_bias / 2 * static_cast<double>(2 * k - 1) / n));
  return slopes;
}

bool is_zero_one(const TensorView& view) {
  constexpr int64_t kBlock = 4096;
  const int64_t count = view.element_count();
  std::vector<double> block(static_cast<size_t>(std::min(count, kBlock)));
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t length = std::min(count - first, kBlock);
    const std::span<double> values(block.data(), static_cast<size_t>(length));
    read_values(view, first, length, values);
    if (!std::all_of(values.begin(), values.end(), [](double v) { return v == 0 || v == 1; }))
      return false;
  }
  return count > 0;
}

}  // namespace assay::reference
