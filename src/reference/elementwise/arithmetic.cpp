// SPDX-License-Identifier: Apache-2.0
// One loop over two broadcast operands. Reals are computed in double; integers stay integers, wrap
// as the machine's do, and are compared exactly beyond 2^53, too.
#include "reference/elementwise/arithmetic.hpp"

#include <cstring>
#include <functional>

#include "reference/elementwise/map.hpp"
#include "reference/elementwise/zip.hpp"
#include "tensor/sentence.hpp"

namespace assay::reference {
namespace {

bool integers(const TensorView& a, const TensorView& b) {
  return is_integer(a.dtype) && is_integer(b.dtype);
}

/// Integers that a double cannot hold exactly.
bool needs_integers(const TensorView& a, const TensorView& b) {
  return integers(a, b) && (info(a.dtype).element_bits == 64 || info(b.dtype).element_bits == 64);
}

template <typename Integers, typename Reals>
Result<Tensor> exact_or_real(const TensorView& a, const TensorView& b, Integers exact, Reals real) {
  if (!integers(a, b)) {
    ASSAY_TRY(Wide out, zip_values(Views<2>{a, b}, real));
    return to_tensor(std::move(out));
  }
  ASSAY_TRY(Whole out, zip_integers(Views<2>{a, b}, exact));
  if (a.dtype == b.dtype) {
    for (int64_t& value : out.values) value = wrap_to(value, a.dtype);
  }
  return to_tensor(std::move(out));
}

/// Cut off toward zero, NaN as 0; narrow() then clamps to the range of the type.
double truncated(double value) { return std::isnan(value) ? 0.0 : std::trunc(value); }

Result<Tensor> cast_integers(const TensorView& x, DType dtype) {
  ASSAY_TRY(Whole values, whole(x));
  if (is_float(dtype)) {
    // Float32 and Float64 straight from the integer: one rounding. A double in between is exact for
    // the smaller types wherever they are finite, but for half-way cases beyond 2^53.
    if (dtype == DType::Float32) {
      Wide rounded(values.shape);
      for (size_t i = 0; i < values.values.size(); ++i)
        rounded.values[i] = static_cast<double>(static_cast<float>(values.values[i]));
      return narrow(to_tensor(std::move(rounded)).view, dtype);
    }
    return narrow(to_tensor(std::move(values)).view, dtype);
  }
  const size_t element_bytes = info(dtype).element_bits / 8;
  auto bytes =
      std::make_shared<Array<std::byte>>(Dims{values.size() * static_cast<int64_t>(element_bytes)});
  for (size_t i = 0; i < values.values.size(); ++i) {
    // Little-endian: the low bytes come first.
    const int64_t value = dtype == DType::Bool ? values.values[i] != 0 : values.values[i];
    std::memcpy(bytes->data() + i * element_bytes, &value, element_bytes);
  }
  ASSAY_TRY(const TensorView view,
            make_view(dtype, x.shape, ByteSpan(bytes->data(), bytes->values.size())));
  return Tensor{view, std::move(bytes)};
}

}  // namespace

Result<Wide> cosine(const TensorView& x) {
  return map_values(x, [](double v) { return std::cos(v); });
}
Result<Wide> sine(const TensorView& x) {
  return map_values(x, [](double v) { return std::sin(v); });
}
Result<Wide> hyperbolic_tangent(const TensorView& x) {
  return map_values(x, [](double v) { return std::tanh(v); });
}

Result<Tensor> negated(const TensorView& x) {
  if (is_integer(x.dtype)) {
    ASSAY_TRY(Whole values, whole(x));
    for (int64_t& value : values.values) value = wrap_to(wrapping_subtract(0, value), x.dtype);
    return to_tensor(std::move(values));
  }
  ASSAY_TRY(Wide values, map_values(x, [](double v) { return -v; }));
  return to_tensor(std::move(values));
}

Result<Wide> scaled(const TensorView& x, double factor) {
  return map_values(x, [factor](double v) { return v * factor; });
}

Result<Whole> logical_not(const TensorView& x) {
  ASSAY_TRY(const Wide values, map_values(x, [](double v) { return v == 0 ? 1.0 : 0.0; }));
  Whole result(x.shape);
  std::transform(values.values.begin(), values.values.end(), result.values.begin(),
                 [](double v) { return static_cast<int64_t>(v); });
  return result;
}

Result<Tensor> arithmetic(Arithmetic operation, const TensorView& a, const TensorView& b) {
  switch (operation) {
    case Arithmetic::Add:
      return exact_or_real(a, b, wrapping_add, [](double x, double y) { return x + y; });
    case Arithmetic::Subtract:
      return exact_or_real(a, b, wrapping_subtract, [](double x, double y) { return x - y; });
    case Arithmetic::Multiply:
      return exact_or_real(a, b, wrapping_multiply, [](double x, double y) { return x * y; });
    case Arithmetic::Divide:
      break;
  }
  ASSAY_TRY(Wide out, zip_values(Views<2>{a, b}, [](double x, double y) { return x / y; }));
  return to_tensor(std::move(out));
}

Result<Whole> compare(Comparison comparison, const TensorView& a, const TensorView& b) {
  const auto with = [&]<typename F>(F f) {
    const Views<2> operands{a, b};
    return needs_integers(a, b) ? zip_integers(operands, f) : zip_values<int64_t>(operands, f);
  };
  switch (comparison) {
    case Comparison::Less:
      return with(std::less<>());
    case Comparison::Greater:
      return with(std::greater<>());
    case Comparison::Equal:
      break;
  }
  return with(std::equal_to<>());
}

Result<Whole> logical(Logic logic, const TensorView& a, const TensorView& b) {
  if (logic == Logic::And)
    return zip_values<int64_t>(Views<2>{a, b}, [](double x, double y) { return x != 0 && y != 0; });
  return zip_values<int64_t>(Views<2>{a, b}, [](double x, double y) { return x != 0 || y != 0; });
}

Result<Tensor> cast(const TensorView& x, DType dtype) {
  if (is_complex(dtype) || info(dtype).kind == DTypeKind::Bits || info(dtype).element_bits < 8 ||
      info(dtype).element_values != 1)
    return fail(Errc::Unsupported, "cannot cast to ", dtype);
  if (is_integer(x.dtype) || x.dtype == DType::Bool) return cast_integers(x, dtype);
  if (is_integer(dtype)) {
    ASSAY_TRY(Wide values, map_values(x, truncated));
    return narrow(to_tensor(std::move(values)).view, dtype);
  }
  return narrow(x, dtype);
}

}  // namespace assay::reference
