// SPDX-License-Identifier: Apache-2.0
// What an engine errs beyond one rounding a result: it converts what it multiplies with a stored
// weight, and keys and values in a cache, and makes the angles of the rotary embedding one from the
// other.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "locate/program/engine.hpp"
#include "reference/aten/call.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::locate {

/// A product of activations with a weight's rows, as `x W^T`.
struct WeightProduct {
  Tensor weight;                       // [out, in], or [matrices, out, in]
  Tensor x;                            // [..., in]
  std::vector<int64_t> matrices = {};  // the matrix of each row of x; empty where there is one
};

/// Which operand of a product is the weight, and how the rows of the other meet it; nothing for
/// what is not known.
///
/// call   of class Product: linear, mm, addmm, bmm, _grouped_mm ...
/// slot   of the weight
[[nodiscard]] std::optional<WeightProduct> weight_product(const reference::aten::Call& call,
                                                          std::string_view slot);

/// Moves every element of a product's simulated result at random by what the conversion of the
/// activation errs: a uniform number of the variance that the engine gives, the same each time.
///
/// stored   types of the weight's rows in the file
/// result   as many values as [..., out]
/// errors   of Engine::conversion_variance()
[[nodiscard]] Status add_conversion_noise(const Engine& engine, const StoredWeight& stored,
                                          const WeightProduct& product, Tensor* result);

/// Moves cos or sin of the rotary embedding's angles by what angle i of n errs: a float32 factor,
/// multiplied i times in float32, is off by i + 1 roundoffs, or two of them where the power that
/// gives the factor is not rounded well.
///
/// call     aten.cos or aten.sin; self [..., n], or [..., 2 n] with all angles twice, in halves or
///          in neighbours
/// result   of the call's shape
[[nodiscard]] Status add_angle_noise(const reference::aten::Call& call, Tensor* result);

/// Whether the steps of a type of blocks are known to with_attention_noise(): those that a cache
/// may have.
[[nodiscard]] bool has_block_steps(std::string_view type);

/// The values moved at random: by up to half a step of their block of 32 along the last axis, as
/// rounding to a type of blocks moves them, times the spread, and by roundoffs of float16, from the
/// first channel on; the same each time for the same seed.
///
/// values   [..., channels]; an infinite or NaN value leaves its block as it is
/// errors   Unsupported (has_block_steps() is false) | of reference::widen()
[[nodiscard]] Result<Tensor> with_attention_noise(const AttentionRounding& rounding,
                                                  const Tensor& values, uint64_t seed);

}  // namespace assay::locate
