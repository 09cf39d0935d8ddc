// SPDX-License-Identifier: Apache-2.0
#include "reference/movement/collectives.hpp"

#include <algorithm>

#include "reference/movement/assemble.hpp"
#include "reference/movement/bytes.hpp"
#include "reference/movement/views.hpp"
#include "tensor/convert.hpp"
#include "tensor/sentence.hpp"

namespace assay::reference {
namespace {

Status check_equal_shapes(std::span<const Tensor> ranks) {
  if (ranks.empty()) return fail(Errc::Invalid, "no rank has data");
  for (size_t i = 1; i < ranks.size(); ++i) {
    if (ranks[i].view.shape != ranks[0].view.shape || ranks[i].view.dtype != ranks[0].view.dtype)
      return fail(Errc::Invalid, "rank 0 has ", ranks[0].view.dtype, " ", ranks[0].view.shape,
                  ", rank ", i, " has ", ranks[i].view.dtype, " ", ranks[i].view.shape);
  }
  return {};
}

Status check_range(const TensorView& x, int64_t first, int64_t count) {
  const int64_t elements = x.element_count();
  if (first >= 0 && count >= 0 && first <= elements && count <= elements - first) return {};
  return fail(Errc::Invalid, count, " elements from ", first, " on exceed a tensor of shape ",
              x.shape);
}

double reduced(RankReduction reduction, double a, double b) {
  switch (reduction) {
    case RankReduction::Sum:
      return a + b;
    case RankReduction::Product:
      return a * b;
    case RankReduction::Max:
      return std::isnan(a) || a >= b ? a : b;
    case RankReduction::Min:
      return std::isnan(a) || a <= b ? a : b;
  }
  return a;
}

}  // namespace

std::optional<RankReduction> rank_reduction_from_name(std::string_view name) {
  if (name == "sum") return RankReduction::Sum;
  if (name == "max") return RankReduction::Max;
  if (name == "min") return RankReduction::Min;
  if (name == "prod") return RankReduction::Product;
  return std::nullopt;
}

Result<Tensor> flat_part(const Tensor& x, int64_t first, int64_t count) {
  ASSAY_TRY_STATUS(check_range(x.view, first, count));
  ASSAY_TRY(Tensor flat, reshaped(x, {x.view.element_count()}));
  const int64_t sizes[] = {count};
  const int64_t offsets[] = {first};
  return slice(flat, offsets, sizes);
}

Result<Tensor> all_to_all(std::span<const Tensor> ranks, int64_t rank, bool transposed) {
  ASSAY_TRY_STATUS(check_equal_shapes(ranks));
  const auto count = static_cast<int64_t>(ranks.size());
  const TensorView& x = ranks[0].view;
  const int64_t divided = transposed && x.shape.size() == 2 ? x.shape[1] : x.element_count();
  if (rank < 0 || rank >= count || divided % count != 0 || (transposed && x.shape.size() != 2))
    return fail(Errc::Invalid, "a tensor of shape ", x.shape, " cannot be cut for rank ", rank,
                " of ", count, (transposed ? " by columns" : ""));
  const int64_t part = divided / count;
  std::vector<Tensor> parts;
  for (const Tensor& one : ranks) {
    Tensor piece;
    if (transposed) {
      const int64_t offsets[] = {0, rank * part};
      const int64_t sizes[] = {x.shape[0], part};
      ASSAY_TRY(piece, slice(one, offsets, sizes));
    } else {
      ASSAY_TRY(piece, flat_part(one, rank * part, part));
    }
    parts.push_back(std::move(piece));
  }
  ASSAY_TRY(const Tensor joined, concat(parts, 0));
  return transposed ? joined : reshaped(joined, x.shape);
}

Result<Tensor> reduce_part(std::span<const Tensor> ranks, RankReduction reduction, int64_t first,
                           int64_t count) {
  ASSAY_TRY_STATUS(check_equal_shapes(ranks));
  ASSAY_TRY_STATUS(check_range(ranks[0].view, first, count));
  const TensorView part{ranks[0].view.dtype, {count}, {1}, {}, 0, false, false};
  ASSAY_TRY_STATUS(checked_count(part.shape));
  if (values_per_element(part.dtype) != 1)
    return fail(Errc::Unsupported, part.dtype, " values cannot be reduced");
  Wide result(Dims{count});
  if (count == 0) return to_tensor(std::move(result));
  constexpr int64_t kBlock = 8192;
  std::vector<double> block(static_cast<size_t>(std::min(kBlock, count)));
  for (int64_t done = 0; done < count; done += kBlock) {
    const int64_t length = std::min(kBlock, count - done);
    const auto values = std::span(block).first(static_cast<size_t>(length));
    double* out = result.data() + done;
    read_values(ranks[0].view, first + done, length, {out, values.size()});
    for (const Tensor& other : ranks.subspan(1)) {
      read_values(other.view, first + done, length, values);
      for (int64_t i = 0; i < length; ++i)
        out[i] = reduced(reduction, out[i], block[static_cast<size_t>(i)]);
    }
  }
  return to_tensor(std::move(result));
}

}  // namespace assay::reference
