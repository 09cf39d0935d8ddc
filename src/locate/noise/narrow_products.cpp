// SPDX-License-Identifier: Apache-2.0
// How each type rounds an operand (to the nearest, ties away from zero, cut, in steps of int8), and
// products of operands so rounded. Of pairs of bf16 the product of the rests is taken off again.
#include "locate/noise/narrow_products.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include "locate/noise/error_classes.hpp"
#include "locate/noise/kernel_rounding.hpp"
#include "reference/aten/magnitudes.hpp"
#include "reference/wide.hpp"

namespace assay::locate {
namespace {

using reference::aten::Argument;
using reference::aten::Call;
using reference::aten::OperatorClass;

constexpr int kDoubleBits = 52;
constexpr int kBFloat16Bits = 7, kTF32Bits = 10, kPairBits = 2 * kBFloat16Bits;

int bits_of(ProductType type) {
  switch (type) {
    case ProductType::Float32:
      return 23;
    case ProductType::BFloat16Pairs:
      return kPairBits;
    case ProductType::BFloat16:
      return kBFloat16Bits;
    default:
      return kTF32Bits;
  }
}

/// To the nearest value of so many bits of fraction, ties to even.
double nearest(double value, int bits) {
  const double shifted = value * (std::ldexp(1.0, kDoubleBits - bits) + 1);
  return shifted - (shifted - value);
}

/// Drops the bits behind the fraction's.
double cut(double value, int bits) {
  const uint64_t dropped = (uint64_t{1} << (kDoubleBits - bits)) - 1;
  return std::bit_cast<double>(std::bit_cast<uint64_t>(value) & ~dropped);
}

double rounded(double value, ProductType type) {
  switch (type) {
    case ProductType::Float32:
      return value;
    case ProductType::BFloat16Pairs: {
      const double larger = nearest(value, kBFloat16Bits);
      return larger + nearest(value - larger, kBFloat16Bits);
    }
    case ProductType::TF32Ties: {
      const uint64_t half = uint64_t{1} << (kDoubleBits - kTF32Bits - 1);
      return cut(std::bit_cast<double>(std::bit_cast<uint64_t>(value) + half), kTF32Bits);
    }
    case ProductType::TF32Cut:
      return cut(value, kTF32Bits);
    default:
      return nearest(value, bits_of(type));
  }
}

bool is_narrowed(DType type) { return type == DType::Float32 || type == DType::Float64; }

template <typename Change>
Result<Tensor> changed(const Tensor& operand, const Change& change) {
  if (!is_narrowed(operand.view.dtype)) return operand;
  ASSAY_TRY(reference::Wide values, reference::widen(operand.view));
  for (size_t i = 0; i < values.values.size(); ++i) {
    double& value = values.values[i];
    if (std::isfinite(value)) value = change(value, i);
  }
  return reference::to_tensor(std::move(values));
}

/// The call with every operand that it multiplies changed, those in lists, too.
template <typename Change>
Result<Call> with_operands(Call call, const Change& change) {
  for (auto& [slot, argument] : call.arguments) {
    if (!is_multiplied(call.name, slot)) continue;
    if (auto* tensor = std::get_if<Tensor>(&argument.value)) {
      ASSAY_TRY(*tensor, changed(*tensor, change));
    } else if (auto* list = std::get_if<reference::aten::ArgumentList>(&argument.value)) {
      for (Argument& one : *list) {
        if (auto* part = std::get_if<Tensor>(&one.value)) {
          ASSAY_TRY(*part, changed(*part, change));
        }
      }
    }
  }
  return call;
}

/// The product of what is left of the operands behind their first bfloat16, without addend.
Result<Tensor> product_of_rests(const Call& call, const reference::aten::EvaluateOptions& options) {
  ASSAY_TRY(Call rests, with_operands(call, [](double value, size_t) {
              return nearest(value - nearest(value, kBFloat16Bits), kBFloat16Bits);
            }));
  rests.arguments.erase("bias");
  if (base_name(call.name).starts_with("add") || base_name(call.name).starts_with("badd"))
    rests.arguments.insert_or_assign("beta", Argument{0.0});
  ASSAY_TRY(std::vector<Tensor> results, reference::aten::evaluate(rests, options));
  if (results.empty()) return fail(Errc::Invalid, "a product without a result");
  return std::move(results.front());
}

/// Codes of one scale lie a whole number of steps from 0.
Result<Tensor> in_steps(const Tensor& operand, ProductType type, uint64_t draw) {
  if (!is_float(operand.view.dtype) || operand.view.shape.empty()) return operand;
  ASSAY_TRY(reference::Wide values, reference::widen(operand.view));
  const bool of_rows = type == ProductType::Int8OfRows;
  const auto length =
      static_cast<size_t>(of_rows ? values.shape[values.shape.size() - 1] : values.size());
  for (size_t first = 0; length > 0 && first < values.values.size(); first += length) {
    const auto group = std::span(values.values).subspan(first, length);
    double low = 0, high = 0;
    for (const double value : group) {
      low = std::min(low, value);
      high = std::max(high, value);
    }
    const double reach = of_rows ? std::max(-low, high) : high - low;
    const double step = reach / (type == ProductType::Int8OfTensor ? 255 : 127);
    if (!(step > 0) || !std::isfinite(step)) continue;
    for (size_t i = 0; i < length; ++i)
      group[i] = draw == 0 ? std::nearbyint(group[i] / step) * step
                           : group[i] + step * jitter(draw, first + i);
  }
  return reference::to_tensor(std::move(values));
}

}  // namespace

std::string_view product_name(ProductType type) {
  if (is_of_activations(type)) return "int8 (activations)";
  constexpr std::string_view kNames[] = {"float32", "pairs of bf16", "TF32",
                                         "TF32",    "TF32",          "bf16"};
  return kNames[static_cast<size_t>(type)];
}

double product_roundoff(ProductType type) {
  return std::ldexp(1.0, -bits_of(type) - (type == ProductType::TF32Cut ? 0 : 1));
}

bool is_product(std::string_view overload) {
  const OperatorClass kind = reference::aten::class_of(overload);
  return kind == OperatorClass::Product || kind == OperatorClass::Attention;
}

bool is_multiplied(std::string_view overload, std::string_view slot) {
  if (!is_product(overload)) return false;
  slot = slot.substr(0, slot.find('.'));
  const std::string_view base = base_name(overload);
  if (slot == "self") return !base.starts_with("add") && !base.starts_with("badd");
  constexpr std::array<std::string_view, 14> kFactors = {
      "mat1", "mat2",  "batch1", "batch2",  "mat", "vec",   "vec1",
      "vec2", "input", "weight", "tensors", "key", "query", "value"};
  return slot == "other" || std::ranges::find(kFactors, slot) != kFactors.end();
}

Result<Tensor> narrowed(const Tensor& operand, ProductType type, uint64_t draw) {
  if (is_of_activations(type)) return in_steps(operand, type, draw);
  const double ulp = 2 * product_roundoff(type);
  return changed(operand, [&](double value, size_t i) {
    if (draw == 0) return rounded(value, type);
    return value * (1 + 0.75 * ulp * jitter(draw, i));  // a ULP is 1/2 to 1 of the value's share
  });
}

Result<std::vector<Tensor>> evaluate_narrow(const Call& call, ProductType type,
                                            const reference::aten::EvaluateOptions& options) {
  ASSAY_TRY(const Call rounded_call,
            with_operands(call, [&](double value, size_t) { return rounded(value, type); }));
  ASSAY_TRY(std::vector<Tensor> results, reference::aten::evaluate(rounded_call, options));
  if (type != ProductType::BFloat16Pairs || results.empty() ||
      reference::aten::class_of(call.name) != OperatorClass::Product)
    return results;
  ASSAY_TRY(const Tensor rests, product_of_rests(call, options));
  ASSAY_TRY(reference::Wide whole, reference::widen(results.front().view));
  ASSAY_TRY(const reference::Wide part, reference::widen(rests.view));
  if (part.size() != whole.size()) return results;
  for (size_t i = 0; i < whole.values.size(); ++i) whole.values[i] -= part.values[i];
  results.front() = reference::to_tensor(std::move(whole));
  return results;
}

Status add_noise_of_probabilities(const Call& call, ProductType type, uint64_t draw,
                                  Tensor* result) {
  if (reference::aten::class_of(call.name) != OperatorClass::Attention) return {};
  ASSAY_TRY(const reference::aten::Magnitudes sums, reference::aten::magnitudes(call, 0));
  ASSAY_TRY(reference::Wide values, reference::widen(result->view));
  if (sums.variance.size() != values.size()) return {};
  for (size_t i = 0; i < values.values.size(); ++i) {
    // Evenly drawn from an interval of sqrt(12) deviations.
    values.values[i] += std::sqrt(12 * sums.variance.values[i]) * kRoundingL2 *
                        product_roundoff(type) * jitter(draw + values.values.size(), i);
  }
  *result = reference::to_tensor(std::move(values));
  return {};
}

}  // namespace assay::locate
