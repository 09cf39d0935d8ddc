// SPDX-License-Identifier: Apache-2.0
// Tensors out of numbers, and those whose values nobody can predict.
#include <algorithm>
#include <cmath>
#include <string>

#include "reference/aten/values.hpp"

namespace assay::reference::aten {
namespace {

// ---- One value everywhere -----------------------------------------------------------------------

/// The argument dtype, else that of `self` where the call has one, else the fallback.
Result<DType> wanted_type(const Arguments& arguments, DType fallback) {
  ASSAY_TRY(const std::optional<DType> dtype, arguments.dtype());
  if (dtype) return *dtype;
  if (!arguments.is_tensor("self")) return fallback;
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  return self.view.dtype;
}

/// The argument size, else the shape of `self`.
Result<Dims> wanted_shape(const Arguments& arguments) {
  if (arguments.has("size")) {
    ASSAY_TRY(const std::vector<int64_t> size, arguments.integers("size"));
    return Dims(std::span<const int64_t>(size));
  }
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  return self.view.shape;
}

/// `value` in the wanted shape and type; numbers of float types stay as given.
Result<Values> filled(const Arguments& arguments, const Tensor& value, DType fallback) {
  ASSAY_TRY(const DType dtype, wanted_type(arguments, fallback));
  ASSAY_TRY(const Dims shape, wanted_shape(arguments));
  ASSAY_TRY(const Tensor cast, cast_to(value, dtype));
  return single(constant(cast, shape));
}

template <int64_t value>
Result<Values> constants(const Arguments& arguments, const EvaluateOptions&) {
  return filled(arguments, scalar_tensor(value), DType::Float64);
}

/// Memory that nobody has written yet; zeros stand for it where a replay needs the tensor.
Result<Values> allocated(const Arguments& arguments, const EvaluateOptions& options) {
  return constants<0>(arguments, options);
}

Result<Values> full(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Operand value, operand(arguments, "fill_value"));
  return filled(arguments, value.tensor, value.tensor.view.dtype);
}

Result<Values> fill(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Operand value, operand(arguments, "value"));
  if (value.tensor.view.element_count() != 1)
    return fail(arguments.invalid("a value that is no single number"));
  Tensor one = value.tensor;
  one.view.shape = {};
  one.view.strides = {};
  return filled(arguments, one, one.view.dtype);
}

Result<Values> scalar(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Operand value, operand(arguments, "s"));
  // Without a dtype numbers of all kinds become the default float type.
  ASSAY_TRY(const DType dtype, wanted_type(arguments, DType::Float64));
  return single(cast_to(value.tensor, dtype));
}

// ---- Sequences ----------------------------------------------------------------------------------

/// start + i step for i in [0, count).
Result<Values> sequence(double start, double step, int64_t count) {
  ASSAY_TRY_STATUS(checked_count({count}));
  Wide values({count});
  for (int64_t i = 0; i < count; ++i) values.data()[i] = start + step * static_cast<double>(i);
  return single(to_tensor(std::move(values)));
}

Result<Values> integer_sequence(const Arguments& arguments, DType dtype) {
  ASSAY_TRY(const int64_t start, arguments.integer("start", 0));
  ASSAY_TRY(const int64_t end, arguments.integer("end"));
  ASSAY_TRY(const int64_t step, arguments.integer("step", 1));
  int64_t distance = 0;
  if (step == 0 || __builtin_sub_overflow(end, start, &distance) ||
      (distance != 0 && (distance < 0) != (step < 0)))
    return fail(arguments.invalid("from ", start, " to ", end, " by ", step));
  const int64_t count =
      distance == 0 ? 0 : (step > 0 ? (distance - 1) / step : (distance + 1) / step) + 1;
  ASSAY_TRY_STATUS(checked_count({count}));
  Whole values({count});
  for (int64_t i = 0; i < count; ++i) values.data()[i] = wrap_to(start + i * step, dtype);
  return single(to_tensor(std::move(values)));
}

Result<Values> arange(const Arguments& arguments, const EvaluateOptions&) {
  const bool real_numbers = arguments.is_real_scalar("start") || arguments.is_real_scalar("end") ||
                            arguments.is_real_scalar("step");
  ASSAY_TRY(const DType dtype,
            wanted_type(arguments, real_numbers ? DType::Float64 : DType::Int64));
  if (!real_numbers && is_whole(dtype)) return integer_sequence(arguments, dtype);
  ASSAY_TRY(const double start, arguments.real("start", 0.0));
  ASSAY_TRY(const double end, arguments.real("end"));
  ASSAY_TRY(const double step, arguments.real("step", 1.0));
  const double count = std::ceil((end - start) / step);
  if (!(count >= 0 && count < 0x1p40)) return fail(arguments.invalid("a range that does not end"));
  ASSAY_TRY(Values values, sequence(start, step, static_cast<int64_t>(count)));
  return single(cast_to(values[0], dtype));
}

/// `steps` values from start to end, both among them, counted from the nearer one.
Result<Values> linspace(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const double start, arguments.real("start"));
  ASSAY_TRY(const double end, arguments.real("end"));
  ASSAY_TRY(const int64_t steps, arguments.integer("steps"));
  ASSAY_TRY(const DType dtype, wanted_type(arguments, DType::Float64));
  ASSAY_TRY_STATUS(checked_count({steps}));
  Wide values({steps});
  const double step = steps > 1 ? (end - start) / static_cast<double>(steps - 1) : 0;
  for (int64_t i = 0; i < steps; ++i)
    values.data()[i] = i < steps / 2 || steps == 1
                           ? start + step * static_cast<double>(i)
                           : end - step * static_cast<double>(steps - 1 - i);
  return single(cast_to(to_tensor(std::move(values)), dtype));
}

