// SPDX-License-Identifier: Apache-2.0
// Two tables hold the best sums in front of each place and from it on. A pair is in a best
// alignment when both and its own similarity make the best sum; it counts when it has no rival.
#include "pair/align_operands.hpp"

#include <algorithm>

namespace assay::pair {
namespace {

constexpr size_t kMaxCells = 1'000'000;

bool same_kind(DType a, DType b) {
  const auto is_whole = [](DType dtype) {
    return is_integer(dtype) || info(dtype).kind == DTypeKind::Bool;
  };
  return info(a).kind == info(b).kind || (is_whole(a) && is_whole(b));
}

/// A table of (rows + 1) x (columns + 1) sums.
struct Table {
  Table(size_t rows, size_t columns) : width(columns + 1), cells((rows + 1) * width, 0) {}
  int& at(size_t row, size_t column) { return cells[row * width + column]; }
  size_t width;
  std::vector<int> cells;
};

}  // namespace

int operand_similarity(const OperandShape& a, const OperandShape& b) {
  int similarity = 1;
  if (a.dtype && b.dtype) {
    if (!same_kind(*a.dtype, *b.dtype)) return 0;
    similarity += *a.dtype == *b.dtype ? 1 : 0;
  }
  if (a.shape && b.shape) {
    if (element_count(*a.shape) != element_count(*b.shape)) return 0;
    similarity += *a.shape == *b.shape ? 2 : 0;
  }
  return similarity;
}

OperandAlignment align_operands(const std::vector<OperandShape>& first,
                                const std::vector<OperandShape>& second) {
  OperandAlignment out;
  const size_t rows = first.size();
  const size_t columns = second.size();
  if (rows == 0 || columns == 0) return out;
  if (rows > kMaxCells / columns) {
    for (size_t i = 0; i < rows; ++i) out.ambiguous_first.push_back(i);
    for (size_t j = 0; j < columns; ++j) out.ambiguous_second.push_back(j);
    return out;
  }
  // Best sums of what stands before, and of what stands from (i, j) on.
  Table before(rows, columns);
  Table behind(rows, columns);
  Table similarity(rows, columns);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < columns; ++j) {
      const int here = operand_similarity(first[i], second[j]);
      similarity.at(i, j) = here;
      before.at(i + 1, j + 1) = std::max(
          {before.at(i, j + 1), before.at(i + 1, j), here == 0 ? 0 : before.at(i, j) + here});
    }
  }
  for (size_t i = rows; i-- > 0;) {
    for (size_t j = columns; j-- > 0;) {
      const int here = similarity.at(i, j);
      behind.at(i, j) = std::max({behind.at(i + 1, j), behind.at(i, j + 1),
                                  here == 0 ? 0 : behind.at(i + 1, j + 1) + here});
    }
  }
  const int best = behind.at(0, 0);
  // Partners in some best alignment.
  std::vector<std::vector<size_t>> of_first(rows);
  std::vector<size_t> of_second(columns, 0);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < columns; ++j) {
      const int here = similarity.at(i, j);
      if (here == 0 || before.at(i, j) + here + behind.at(i + 1, j + 1) != best) continue;
      of_first[i].push_back(j);
      ++of_second[j];
    }
  }
  for (size_t i = 0; i < rows; ++i) {
    if (of_first[i].size() == 1 && of_second[of_first[i][0]] == 1) {
      out.pairs.emplace_back(i, of_first[i][0]);
    } else if (!of_first[i].empty()) {
      out.ambiguous_first.push_back(i);
    }
  }
  for (size_t j = 0; j < columns; ++j) {
    const bool paired = std::any_of(out.pairs.begin(), out.pairs.end(),
                                    [j](const auto& pair) { return pair.second == j; });
    if (of_second[j] > 0 && !paired) out.ambiguous_second.push_back(j);
  }
  return out;
}

}  // namespace assay::pair
