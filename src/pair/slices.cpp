// SPDX-License-Identifier: Apache-2.0
// Two rules that cut a tensor down to what the other side holds, and readers of the small integer
// tensors and shapes that such rules ask for.
#include "pair/slices.hpp"

#include <array>
#include <cmath>

#include "run/load.hpp"
#include "tensor/convert.hpp"

namespace assay::pair {
namespace {

int64_t last_axis(const Dims& shape) { return shape.empty() ? 1 : shape[shape.size() - 1]; }

RecipeStep select(int axis, int64_t index) {
  return {.kind = RecipeStep::Kind::Select, .axis = axis, .first = index};
}

}  // namespace

std::optional<std::vector<RecipeStep>> last_row(const Dims& many, const Dims& one) {
  const std::optional<int64_t> elements = element_count(one);
  const size_t rank = many.size();
  if (rank < 2 || one.empty() || !elements || *elements <= 0) return std::nullopt;
  if (last_axis(many) != last_axis(one) || *elements != last_axis(one)) return std::nullopt;
  const int64_t rows = many[rank - 2];
  for (size_t axis = 0; axis + 2 < rank; ++axis) {
    if (many[axis] != 1) return std::nullopt;  // several sequences: which one is not known
  }
  if (rows < 2) return std::nullopt;
  return std::vector<RecipeStep>{select(static_cast<int>(rank) - 2, rows - 1)};
}

std::optional<RopeSlice> rope_slice(const Dims& golden, const Dims& mine, int64_t length, int type,
                                    bool strict) {
  const std::optional<int64_t> golden_count = element_count(golden);
  const std::optional<int64_t> mine_count = element_count(mine);
  if (!golden_count || !mine_count) return std::nullopt;
  if (*golden_count == *mine_count && !strict) return RopeSlice{};
  RopeSlice slice;
  slice.note = "position " + std::to_string(length - 1);
  const auto inside = [&](int64_t size) {
    return length >= 1 && (strict ? length < size : length <= size);
  };
  int64_t left = 0;
  // A batch of 1 is taken off rank 4, and rank 3 gets a first axis of 1: both have two axes then.
  const auto without_batch = [&](RecipeStep step) {
    std::vector<RecipeStep> steps = {std::move(step)};
    if (golden[0] == 1) steps.push_back(select(0, 0));
    return steps;
  };
  if (golden.size() == 4 && inside(golden[2])) {
    slice.golden = without_batch(select(2, length - 1));
    left = *golden_count / golden[2];
  } else if (golden.size() == 4 && inside(golden[1])) {
    slice.golden = without_batch(select(1, length - 1));
    left = *golden_count / golden[1];
  } else if (golden.size() == 3 && inside(golden[0]) && type < golden[2]) {
    left = golden[1];
    slice.golden = {select(0, length - 1),
                    select(1, type),
                    {.kind = RecipeStep::Kind::Reshape, .shape = {1, left}}};
  } else {
    return std::nullopt;
  }
  // Both halves of a rotary row hold the same angles; PyTorch keeps one of them in some models.
  if (mine.size() == 2 && mine[0] == 1 && mine[1] == 2 * left) {
    slice.mine = {{.kind = RecipeStep::Kind::Range, .axis = 1, .first = 0, .last = left}};
  } else if (*mine_count != left) {
    return std::nullopt;
  }
  return slice;
}

std::optional<int64_t> integer_value(const run::TensorRecord& record) {
  const Result<Tensor> tensor = run::load_tensor(record);
  if (!tensor || tensor->view.element_count() != 1 || values_per_element(tensor->view.dtype) != 1)
    return std::nullopt;
  std::array<double, 1> value{};
  read_values(tensor->view, 0, 1, value);
  if (!std::isfinite(value[0]) || std::abs(value[0]) > 1e15) return std::nullopt;
  return static_cast<int64_t>(value[0]);
}

std::optional<std::vector<int64_t>> integer_values(const run::TensorRecord& record) {
  if (!record.bytes || !record.dtype || !is_integer(*record.dtype)) return std::nullopt;
  const Result<Tensor> tensor = run::load_tensor(record);
  if (!tensor) return std::nullopt;
  std::vector<double> values(static_cast<size_t>(tensor->view.element_count()));
  read_values(tensor->view, 0, tensor->view.element_count(), values);
  return std::vector<int64_t>(values.begin(), values.end());
}

std::optional<Dims> shape_of_record(const run::TensorRecord& record) {
  if (record.shape) return record.shape;
  run::TensorRecord copy = record;
  return run::load_header(copy) ? copy.shape : std::nullopt;
}

}  // namespace assay::pair
