// SPDX-License-Identifier: Apache-2.0
// Checks the lengths of the sequences, then cuts out or pastes each sequence as one slice of
// tokens.
//   docs/opcheck/movement.md
#include "reference/movement/sequences.hpp"

#include <algorithm>
#include <cstring>

#include "reference/movement/assemble.hpp"
#include "reference/movement/bytes.hpp"
#include "reference/movement/views.hpp"
#include "tensor/sentence.hpp"

namespace assay::reference {
namespace {

/// errors  Invalid (a length outside [lowest, highest])
Result<int64_t> sum_of_lengths(std::span<const int64_t> lengths, int64_t lowest, int64_t highest) {
  int64_t sum = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < lowest || lengths[i] > highest)
      return fail(Errc::Invalid, "length ", lengths[i], " of sequence ", i, " lies outside [",
                  lowest, ", ", highest, "]");
    if (add_overflows(sum, lengths[i], &sum)) return fail(Errc::TooLarge, "lengths overflow");
  }
  return sum;
}

/// x[first : first + length] along the first dimension.
Result<Tensor> rows_of(const Tensor& x, int64_t first, int64_t length) {
  std::vector<int64_t> offsets(x.view.shape.size(), 0);
  std::vector<int64_t> sizes(x.view.shape.begin(), x.view.shape.end());
  offsets[0] = first;
  sizes[0] = length;
  return slice(x, offsets, sizes);
}

/// x[index]: the first dimension is gone.
Tensor without_first_dim(const Tensor& x, int64_t index) {
  Tensor part = x;
  part.view.shape = Dims(x.view.shape.span().subspan(1));
  part.view.strides = Dims(x.view.strides.span().subspan(1));
  if (part.view.element_count() != 0) part.view.offset_elements += index * x.view.strides[0];
  return part;
}

Status check_rank(const Tensor& x, size_t least, std::string_view what) {
  if (x.view.shape.size() >= least) return {};
  return fail(Errc::Invalid, what, " of shape ", x.view.shape, " needs ", least, " dimensions");
}

/// Any number of parts, one after the other; of none it is `like` without rows.
Result<Tensor> concat_rows(const std::vector<Tensor>& parts, const Tensor& like) {
  if (!parts.empty()) return concat(parts, 0);
  return rows_of(like, 0, 0);
}

}  // namespace

Result<Tensor> last_tokens(const Tensor& hidden, std::span<const int64_t> lengths) {
  ASSAY_TRY_STATUS(check_rank(hidden, 1, "hidden"));
  const int64_t tokens = hidden.view.shape[0];
  ASSAY_TRY(const int64_t sum, sum_of_lengths(lengths, 1, tokens));
  if (sum > tokens)
    return fail(Errc::Invalid, "lengths add up to ", sum, ", hidden ", hidden.view.shape,
                " has fewer tokens");
  std::vector<Tensor> rows;
  int64_t end = 0;
  for (const int64_t length : lengths) {
    end += length;
    ASSAY_TRY(Tensor row, rows_of(hidden, end - 1, 1));
    rows.push_back(std::move(row));
  }
  return concat_rows(rows, hidden);
}

Result<Tensor> unpad_sequences(const Tensor& x, std::span<const int64_t> lengths) {
  ASSAY_TRY_STATUS(check_rank(x, 2, "a padded batch"));
  if (static_cast<int64_t>(lengths.size()) != x.view.shape[0])
    return fail(Errc::Invalid, lengths.size(), " lengths for a batch of shape ", x.view.shape);
  ASSAY_TRY_STATUS(sum_of_lengths(lengths, 0, x.view.shape[1]));
  if (lengths.empty()) {
    Dims shape(x.view.shape.span().subspan(1));
    shape[0] = 0;
    return reshaped(x, shape);
  }
  std::vector<Tensor> parts;
  for (size_t b = 0; b < lengths.size(); ++b) {
    ASSAY_TRY(Tensor part, rows_of(without_first_dim(x, static_cast<int64_t>(b)), 0, lengths[b]));
    parts.push_back(std::move(part));
  }
  return concat(parts, 0);
}

