// SPDX-License-Identifier: Apache-2.0
// Between sequences padded to one length and tokens one after the other.
#pragma once
#include <span>

#include "tensor/tensor_view.hpp"

namespace assay::reference {

/// The last token of every sequence: y[b] = hidden[lengths[0] + ... + lengths[b] - 1].
///
/// hidden   [tokens, ...], the sequences one after the other
/// lengths  tokens of each sequence, at least 1
/// returns  [count of lengths, ...] of hidden's type
/// errors   Invalid (a length below 1, more tokens than there are) | Unsupported (packed types)
[[nodiscard]] Result<Tensor> last_tokens(const Tensor& hidden, std::span<const int64_t> lengths);

/// The first lengths[b] rows of each x[b], one after the other.
///
/// x        [batch, padded length, ...]
/// returns  [sum of lengths, ...] of x's type
/// errors   Invalid (a length that is negative or above the padded one, other number of lengths) |
///          Unsupported
[[nodiscard]] Result<Tensor> unpad_sequences(const Tensor& x, std::span<const int64_t> lengths);
/// The other way: [batch, padded length, ...], filled up with zeros.
/// errors   Invalid (lengths that do not fit x or exceed `padded`) | Unsupported | TooLarge
[[nodiscard]] Result<Tensor> pad_sequences(const Tensor& x, std::span<const int64_t> lengths,
                                           int64_t padded);

/// Token ids without padding, and where they came from.
struct UnpaddedIds {
  Tensor ids;      // [1, batch * padded length], valid ids one after the other, then zeros
  Tensor offsets;  // [batch, 1] Int64: padding before the sequence
  /// [1, batch * padded length] Int64: the same for every valid token, then zeros.
  Tensor padding_offset;
};
/// input_ids    [batch, padded length] of any type
/// cum_offsets  [batch] sums of padding up to and including each sequence
/// errors       as unpad_sequences(); Invalid (other number of cum_offsets)
[[nodiscard]] Result<UnpaddedIds> unpad_ids(const Tensor& input_ids,
                                            std::span<const int64_t> cum_offsets,
                                            std::span<const int64_t> lengths);

/// Square masks of different sizes without gaps: for each sequence `heads` times mask[b, :, :n, :n]
/// in C order, n = lengths[b].
///
/// mask     [batch, ..., s, s]
/// returns  one dimension, mask's type
/// errors   Invalid (shape, lengths above s, more lengths than batches, heads below 0) |
///          Unsupported | TooLarge
[[nodiscard]] Result<Tensor> ragged_masks(const Tensor& mask, int64_t heads,
                                          std::span<const int64_t> lengths);

}  // namespace assay::reference