// ---- Matrices -----------------------------------------------------------------------------------

Result<Values> eye(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const int64_t rows, arguments.integer("n"));
  ASSAY_TRY(const int64_t columns, arguments.integer("m", rows));
  ASSAY_TRY(const DType dtype, wanted_type(arguments, DType::Float64));
  ASSAY_TRY_STATUS(checked_count({rows, columns}));
  Wide values({rows, columns}, 0.0);
  for (int64_t i = 0; i < std::min(rows, columns); ++i) values.data()[i * columns + i] = 1;
  return single(cast_to(to_tensor(std::move(values)), dtype));
}

/// [2, count]: rows and columns of the places below the diagonal (or above it), it included.
template <bool lower>
Result<Values> triangle_indices(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const int64_t rows, arguments.integer("row"));
  ASSAY_TRY(const int64_t columns, arguments.integer("col"));
  ASSAY_TRY(const int64_t offset, arguments.integer("offset", 0));
  ASSAY_TRY_STATUS(checked_count({rows, columns}));
  if (std::abs(offset) > int64_t{1} << 40) return fail(arguments.invalid("offset"));
  std::vector<int64_t> at[2];
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t edge = i + offset;
    const int64_t first = lower ? 0 : std::clamp<int64_t>(edge, 0, columns);
    const int64_t last = lower ? std::clamp<int64_t>(edge + 1, 0, columns) : columns;
    for (int64_t j = first; j < last; ++j) {
      at[0].push_back(i);
      at[1].push_back(j);
    }
  }
  Whole values({2, static_cast<int64_t>(at[0].size())});
  std::copy(at[1].begin(), at[1].end(),
            std::copy(at[0].begin(), at[0].end(), values.values.begin()));
  return single(to_tensor(std::move(values)));
}

// ---- Chance -------------------------------------------------------------------------------------

Result<Values> random(const Arguments& arguments, const EvaluateOptions&) {
  return fail(Error{Errc::Random, {}, std::nullopt, "random: " + arguments.call().name, true});
}

/// True when nothing is dropped.
Result<bool> drops_nothing(const Arguments& arguments) {
  ASSAY_TRY(const double p, arguments.real("p"));
  ASSAY_TRY(const bool train, arguments.truth("train", true));
  return p == 0 || !train;
}

Result<Values> dropout(const Arguments& arguments, const EvaluateOptions& options) {
  ASSAY_TRY(const bool nothing, drops_nothing(arguments));
  if (!nothing) return random(arguments, options);
  ASSAY_TRY(Tensor input, arguments.tensor(arguments.has("input") ? "input" : "self"));
  return single(std::move(input));
}

/// The second output says what stays.
Result<Values> native_dropout(const Arguments& arguments, const EvaluateOptions& options) {
  ASSAY_TRY(Values values, dropout(arguments, options));
  ASSAY_TRY(Tensor kept, constant(scalar_tensor(true), values[0].view.shape));
  values.push_back(std::move(kept));
  return values;
}

constexpr Overloads kCreations[] = {
    {"arange.default arange.start arange.start_step", OperatorClass::Arithmetic, arange},
    {"dropout.default dropout_.default", OperatorClass::Move, dropout},
    {"empty.memory_format empty_like.default empty_permuted.default empty_strided.default "
     "new_empty.default new_empty_strided.default",
     OperatorClass::Allocation, allocated},
    {"eye.default eye.m", OperatorClass::Move, eye},
    {"fill.Scalar fill.Tensor", OperatorClass::Cast, fill},
    {"full.default full_like.default new_full.default", OperatorClass::Cast, full},
    {"linspace.Scalar_Tensor linspace.Tensor_Scalar linspace.Tensor_Tensor linspace.default",
     OperatorClass::Function, linspace},
    {"native_dropout.default", OperatorClass::Move, native_dropout},
    {"new_ones.default ones.default ones_like.default", OperatorClass::Move, constants<1>},
    {"new_zeros.default zero.default zeros.default zeros_like.default", OperatorClass::Move,
     constants<0>},
    {"scalar_tensor.default", OperatorClass::Cast, scalar},
    {"tril_indices.default", OperatorClass::Integer, triangle_indices<true>},
    {"triu_indices.default", OperatorClass::Integer, triangle_indices<false>},
    {"_fused_dropout.default alpha_dropout.default bernoulli.Tensor bernoulli.default bernoulli.p "
     "bernoulli_.Tensor bernoulli_.float cauchy_.default exponential_.default geometric_.default "
     "log_normal_.default multinomial.default normal.Tensor_Tensor normal.Tensor_float "
     "normal.float_Tensor normal.float_float normal_.default rand.default rand.generator "
     "rand_like.default randint.default randint.low randint_like.default randint_like.low_dtype "
     "randn.default randn.generator randn_like.default random_.default random_.from random_.to "
     "randperm.default uniform.default",
     OperatorClass::Random, random},
};

}  // namespace

std::span<const Overloads> creation_overloads() { return kCreations; }

}  // namespace assay::reference::aten