Result<Tensor> pad_sequences(const Tensor& x, std::span<const int64_t> lengths, int64_t padded) {
  ASSAY_TRY_STATUS(check_rank(x, 1, "a list of tokens"));
  ASSAY_TRY(const int64_t sum, sum_of_lengths(lengths, 0, padded));
  if (sum > x.view.shape[0])
    return fail(Errc::Invalid, "lengths add up to ", sum, ", x ", x.view.shape,
                " has fewer tokens");
  Dims shape{static_cast<int64_t>(lengths.size()), padded};
  for (size_t i = 1; i < x.view.shape.size(); ++i) shape.push_back(x.view.shape[i]);
  ASSAY_TRY(const NewTensor made, new_zeros(x.view.dtype, shape));
  if (made.bytes->values.empty()) return made.tensor();
  const Dims strides = contiguous_strides(shape);
  const Dims row_strides(strides.span().subspan(1));
  int64_t first = 0;
  for (size_t b = 0; b < lengths.size(); ++b) {
    ASSAY_TRY(const Tensor part, rows_of(x, first, lengths[b]));
    scatter_bytes(part.view,
                  made.data() + static_cast<int64_t>(b) * strides[0] * made.element_bytes,
                  row_strides);
    first += lengths[b];
  }
  return made.tensor();
}

Result<UnpaddedIds> unpad_ids(const Tensor& input_ids, std::span<const int64_t> cum_offsets,
                              std::span<const int64_t> lengths) {
  if (input_ids.view.shape.size() != 2)
    return fail(Errc::Invalid, "input ids of shape ", input_ids.view.shape,
                " are no [batch, length]");
  const int64_t batch = input_ids.view.shape[0];
  if (static_cast<int64_t>(cum_offsets.size()) != batch)
    return fail(Errc::Invalid, cum_offsets.size(), " offsets for ids of shape ",
                input_ids.view.shape);
  ASSAY_TRY(const Tensor valid, unpad_sequences(input_ids, lengths));
  const Dims flat{1, input_ids.view.element_count()};
  ASSAY_TRY(const NewTensor ids, new_zeros(input_ids.view.dtype, flat));
  if (valid.view.element_count() != 0) scatter_bytes(valid.view, ids.data(), {1});

  Whole offsets({batch, 1}, 0);
  Whole padding(flat, 0);
  int64_t at = 0;
  for (size_t b = 0; b < lengths.size(); ++b) {
    const int64_t before = b == 0 ? 0 : cum_offsets[b - 1];
    offsets.values[b] = before;
    std::fill_n(padding.data() + at, lengths[b], before);
    at += lengths[b];
  }
  return UnpaddedIds{ids.tensor(), to_tensor(std::move(offsets)), to_tensor(std::move(padding))};
}

Result<Tensor> ragged_masks(const Tensor& mask, int64_t heads, std::span<const int64_t> lengths) {
  ASSAY_TRY_STATUS(check_rank(mask, 3, "a mask"));
  const size_t rank = mask.view.shape.size();
  if (heads < 0 || static_cast<int64_t>(lengths.size()) > mask.view.shape[0])
    return fail(Errc::Invalid, lengths.size(), " lengths and ", heads,
                " heads do not fit masks of shape ", mask.view.shape);
  ASSAY_TRY_STATUS(
      sum_of_lengths(lengths, 0, std::min(mask.view.shape[rank - 1], mask.view.shape[rank - 2])));
  std::vector<Tensor> parts;
  int64_t total = 0;
  for (size_t b = 0; b < lengths.size(); ++b) {
    std::vector<int64_t> offsets(rank, 0);
    std::vector<int64_t> sizes(mask.view.shape.begin(), mask.view.shape.end());
    offsets[0] = static_cast<int64_t>(b);
    sizes[0] = 1;
    sizes[rank - 1] = sizes[rank - 2] = lengths[b];
    ASSAY_TRY(Tensor part, slice(mask, offsets, sizes));
    int64_t repeated = 0;
    if (mul_overflows(part.view.element_count(), heads, &repeated) ||
        add_overflows(total, repeated, &total))
      return fail(Errc::TooLarge, "the masks of all heads overflow");
    parts.push_back(std::move(part));
  }
  ASSAY_TRY(const NewTensor made, new_tensor(mask.view.dtype, {total}));
  std::byte* target = made.data();
  for (const Tensor& part : parts) {
    const auto size = static_cast<size_t>(part.view.element_count() * made.element_bytes);
    if (size == 0 || heads == 0) continue;
    scatter_bytes(part.view, target, contiguous_strides(part.view.shape));
    for (int64_t head = 1; head < heads; ++head)
      std::memcpy(target + static_cast<size_t>(head) * size, target, size);
    target += static_cast<size_t>(heads) * size;
  }
  return made.tensor();
}

}  // namespace assay::reference
