// SPDX-License-Identifier: Apache-2.0
// One walk over the rows serves the softmax and its gradient: it checks that heads and lengths make
// up the element count, then names first element and length of each row.
#include "reference/norms/block_softmax.hpp"

#include <string>

#include "reference/attention/softmax_row.hpp"
#include "reference/norms/rows.hpp"
#include "tensor/sentence.hpp"

namespace assay::reference {
namespace {

/// Rows one after the other: (first element, length) of each goes to `visit`.
/// errors  Invalid when they do not end with the last element
template <typename Visit>
Status for_each_block_row(int64_t elements, int64_t heads, std::span<const int64_t> seq_lens,
                          Visit visit) {
  const auto refuse = [&] {
    return fail(Errc::Invalid, elements, " elements are not ", heads, " heads of the sequences ",
                seq_lens);
  };
  if (heads < 0) return refuse();
  int64_t needed = 0;
  for (const int64_t length : seq_lens) {
    const std::optional<int64_t> block =
        length < 0 ? std::nullopt : element_count(Dims{heads, length, length});
    if (!block || *block > elements - needed) return refuse();
    needed += *block;
  }
  if (needed != elements) return refuse();
  int64_t first = 0;
  for (const int64_t length : seq_lens) {
    for (int64_t row = 0; row < (length == 0 ? 0 : heads * length); ++row, first += length)
      visit(first, length);
  }
  return {};
}

}  // namespace

Result<Wide> block_softmax(const TensorView& x, int64_t heads, std::span<const int64_t> seq_lens) {
  ASSAY_TRY(Wide result, widen(x));
  ASSAY_TRY_STATUS(for_each_block_row(
      result.size(), heads, seq_lens,
      [&](int64_t first, int64_t length) { softmax_row(result.data() + first, length); }));
  return result;
}

Result<Wide> block_softmax_gradient(const TensorView& y, const TensorView& dy, int64_t heads,
                                    std::span<const int64_t> seq_lens) {
  if (y.shape != dy.shape)
    return fail(Errc::Invalid, "y has shape ", y.shape, ", dy has shape ", dy.shape);
  ASSAY_TRY(const Wide values, widen(y));
  ASSAY_TRY(Wide result, widen(dy));
  ASSAY_TRY_STATUS(
      for_each_block_row(result.size(), heads, seq_lens, [&](int64_t first, int64_t length) {
        const double* row = values.data() + first;
        double* gradient = result.data() + first;
        normalise_row(gradient, length, row_dot(row, gradient, length), 1.0, row, nullptr);
      }));
  return result;
}

}  // namespace assay::reference
