// SPDX-License-Identifier: Apache-2.0
// From an operator's class to its row of the table of docs/localisation.md, "Own error". Classes
// whose row depends on the arguments (a scalar operand, an exponent, alpha) have a function each.
#include "locate/noise/error_classes.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "locate/program/collectives.hpp"
#include "reference/aten/magnitudes.hpp"

namespace assay::locate {
namespace {

using reference::aten::Argument;
using reference::aten::Call;
using reference::aten::OperatorClass;

constexpr double kU = kAccumulatorRoundoff;
/// Of 16-bit operands fused kernels take exponentials that are good enough for 16-bit results; the
/// sums of these come out in Float32. PyTorch 2.13 on a CPU: 5.4e-5 off at most, 1.8e-5 on average,
/// for BFloat16 and Float16 alike.
constexpr double kFastLogSumExp = 0x1p-13;

ErrorRow row_of(ErrorScale scale, double w_factor) {
  return {.scale = scale, .w_factor = w_factor, .v_factor = w_factor * w_factor / 12};
}

/// "mul_" of "aten.mul_.Tensor"
std::string_view packet_of(std::string_view name) {
  const size_t begin = name.find('.');
  if (begin == std::string_view::npos) return name;
  const size_t end = name.find('.', begin + 1);
  return name.substr(begin + 1, end == std::string_view::npos ? end : end - begin - 1);
}

/// The same without the underscore of an operator that writes its argument.
std::string_view plain_packet_of(std::string_view name) {
  std::string_view packet = packet_of(name);
  if (packet.size() > 1 && packet.ends_with('_') && !packet.ends_with("__"))
    packet.remove_suffix(1);
  return packet;
}

const Argument* find(const Call& call, std::string_view name) {
  const auto place = call.arguments.find(name);
  return place == call.arguments.end() ? nullptr : &place->second;
}

std::optional<Tensor> tensor_of(const Call& call, std::string_view name) {
  const Argument* argument = find(call, name);
  const auto* tensor = argument != nullptr ? std::get_if<Tensor>(&argument->value) : nullptr;
  return tensor != nullptr ? std::optional(*tensor) : std::nullopt;
}

/// The first tensor argument that schemas call the input.
std::optional<Tensor> input_of(const Call& call) {
  std::optional<Tensor> input = tensor_of(call, "self");
  return input ? input : tensor_of(call, "input");
}

/// A floating scalar. What is an integer in Python is exact in the compute type.
std::optional<double> real_scalar(const Call& call, std::string_view name) {
  const Argument* argument = find(call, name);
  const auto* value = argument != nullptr ? std::get_if<double>(&argument->value) : nullptr;
  return value != nullptr ? std::optional(*value) : std::nullopt;
}

std::optional<double> number(const Call& call, std::string_view name) {
  const Argument* argument = find(call, name);
  if (argument == nullptr) return std::nullopt;
  if (const auto* whole = std::get_if<int64_t>(&argument->value))
    return static_cast<double>(*whole);
  return real_scalar(call, name);
}

/// A tensor of one element and no axis that is wider than the result counts as a scalar: it does
/// not take part in the promotion of types.
std::optional<double> wide_zero_dim(const Call& call, std::string_view name, DType mine) {
  const std::optional<Tensor> tensor = tensor_of(call, name);
  if (!tensor || !tensor->view.shape.empty() || !is_float(tensor->view.dtype) ||
      holds_all_values(mine, tensor->view.dtype))
    return std::nullopt;
  const Result<reference::Wide> value = reference::widen(tensor->view);
  return value && value->size() == 1 ? std::optional(value->values[0]) : std::nullopt;
}

bool is_16_bit(DType dtype) { return dtype == DType::Float16 || dtype == DType::BFloat16; }

/// A scalar is rounded before anything is computed. That moves all elements alike, so nothing
/// averages out: v is u^2, not w^2 / 12.
///
/// roundoff  of the type that it is rounded to
ErrorRow scalar_row(ErrorScale scale, double roundoff = kU) {
  return {.scale = scale, .w_factor = roundoff + kU, .v_factor = roundoff * roundoff};
}

/// Of an operand that is a scalar: numbers are rounded to the compute type, as is alpha; tensors
/// without axes by some kernels to the type of the result (torch's sums, and products that have it
/// as their first operand). Nothing: it is no scalar.
struct ScalarOperand {
  double value = 0;
  double roundoff = kU;
};
std::optional<ScalarOperand> scalar_operand(const Call& call, std::string_view name, DType mine) {
  if (const std::optional<double> scalar = real_scalar(call, name)) return ScalarOperand{*scalar};
  const std::optional<double> scalar = wide_zero_dim(call, name, mine);
  const std::optional<FloatGrid> grid = float_grid(mine);
  if (!scalar || !grid) return std::nullopt;
  return ScalarOperand{*scalar, grid->roundoff()};
}

ErrorRow sum_row(const Call& call, DType mine) {
  const std::optional<double> alpha = number(call, "alpha");
  for (const std::string_view name : {"other", "self"}) {
    const std::optional<ScalarOperand> scalar = scalar_operand(call, name, mine);
    if (!scalar) continue;
    ErrorRow row = scalar_row(ErrorScale::PlusSide, scalar->roundoff);
    row.side_constant = std::fabs(scalar->value * (name == "other" ? alpha.value_or(1) : 1));
    return row;
  }
  if (alpha && std::fabs(*alpha) != 1) {
    ErrorRow row = scalar_row(ErrorScale::PlusSide);
    row.side = tensor_of(call, plain_packet_of(call.name) == "rsub" ? "self" : "other");
    row.side_factor = std::fabs(*alpha);
    if (!row.side) row.side_constant = std::fabs(number(call, "other").value_or(0) * *alpha);
    return row;
  }
  return {};
}

ErrorRow product_of_two_row(const Call& call, DType mine) {
  for (const std::string_view name : {"other", "self"}) {
    if (const std::optional<ScalarOperand> scalar = scalar_operand(call, name, mine))
      return scalar_row(ErrorScale::Result, scalar->roundoff);
  }
  return {};
}

ErrorRow arithmetic_row(const Call& call, DType mine) {
  const std::string_view packet = plain_packet_of(call.name);
  const auto is_one_of = [packet](std::initializer_list<std::string_view> names) {
    return std::ranges::find(names, packet) != names.end();
  };
  if (is_one_of({"add", "sub", "rsub", "subtract"})) return sum_row(call, mine);
  if (is_one_of({"mul", "multiply", "square"})) return product_of_two_row(call, mine);
  if (is_one_of({"addcmul", "addcdiv", "lerp"})) {
    // Two roundings of terms that may cancel: |what is added| <= |y| + |self|.
    ErrorRow row = row_of(ErrorScale::PlusSide, 4 * kU);
    row.side = tensor_of(call, "self");
    return row;
  }
  for (const std::string_view name : {"other", "self"}) {
    const std::optional<ScalarOperand> scalar = scalar_operand(call, name, mine);
    if (scalar && scalar->roundoff > kU) return scalar_row(ErrorScale::Result, scalar->roundoff);
  }
  return row_of(ErrorScale::Result, 4 * kU);  // div, and what divides inside
}

ErrorRow power_row(const Call& call, const FloatGrid& grid) {
  const std::optional<Tensor> base = tensor_of(call, "self");
  const double n = number(call, "exponent").value_or(0);
  if (base && is_16_bit(base->view.dtype) && n > 2) {
    // n - 1 products, each rounded to the type of the base.
    ErrorRow row;
    row.w_factor = (n - 2) * grid.roundoff();
    row.v_factor = (n - 2) * kRoundingL2 * kRoundingL2 * grid.roundoff() * grid.roundoff();
    return row;
  }
  return row_of(ErrorScale::Result, 16 * kU);
}

ErrorRow activation_row(const Call& call) {
  ErrorRow row = row_of(ErrorScale::LargerInput, 16 * kU);
  row.side = input_of(call);
  return row;
}

ErrorRow terms_row(double w_factor, double v_factor, bool by_terms) {
  return {
      .scale = ErrorScale::Terms, .w_factor = w_factor, .v_factor = v_factor, .by_terms = by_terms};
}

/// Products, means and sums: w is 2 sqrt(K) u C. An addition moves its sum by up to u C to either
/// side, evenly, and where one term makes most of the sum every later one does: v is K (2 u C)^2 /
/// 12, as w^2 / 12 is elsewhere.
ErrorRow sums_row() { return terms_row(2 * kU, 4 * kU * kU / 12, true); }

/// Ranks add one after the other, and each sum on the way is rounded to the type that they send.
std::optional<ErrorRow> sum_over_ranks_row(const Call& call, const FloatGrid& grid) {
  const std::optional<double> ranks = number(call, kRanksArgument);
  if (!ranks) return std::nullopt;
  const double on_the_way = std::fmax(*ranks - 2, 0);
  const double once = kRoundingL2 * grid.roundoff();
  return terms_row(2 * std::sqrt(*ranks) * kU + on_the_way * grid.roundoff(),
                   *ranks * kU * kU / 3 + on_the_way * once * once, false);
}

std::optional<ErrorRow> row_for(const Call& call, OperatorClass kind, size_t output, DType mine,
                                const FloatGrid& grid) {
  constexpr double k16 = 16 * kU;
  switch (reference::aten::rounding_of(call.name)) {
    case reference::aten::Rounding::Given:
      return ErrorRow{.scale = ErrorScale::Given};
    case reference::aten::Rounding::Once:
      return ErrorRow{};
    case reference::aten::Rounding::ByClass:
      break;
  }
  switch (kind) {
    case OperatorClass::Move:
    case OperatorClass::Integer:
    case OperatorClass::Cast:
      return ErrorRow{};
    case OperatorClass::Arithmetic:
      return arithmetic_row(call, mine);
    case OperatorClass::Function:
      return row_of(ErrorScale::Result, 4 * kU);
    case OperatorClass::Trigonometric:
      return row_of(ErrorScale::One, 4 * kU);
    case OperatorClass::Softmax: {
      const std::string_view packet = plain_packet_of(call.name);
      if (packet == "pow") return power_row(call, grid);
      // Logarithms of sums are differences of larger terms; an exponential passes on the rounding
      // of x - max.
      if (packet.find("log") != std::string_view::npos ||
          packet.find("softmax") != std::string_view::npos)
        return terms_row(k16, k16 * k16 / 12, false);
      return row_of(ErrorScale::Result, k16);
    }
    case OperatorClass::Activation:
      return activation_row(call);
    case OperatorClass::Product:
      return sums_row();
    case OperatorClass::Reduction:
      return sum_over_ranks_row(call, grid).value_or(sums_row());
    case OperatorClass::Norm:
      if (output == 1 && plain_packet_of(call.name).find("rms") == std::string_view::npos)
        return sums_row();  // the mean
      return terms_row(k16, k16 * k16 / 12, false);
    case OperatorClass::Attention: {
      const std::optional<Tensor> query = tensor_of(call, "query");
      if (output != 0 && query && is_16_bit(query->view.dtype))
        return row_of(ErrorScale::One, kFastLogSumExp);
      if (output != 0) return terms_row(k16, k16 * k16 / 12, false);
      ErrorRow row = terms_row(0, 0, false);
      row.attention = true;
      return row;
    }
    case OperatorClass::Unknown:
    case OperatorClass::Fused:
    case OperatorClass::Random:
    case OperatorClass::Allocation:
      break;
  }
  return std::nullopt;
}

ErrorModel none(std::string reason) {
  return {.kind = ErrorModel::Kind::None, .row = {}, .reason = std::move(reason)};
}

}  // namespace

bool holds_all_values(DType wide, DType narrow) {
  if (wide == narrow) return true;
  const std::optional<FloatGrid> outer = float_grid(wide);
  const std::optional<FloatGrid> inner = float_grid(narrow);
  if (narrow == DType::Bool) return outer.has_value();
  if (!outer || !inner) return false;
  // The smallest subnormal of the narrow type must be a value of the wide one, too.
  return outer->fraction_bits >= inner->fraction_bits && outer->largest >= inner->largest &&
         outer->smallest_exponent - outer->fraction_bits <=
             inner->smallest_exponent - inner->fraction_bits;
}

ErrorModel error_model(const Call& call, size_t output, DType reference, DType mine) {
  const OperatorClass kind = reference::aten::class_of(call.name);
  ErrorModel model;
  model.kind = ErrorModel::Kind::Exact;
  if (kind == OperatorClass::Move || !is_float(mine)) return model;
  const std::optional<FloatGrid> grid = float_grid(mine);
  if (!grid) return none(std::string(name(mine)) + " results cannot be judged");
  // A result that keeps its type was not computed: casts to the same or a wider type.
  if (kind == OperatorClass::Cast && holds_all_values(mine, reference)) return model;
  if (mine == DType::Float64) return none("float64 results have no wider reference");
  const std::optional<ErrorRow> row = row_for(call, kind, output, mine, *grid);
  if (!row)
    return none(kind == OperatorClass::Fused ? "simulated floor only" : "no row of the table");
  model.kind = ErrorModel::Kind::Rounded;
  model.row = *row;
  return model;
}

}  // namespace assay::locate
