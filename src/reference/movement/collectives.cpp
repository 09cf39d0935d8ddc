// SPDX-License-Identifier: Apache-2.0
// An exchange is a slice of the tensor of each rank and one concatenation. Sums over ranks are in
// products/all_reduce.cpp.
#include "reference/movement/collectives.hpp"

#include "reference/movement/assemble.hpp"
#include "reference/movement/views.hpp"
#include "tensor/sentence.hpp"

namespace assay::reference {
namespace {

Status check_range(const TensorView& x, int64_t first, int64_t count) {
  const int64_t elements = x.element_count();
  if (first >= 0 && count >= 0 && first <= elements && count <= elements - first) return {};
  return fail(Errc::Invalid, count, " elements from ", first, " on exceed a tensor of shape ",
              x.shape);
}

}  // namespace

std::vector<TensorView> views_of(std::span<const Tensor> ranks) {
  std::vector<TensorView> views;
  for (const Tensor& one : ranks) views.push_back(one.view);
  return views;
}

Status check_ranks(std::span<const TensorView> ranks) {
  if (ranks.empty()) return fail(Errc::Invalid, "no rank has data");
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    if (ranks[rank].shape != ranks[0].shape || ranks[rank].dtype != ranks[0].dtype)
      return fail(Errc::Invalid, "rank ", rank, " has ", ranks[rank].dtype, " ", ranks[rank].shape,
                  ", rank 0 ", ranks[0].dtype, " ", ranks[0].shape);
  }
  return {};
}

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
  ASSAY_TRY_STATUS(check_ranks(views_of(ranks)));
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

}  // namespace assay::reference
