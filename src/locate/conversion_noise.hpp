// SPDX-License-Identifier: Apache-2.0
// What ggml errs beyond one rounding a result: it converts what it multiplies with a stored weight, and keys and values in a
// cache, and makes the angles of the rotary embedding one from the other.
#pragma once
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "locate/program.hpp"
#include "reference/aten/call.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::locate {

/// Moves every element of a product's simulated result at random by what the conversion of the activation errs: a
/// uniform number of the variance that reference::ggml::rounding() gives, the same each time.
///
/// type     of the weight in the file: "q8_0", "f16"
/// weight   [out, in]
/// x        [..., in]
/// result   as many values as [..., out]
/// errors   of reference::ggml::rounding()
[[nodiscard]] Status add_conversion_noise(const std::string& type, const Tensor& weight,
                                          const Tensor& x, Tensor* result);

/// Moves cos or sin of the rotary embedding's angles by what angle i of n errs: a float32 factor, multiplied i times in
/// float32, is off by i + 1 roundoffs, or two of them where the power that gives the factor is not rounded well.
///
/// call     aten.cos or aten.sin; self [..., n], or [..., 2 n] with all angles twice, in halves or in neighbours
/// result   of the call's shape
[[nodiscard]] Status add_angle_noise(const reference::aten::Call& call, Tensor* result);

/// Whether the steps of a type of blocks are known to with_attention_noise(): those that a cache may have.
[[nodiscard]] bool has_block_steps(std::string_view type);

/// The values moved at random: by up to half a step of their block of 32 along the last axis, as rounding to a type of blocks
/// moves them, times the spread, and by roundoffs of float16; the same each time for the same seed.
///
/// values   [..., channels]; an infinite or NaN value leaves its block as it is
/// errors   Unsupported (has_block_steps() is false) | of reference::widen()
[[nodiscard]] Result<Tensor> with_attention_noise(const AttentionRounding& rounding,
                                                  const Tensor& values, uint64_t seed);

}  // namespace assay::locate
