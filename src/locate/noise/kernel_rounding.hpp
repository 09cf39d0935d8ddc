// SPDX-License-Identifier: Apache-2.0
// Operators as a kernel of a 16- or 32-bit type computes them: the noise that a healthy run may
// have.
//   docs/localisation.md, "Cross substitution"
#pragma once
#include <cstdint>
#include <vector>

#include "locate/program/program.hpp"

namespace assay::locate {

/// "add" of "aten.add_.Tensor"
[[nodiscard]] std::string_view base_name(std::string_view overload);

/// True for operators whose results models keep wide, so that the simulation does not round them:
/// views, casts, pow, mean, rsqrt, var, sub, sin, cos, neg and operators with a scalar argument.
/// Results that only move values are never rounded either: their operands were.
[[nodiscard]] bool keeps_wide(const reference::aten::Call& call);

/// Rounds to nearest even; finite values beyond the type's largest become the largest, not
/// infinite: a mask is filled with the lowest value of its own type.
/// errors  Unsupported (not a float type, packed types)
[[nodiscard]] Result<Tensor> round_within(const Tensor& wide, DType dtype);

/// Of so few values the noise is no average.
inline constexpr int64_t kFewToAverage = 8;

/// A number in [-1/2, 1/2) that looks random and depends on its arguments only.
[[nodiscard]] double jitter(uint64_t seed, size_t index);

/// Each value moved by up to half a ULP of the type; other types than floats as they are.
[[nodiscard]] Result<Tensor> moved_at_random(const Tensor& wide, DType dtype, uint64_t seed);

/// How mine may compute what is one operator in golden.
enum class AttentionKernel : uint8_t {
  Fused,  // scores stay in the accumulator
  Chain,  // operators one after the other: scores are stored in the operands' type
};

/// What models mostly compute in a wider type: the statistics of a norm and what is made of them.
enum class Statistics : uint8_t {
  Wide,
  Rounded,  // as everything else is: a norm written by hand
};

/// The results of a call on operands of the simulation, rounded as a kernel of type `dtype` would.
/// Fused attention: operands and the unnormalised probabilities are rounded, too. In fp32 nothing
/// is kept wider, and what an accumulator of fp32 errs is as large as the rounding: every element
/// of a sum is moved at random within v_i of the own
/// error's table, the same way each time.
///
/// exact    of evaluate(call) where the caller has them; nullptr: computed here
/// dtype    Float16, BFloat16 or Float32; anything else: only results are rounded
/// draw     0: as described. Any other number: results are not rounded but moved by up to half a
///          ULP at random, and by what an accumulator errs otherwise: another draw of noise of the
///          same size
/// errors   of evaluate()
[[nodiscard]] Result<std::vector<Tensor>> simulate(const reference::aten::Call& call,
                                                   const std::vector<Tensor>* exact, DType dtype,
                                                   AttentionKernel kernel = AttentionKernel::Fused,
                                                   uint64_t draw = 0,
                                                   Statistics statistics = Statistics::Wide);

}  // namespace assay::locate
