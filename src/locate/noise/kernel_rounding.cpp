// SPDX-License-Identifier: Apache-2.0
// simulate() at the end makes a call's exact results noisy in one of four ways: fused attention by
// a model of the kernel, float32 by what its accumulator errs, what models keep wide not at all,
// and everything else by rounding to the type.
#include "locate/noise/kernel_rounding.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>

#include "locate/noise/gap.hpp"
#include "reference/aten/magnitudes.hpp"
#include "reference/attention/attention.hpp"
#include "reference/wide.hpp"
#include "tensor/convert.hpp"
#include "tensor/float_grid.hpp"

namespace assay::locate {
namespace {

using reference::aten::Argument;
using reference::aten::Call;
using reference::aten::OperatorClass;

/// Arguments whose type in a schema is Scalar, or Tensor with a number in place of one.
bool has_scalar_argument(const Call& call) {
  constexpr std::array<std::string_view, 7> kScalars = {"other",  "self", "value", "exponent",
                                                        "scalar", "min",  "max"};
  return std::ranges::any_of(kScalars, [&](std::string_view name) {
    const auto found = call.arguments.find(name);
    return found != call.arguments.end() && (std::holds_alternative<double>(found->second.value) ||
                                             std::holds_alternative<int64_t>(found->second.value));
  });
}

double real_argument(const Call& call, std::string_view name, double fallback) {
  if (const auto* real = argument_of<double>(call.arguments, name)) return *real;
  const auto* integer = argument_of<int64_t>(call.arguments, name);
  return integer != nullptr ? static_cast<double>(*integer) : fallback;
}

bool truth_argument(const Call& call, std::string_view name) {
  const bool* truth = argument_of<bool>(call.arguments, name);
  return truth != nullptr && *truth;
}

/// [batch, heads, rows, size] of a tensor with two to four dimensions.
Result<TensorView> four_dimensions(const TensorView& view) {
  if (view.shape.size() < 2 || view.shape.size() > 4)
    return fail(Errc::Unsupported, "attention over " + std::to_string(view.shape.size()) + " axes");
  TensorView result = view;
  const size_t missing = 4 - view.shape.size();
  result.shape.resize(4);
  result.strides.resize(4);
  for (size_t i = 0; i < 4; ++i) {
    result.shape[i] = i < missing ? 1 : view.shape[i - missing];
    result.strides[i] = i < missing ? 0 : view.strides[i - missing];
  }
  return result;
}

/// One batch entry as [rows, heads, size].
TensorView sequence_rows(const TensorView& four, int64_t batch) {
  TensorView rows = four;
  rows.shape = Dims{four.shape[2], four.shape[1], four.shape[3]};
  rows.strides = Dims{four.strides[2], four.strides[1], four.strides[3]};
  rows.offset_elements += four.shape[0] == 1 ? 0 : batch * four.strides[0];
  return rows;
}

/// The mask as what is added to scores: truth values become 0 and -inf.
Result<Tensor> additive_mask(const Tensor& mask) {
  if (mask.view.dtype != DType::Bool) return mask;
  ASSAY_TRY(reference::Wide wide, reference::widen(mask.view));
  for (double& value : wide.values) value = value != 0 ? 0.0 : -INFINITY;
  return reference::to_tensor(std::move(wide));
}

Result<Tensor> simulate_attention(const Call& call, DType dtype, AttentionKernel kernel) {
  const Tensor* const operands[] = {argument_of<Tensor>(call.arguments, "query"),
                                    argument_of<Tensor>(call.arguments, "key"),
                                    argument_of<Tensor>(call.arguments, "value")};
  reference::Attention attention;
  attention.round_scores = kernel == AttentionKernel::Chain;
  std::array<TensorView, 3> views;
  for (size_t i = 0; i < 3; ++i) {
    if (operands[i] == nullptr) return fail(Errc::Invalid, "attention without query, key or value");
    ASSAY_TRY(Tensor rounded, round_within(*operands[i], dtype));
    ASSAY_TRY(views[i], four_dimensions(rounded.view));
    attention.owners.push_back(std::move(rounded));
  }
  const TensorView& query = views[0];
  const TensorView& key = views[1];
  const TensorView& value = views[2];
  const int64_t batches = query.shape[0];
  attention.heads = query.shape[1];
  attention.kv_heads = key.shape[1];
  attention.head_size = query.shape[3];
  attention.value_size = value.shape[3];
  if (attention.kv_heads == 0 || attention.head_size == 0 || key.shape[0] != value.shape[0] ||
      (key.shape[0] != batches && key.shape[0] != 1))
    return fail(Errc::Unsupported, "attention over operands of shapes that are not modelled");
  attention.scale =
      real_argument(call, "scale", 1.0 / std::sqrt(static_cast<double>(attention.head_size)));

  const Tensor* mask = argument_of<Tensor>(call.arguments, "attn_mask");
  if (mask == nullptr) mask = argument_of<Tensor>(call.arguments, "attn_bias");
  TensorView mask_view;
  if (mask != nullptr) {
    ASSAY_TRY(Tensor added, additive_mask(*mask));
    ASSAY_TRY(mask_view, four_dimensions(added.view));
    attention.owners.push_back(std::move(added));
    const Dims full{batches, attention.heads, query.shape[2], key.shape[2]};
    for (size_t i = 0; i < 4; ++i) {
      if (mask_view.shape[i] == full[i]) continue;
      if (mask_view.shape[i] != 1) return fail(Errc::Invalid, "a mask that does not fit");
      mask_view.shape[i] = full[i];
      mask_view.strides[i] = 0;
    }
  }
  for (int64_t batch = 0; batch < batches; ++batch) {
    reference::AttentionSequence one;
    one.query = sequence_rows(query, batch);
    one.keys.push_back(sequence_rows(key, batch));
    one.values.push_back(sequence_rows(value, batch));
    one.bias.causal = truth_argument(call, "is_causal");
    if (mask != nullptr) {
      TensorView dense = mask_view;
      dense.shape = Dims{mask_view.shape[1], mask_view.shape[2], mask_view.shape[3]};
      dense.strides = Dims{mask_view.strides[1], mask_view.strides[2], mask_view.strides[3]};
      dense.offset_elements += batch * mask_view.strides[0];
      one.bias.dense = dense;
    }
    one.output_offset = batch * attention.heads * query.shape[2] * attention.value_size;
    attention.sequences.push_back(std::move(one));
  }
  attention.output_shape = operands[0]->view.shape;
  attention.output_shape[attention.output_shape.size() - 1] = attention.value_size;
  attention.output_row_stride = attention.value_size;
  attention.output_head_stride = query.shape[2] * attention.value_size;
  return reference::flash_attention_model(attention, dtype);
}

/// jitter() among `count` results. Of few, such as one scale a row, a small number would make all
/// of the noise small: there it is +-0.5.
double jitter_of_few(uint64_t seed, size_t index, int64_t count) {
  const double drawn = jitter(seed, index);
  return count > kFewToAverage ? drawn : std::copysign(0.5, drawn);
}

/// Sums of integers are exact as far as the accumulator counts, such as positions out of the sums
/// of a mask: then the sum of their sizes is an integer, too.
bool is_sum_of_integers(double sum, double sizes) {
  constexpr double kCounts = 0x1p24;
  return sizes <= kCounts && sizes == std::floor(sizes) && sum == std::floor(sum);
}

/// Of an activation its input, element by element; empty of anything else.
Result<reference::Wide> inputs_of_activation(const Call& call, const Dims& shape) {
  const Tensor* input = argument_of<Tensor>(call.arguments, "self");
  if (reference::aten::class_of(call.name) != OperatorClass::Activation || input == nullptr ||
      !(input->view.shape == shape))
    return reference::Wide();
  return reference::widen(input->view);
}

/// Results as an accumulator of fp32 leaves them: each element moved by up to half of what its
/// class may err, so that the variance is v_i of docs/localisation.md, "Own error". Only a storage
/// type as fine as the accumulator shows it.
Status add_accumulation_noise(const Call& call, uint64_t draw, std::vector<Tensor>* results) {
  constexpr double kUnit = 0x1p-24;
  const OperatorClass kind = reference::aten::class_of(call.name);
  double relative = 0;  // of |y|, where no sum bounds the error
  switch (kind) {
    case OperatorClass::Function:
    case OperatorClass::Trigonometric:
      relative = 4 * kUnit;
      break;
    case OperatorClass::Softmax:
    case OperatorClass::Activation:
      relative = 16 * kUnit;
      break;
    case OperatorClass::Product:
    case OperatorClass::Reduction:
    case OperatorClass::Norm:
    case OperatorClass::Attention:
      break;
    default:
      return {};
  }
  for (size_t output = 0; output < results->size(); ++output) {
    Tensor& result = (*results)[output];
    const bool complex = result.view.dtype == DType::Complex128;
    if (!reference::aten::is_predictable(result) || (!is_float(result.view.dtype) && !complex))
      continue;
    ASSAY_TRY(reference::Wide values, reference::widen(as_reals(result.view)));
    const uint64_t seed = static_cast<uint64_t>(values.size()) * 31 + output + draw;
    const auto count = static_cast<int64_t>(values.values.size());
    if (relative > 0) {
      const double least = kind == OperatorClass::Trigonometric ? relative : 0;
      // GELU adds 1 to what is nearly -1: what it errs is a part of its input.
      ASSAY_TRY(const reference::Wide inputs, inputs_of_activation(call, values.shape));
      // In draw 0 operators on equally many values draw the same numbers. A reciprocal turns the
      // error of its input round: moved the same way its result would lose that error again.
      const std::string_view name = base_name(call.name);
      const double direction = name == "rsqrt" || name == "reciprocal" ? -1 : 1;
      const auto size_at = [&](size_t i) {
        const double input = inputs.values.empty() ? 0 : std::abs(inputs.values[i]);
        return std::max(std::abs(values.values[i]), std::isfinite(input) ? input : 0);
      };
      for (size_t i = 0; i < values.values.size(); ++i) {
        double& value = values.values[i];
        if (std::isfinite(value))
          value +=
              direction * std::max(least, relative * size_at(i)) * jitter_of_few(seed, i, count);
      }
    } else {
      // An output for which the class has no bound (indices, log of a sum) is left as it is.
      const Result<reference::aten::Magnitudes> sums = reference::aten::magnitudes(call, output);
      if (!sums || sums->c.values.size() != values.values.size()) continue;
      const int64_t columns = values.shape.empty() ? 1 : values.shape[values.shape.size() - 1];
      const double factor =
          kind == OperatorClass::Norm ? 16 * kUnit : std::sqrt(std::max(1.0, sums->terms)) * kUnit;
      const bool is_sum = base_name(call.name) == "sum" || base_name(call.name) == "cumsum";
      for (size_t i = 0; i < values.values.size(); ++i) {
        double bound = factor * sums->c.values[i];
        if (kind == OperatorClass::Attention && columns > 0) {
          const size_t row = i / static_cast<size_t>(columns);
          const double scores =
              row < sums->score_bound.values.size() ? sums->score_bound.values[row] : 0;
          bound = 4 * kUnit * (1 + scores) * sums->c.values[i];
        }
        if (is_sum && is_sum_of_integers(values.values[i], sums->c.values[i])) continue;
        if (std::isfinite(bound)) values.values[i] += bound * jitter_of_few(seed, i, count);
      }
    }
    Tensor noisy = reference::to_tensor(std::move(values));
    if (complex) {
      noisy.view.shape = result.view.shape;
      noisy.view.strides = contiguous_strides(result.view.shape);
      noisy.view.dtype = DType::Complex128;
    }
    result = std::move(noisy);
  }
  return {};
}

}  // namespace

double jitter(uint64_t seed, size_t index) {
  uint64_t x = seed + 0x9E3779B97F4A7C15ull * (static_cast<uint64_t>(index) + 1);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53 - 0.5;
}

std::string_view base_name(std::string_view overload) {
  if (const size_t dot = overload.find('.'); dot != std::string_view::npos)
    overload.remove_prefix(dot + 1);
  overload = overload.substr(0, overload.find('.'));
  while (overload.ends_with('_')) overload.remove_suffix(1);
  return overload;
}

namespace {

/// False when no element of a contiguous 16 or 32 bit float tensor is an infinity or NaN; true also
/// of other types.
bool has_all_exponent_bits(const TensorView& view) {
  const auto any = [&]<typename Bits>(Bits exponent) {
    const ByteSpan bytes = view.contiguous_bytes();
    constexpr size_t kBlockBytes = 4096;
    for (size_t first = 0; first < bytes.size(); first += kBlockBytes) {
      Bits block[kBlockBytes / sizeof(Bits)] = {};
      std::memcpy(block, bytes.data() + first, std::min(kBlockBytes, bytes.size() - first));
      unsigned found = 0;
      for (const Bits value : block) found |= (value & exponent) == exponent ? 1u : 0u;
      if (found != 0) return true;
    }
    return false;
  };
  if (!view.is_contiguous()) return true;
  switch (view.dtype) {
    case DType::BFloat16:
      return any(uint16_t{0x7F80});
    case DType::Float16:
      return any(uint16_t{0x7C00});
    case DType::Float32:
      return any(uint32_t{0x7F800000});
    default:
      return true;
  }
}

/// A solver's result is exact for a matrix whose elements are off by as many roundoffs as it has
/// rows, or fewer.
Result<Call> with_moved_matrix(const Call& call, uint64_t draw) {
  constexpr double kUnit = 0x1p-24;
  const Tensor* matrix = argument_of<Tensor>(call.arguments, "self");
  if (matrix == nullptr || matrix->view.shape.empty())
    return fail(Errc::Invalid, "a system of equations without a matrix");
  const auto rows = static_cast<double>(matrix->view.shape[matrix->view.shape.size() - 1]);
  ASSAY_TRY(reference::Wide values, reference::widen(matrix->view));
  const size_t count = values.values.size();
  for (size_t i = 0; i < count; ++i)
    values.values[i] *= 1 + 2 * rows * kUnit * jitter_of_few(draw, i, count);
  Call moved = call;
  moved.arguments["self"].value = reference::to_tensor(std::move(values));
  return moved;
}

/// Its results are counts in a float type, as of the tokens of each expert: no kernel rounds these.
bool counts(const Call& call) { return base_name(call.name) == "histc"; }

}  // namespace

Result<Tensor> moved_at_random(const Tensor& wide, DType dtype, uint64_t seed) {
  const std::optional<FloatGrid> grid = float_grid(dtype);
  if (!is_float(wide.view.dtype) || !grid) return wide;
  ASSAY_TRY(reference::Wide values, reference::widen(wide.view));
  for (size_t i = 0; i < values.values.size(); ++i) {
    double& value = values.values[i];
    if (std::isfinite(value) && value != 0) value += jitter(seed, i) * grid->ulp(value);
  }
  return reference::to_tensor(std::move(values));
}

bool keeps_wide(const Call& call) {
  if (counts(call)) return true;
  switch (reference::aten::class_of(call.name)) {
    case OperatorClass::Cast:
    case OperatorClass::Integer:
    case OperatorClass::Allocation:
      return true;
    case OperatorClass::Product:
    case OperatorClass::Attention:
    case OperatorClass::Norm:
      return false;
    default:
      break;
  }
  if (reference::aten::is_view(call.name) || is_transparent(call.name) || has_scalar_argument(call))
    return true;
  constexpr std::array<std::string_view, 10> kWide = {"pow", "mean",     "rsqrt", "var", "sub",
                                                      "sin", "var_mean", "cos",   "neg", "copy"};
  return std::ranges::find(kWide, base_name(call.name)) != kWide.end();
}

Result<Tensor> round_within(const Tensor& wide, DType dtype) {
  if (!is_float(wide.view.dtype) || wide.view.dtype == dtype) return wide;
  ASSAY_TRY(Tensor rounded, reference::narrow(wide.view, dtype));
  if (!has_all_exponent_bits(rounded.view)) return rounded;
  // Overflow is rare (a mask filled with another type's lowest value), so it is looked for first.
  const int64_t count = rounded.view.element_count();
  constexpr int64_t kBlock = 4096;
  std::vector<double> block(static_cast<size_t>(std::min(count, kBlock)));
  std::vector<double> source(block.size());
  bool overflow = false;
  for (int64_t first = 0; first < count && !overflow; first += kBlock) {
    const auto length = static_cast<size_t>(std::min(kBlock, count - first));
    read_values(rounded.view, first, static_cast<int64_t>(length), std::span(block).first(length));
    if (std::none_of(block.begin(), block.begin() + static_cast<std::ptrdiff_t>(length),
                     [](double value) { return std::isinf(value); }))
      continue;
    read_values(wide.view, first, static_cast<int64_t>(length), std::span(source).first(length));
    for (size_t i = 0; i < length; ++i)
      overflow = overflow || (std::isinf(block[i]) && !std::isinf(source[i]));
  }
  if (!overflow) return rounded;
  ASSAY_TRY(reference::Wide values, reference::widen(wide.view));
  const std::optional<FloatGrid> grid = float_grid(dtype);
  if (!grid) return rounded;
  for (double& value : values.values) {
    if (std::isfinite(value)) value = std::clamp(value, -grid->largest, grid->largest);
  }
  const Tensor clamped = reference::to_tensor(std::move(values));
  return reference::narrow(clamped.view, dtype);
}

namespace {

/// It makes values of its own, which may be rounded: no move, no cast, no count.
bool computes(const Call& call) {
  const OperatorClass kind = reference::aten::class_of(call.name);
  return kind != OperatorClass::Cast && kind != OperatorClass::Integer &&
         kind != OperatorClass::Allocation && !reference::aten::is_view(call.name) &&
         !is_transparent(call.name) && !counts(call);
}

/// Multiplies or divides, as scores are in front of a softmax, and what a soft cap bounds.
bool scales(const Call& call) {
  return base_name(call.name) == "mul" || base_name(call.name) == "div";
}

/// What models mostly keep wide they may round as well. Of many values that hardly shows beside the
/// roundings around it, unless they are scaled: scores that a soft cap made equal are told apart by
/// the last bit. Of the one scale of a row it is a good part of the noise.
Status round_what_may_be_wide(const Call& call, DType dtype, uint64_t draw,
                              std::vector<Tensor>* results) {
  for (Tensor& result : *results) {
    const bool few = result.view.element_count() <= kFewToAverage;
    if (!reference::aten::is_predictable(result) || (!few && !scales(call))) continue;
    ASSAY_TRY(result, moved_at_random(result, dtype, draw));
  }
  return {};
}

}  // namespace

Result<std::vector<Tensor>> simulate(const Call& call, const std::vector<Tensor>* exact,
                                     DType dtype, AttentionKernel kernel, uint64_t draw,
                                     Statistics statistics) {
  if (reference::aten::is_composite(call.name)) {
    uint64_t drawn = draw;
    return reference::aten::evaluate(
        call, {.inner = [&](const Call& inner) {
          if (draw != 0)
            drawn = drawn * 6364136223846793005U + 1442695040888963407U;  // Knuth's MMIX
          return simulate(inner, nullptr, dtype, kernel, drawn, statistics);
        }});
  }
  const bool modelled = dtype == DType::BFloat16 || dtype == DType::Float16;
  std::optional<Tensor> attention;
  if (modelled && reference::aten::class_of(call.name) == OperatorClass::Attention) {
    // What the model of a kernel does not know is rounded like any other operator.
    if (Result<Tensor> made = simulate_attention(call, dtype, kernel)) attention = *std::move(made);
  }
  std::vector<Tensor> results;
  if (base_name(call.name) == "linalg_solve_triangular") {
    ASSAY_TRY(const Call moved, with_moved_matrix(call, draw));
    ASSAY_TRY(results, reference::aten::evaluate(moved));
  } else if (exact != nullptr) {
    results = *exact;
  } else {
    ASSAY_TRY(results, reference::aten::evaluate(call));
  }
  if (dtype == DType::Float32) {
    ASSAY_TRY_STATUS(add_accumulation_noise(call, draw, &results));
    for (Tensor& result : results) {
      if (!reference::aten::is_predictable(result)) continue;
      ASSAY_TRY(result, round_within(result, dtype));
    }
    return results;
  }
  if (keeps_wide(call) && (statistics == Statistics::Wide || !computes(call))) {
    if (draw != 0 && computes(call))
      ASSAY_TRY_STATUS(round_what_may_be_wide(call, dtype, draw, &results));
    return results;
  }
  if (attention && !results.empty() && attention->view.shape == results[0].view.shape)
    results[0] = *std::move(attention);
  for (size_t output = 0; output < results.size(); ++output) {
    Tensor& result = results[output];
    if (!reference::aten::is_predictable(result)) continue;
    if (draw == 0) {
      ASSAY_TRY(result, round_within(result, dtype));
    } else {
      ASSAY_TRY(result, moved_at_random(result, dtype, draw + (output << 32U)));
    }
  }
  return results;
}

}  // namespace assay::locate
