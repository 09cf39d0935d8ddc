// SPDX-License-Identifier: Apache-2.0
// Tensors of any type become arrays of double or of int64, and arrays become tensors: rounding to
// float16, bfloat16 and the 8-bit floats works on the bits of the double.
#include "reference/wide.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "base/simd.hpp"
#include "tensor/convert.hpp"
#include "tensor/half.hpp"
#include "tensor/sentence.hpp"

namespace assay::reference {
namespace {

constexpr int64_t kMaxElements = int64_t{1} << 36;

bool is_packed(DType dtype) { return info(dtype).element_bits < 8; }

bool is_real(DType dtype) {
  const DTypeInfo& type = info(dtype);
  return type.kind != DTypeKind::Complex && type.kind != DTypeKind::Bits &&
         type.element_values == 1;
}

template <typename T>
Tensor owning_tensor(Array<T> array, DType dtype) {
  auto held = std::make_shared<Array<T>>(std::move(array));
  TensorView view;
  view.dtype = dtype;
  view.shape = held->shape;
  view.strides = contiguous_strides(held->shape);
  view.storage =
      ByteSpan(reinterpret_cast<const std::byte*>(held->data()), held->values.size() * sizeof(T));
  return {view, std::move(held)};
}

template <typename T>
void copy_integers(const TensorView& view, int64_t count, int64_t* out) {
  std::vector<T> block(static_cast<size_t>(std::min<int64_t>(count, 16384)));
  for (int64_t first = 0; first < count; first += static_cast<int64_t>(block.size())) {
    const int64_t length = std::min<int64_t>(count - first, static_cast<int64_t>(block.size()));
    gather_bytes(
        view, first, length,
        {reinterpret_cast<std::byte*>(block.data()), static_cast<size_t>(length) * sizeof(T)});
    for (int64_t i = 0; i < length; ++i)
      out[first + i] = static_cast<int64_t>(block[static_cast<size_t>(i)]);
  }
}

/// A float format of 8 or 16 bits.
struct SmallFloat {
  int exponent_bits;
  int fraction_bits;
  int bias;
  bool has_infinity;
};

std::optional<SmallFloat> small_float(DType dtype) {
  switch (dtype) {
    case DType::Float16:
      return SmallFloat{5, 10, 15, true};
    case DType::BFloat16:
      return SmallFloat{8, 7, 127, true};
    case DType::Float8E5M2:
      return SmallFloat{5, 2, 15, true};
    case DType::Float8E4M3FN:
      return SmallFloat{4, 3, 7, false};
    default:
      return std::nullopt;
  }
}

/// The nearest value of the format, halves to even, as its bits below the sign.
uint32_t encode(double magnitude, const SmallFloat& format) {
  const uint32_t all_ones = (1u << format.exponent_bits) - 1u;
  const uint32_t infinity = all_ones << format.fraction_bits;
  const uint32_t nan = format.has_infinity ? infinity | (1u << (format.fraction_bits - 1))
                                           : infinity | ((1u << format.fraction_bits) - 1u);
  // e4m3fn spends its largest exponent on numbers; only the last pattern is NaN.
  const uint32_t largest = format.has_infinity ? infinity - 1 : nan - 1;
  if (std::isnan(magnitude)) return nan;
  if (std::isinf(magnitude)) return format.has_infinity ? infinity : largest;
  const uint64_t bits64 = std::bit_cast<uint64_t>(magnitude);
  const int64_t biased = static_cast<int64_t>(bits64 >> 52) - 1023 + format.bias;
  if (biased > 0) {  // a normal number of the format: cut digits off, to nearest even
    const int cut = 52 - format.fraction_bits;
    const uint64_t half = (uint64_t{1} << (cut - 1)) - 1 + ((bits64 >> cut) & 1);
    // A carry into the exponent comes out by itself.
    const uint64_t kept = ((bits64 + half) >> cut) -
                          (static_cast<uint64_t>(1023 - format.bias) << format.fraction_bits);
    if (kept > largest) return format.has_infinity ? infinity : largest;
    return static_cast<uint32_t>(kept);
  }
  if (magnitude == 0) return 0;
  // Below them values stand one unit of the smallest normal number's last place apart.
  return static_cast<uint32_t>(
      round_half_even(std::ldexp(magnitude, format.bias - 1 + format.fraction_bits)));
}

/// The same of many values of float16 or bfloat16, sign included, without a branch. The default
/// rounding mode is assumed, as everywhere.
ASSAY_CLONES void encode_many(const double* values, int64_t count, SmallFloat format,
                              uint16_t* out) {
  using simd::f64x8;
  using simd::u64x8;
  constexpr int64_t kLanes = 8;
  typedef uint16_t u16x8 __attribute__((vector_size(16)));
  const int cut = 52 - format.fraction_bits;
  const uint64_t half = (uint64_t{1} << (cut - 1)) - 1;
  const uint64_t offset = static_cast<uint64_t>(1023 - format.bias) << format.fraction_bits;
  const uint64_t infinity = ((uint64_t{1} << format.exponent_bits) - 1) << format.fraction_bits;
  const uint64_t quiet = infinity | (uint64_t{1} << (format.fraction_bits - 1));
  const uint64_t smallest_normal = static_cast<uint64_t>(1023 - format.bias + 1) << 52;
  // Added to a subnormal of the format, it leaves the number of units in the low bits of the sum.
  const double unit = std::ldexp(1.0, 1 - format.bias - format.fraction_bits);
  const double shift = 0x1p52 * unit;
  const uint64_t shift_bits = std::bit_cast<uint64_t>(shift);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const u64x8 bits = simd::load<u64x8>(values + i);
    const u64x8 magnitude = bits & ~(uint64_t{1} << 63);
    const u64x8 kept = ((magnitude + half + ((magnitude >> cut) & 1)) >> cut) - offset;
    const u64x8 normal = kept > infinity ? u64x8{} + infinity : kept;
    const u64x8 small = (u64x8)((f64x8)magnitude + shift) - shift_bits;
    u64x8 code = magnitude < smallest_normal ? small : normal;
    code = magnitude > (uint64_t{0x7FF} << 52) ? u64x8{} + quiet : code;
    simd::store(out + i, __builtin_convertvector(code | ((bits >> 63) << 15), u16x8));
  }
  for (; i < count; ++i) {
    const uint32_t sign = std::signbit(values[i]) ? 0x8000u : 0u;
    out[i] = static_cast<uint16_t>(sign | encode(std::fabs(values[i]), format));
  }
}

/// Reals to float16 or bfloat16.
void encode_blocks(const TensorView& view, const SmallFloat& format, std::byte* out) {
  const int64_t count = view.element_count();
  constexpr int64_t kBlock = 4096;
  std::vector<double> block(static_cast<size_t>(std::min(count, kBlock)));
  std::vector<uint16_t> codes(block.size());
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t length = std::min(count - first, kBlock);
    const auto size = static_cast<size_t>(length);
    read_values(view, first, length, std::span(block).first(size));
    encode_many(block.data(), length, format, codes.data());
    std::memcpy(out + first * static_cast<int64_t>(sizeof(uint16_t)), codes.data(),
                size * sizeof(uint16_t));
  }
}

template <typename T>
T clamped(double value) {
  if (std::isnan(value)) return 0;
  const double rounded = round_half_even(value);
  // Comparisons in double: the largest 64-bit integers round up to a power of two, which is out of
  // range.
  if (rounded <= static_cast<double>(std::numeric_limits<T>::min()))
    return std::numeric_limits<T>::min();
  if (rounded >= static_cast<double>(std::numeric_limits<T>::max()))
    return std::numeric_limits<T>::max();
  return static_cast<T>(rounded);
}

template <typename T, typename Convert>
void convert_blocks(const TensorView& view, std::byte* out, Convert convert) {
  const int64_t count = view.element_count();
  std::vector<double> block(static_cast<size_t>(std::min<int64_t>(count, 8192)));
  for (int64_t first = 0; first < count; first += static_cast<int64_t>(block.size())) {
    const int64_t length = std::min<int64_t>(count - first, static_cast<int64_t>(block.size()));
    read_values(view, first, length, std::span(block).first(static_cast<size_t>(length)));
    for (int64_t i = 0; i < length; ++i) {
      const T value = convert(block[static_cast<size_t>(i)]);
      std::memcpy(out + (first + i) * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
    }
  }
}

}  // namespace

Result<int64_t> checked_count(const Dims& shape) {
  for (const int64_t size : shape) {
    if (size < 0) return fail(Errc::Invalid, "a result of shape ", shape);
  }
  const std::optional<int64_t> count = element_count(shape);
  if (!count || *count > kMaxElements)
    return fail(Errc::TooLarge, "a result of shape ", shape, " is too large");
  return *count;
}

Status check_real(const TensorView& view) {
  if (!is_real(view.dtype))
    return fail(Errc::Unsupported, view.dtype, " has no real values to compute with");
  return checked_count(view.shape).transform([](int64_t) {});
}

Result<Wide> widen(const TensorView& view) {
  ASSAY_TRY_STATUS(check_real(view));
  Wide wide(view.shape);
  read_values(view, 0, wide.size(), std::span(wide.data(), wide.values.size()));
  return wide;
}

Result<Whole> whole(const TensorView& view) {
  if (!is_integer(view.dtype) && view.dtype != DType::Bool)
    return fail(Errc::Unsupported, view.dtype, " values are no integers");
  ASSAY_TRY(const int64_t count, checked_count(view.shape));
  Whole result(view.shape);
  switch (view.dtype) {
    case DType::Int64:
      copy_integers<int64_t>(view, count, result.data());
      break;
    case DType::UInt64: {
      copy_integers<uint64_t>(view, count, result.data());
      for (const int64_t value : result.values) {
        if (value < 0) return fail(Errc::TooLarge, "a uint64 value exceeds 2^63 - 1");
      }
      break;
    }
    default: {  // all others are exact in a double
      std::vector<double> values(static_cast<size_t>(count));
      read_values(view, 0, count, values);
      std::transform(values.begin(), values.end(), result.values.begin(),
                     [](double value) { return static_cast<int64_t>(value); });
    }
  }
  return result;
}

TensorView view_of(const Wide& array) {
  return {DType::Float64, array.shape, contiguous_strides(array.shape),
          std::as_bytes(std::span(array.values))};
}

Tensor to_tensor(Wide array) { return owning_tensor(std::move(array), DType::Float64); }
Tensor to_tensor(Whole array) { return owning_tensor(std::move(array), DType::Int64); }

Result<Tensor> contiguous(const Tensor& tensor) {
  if (tensor.view.is_contiguous() && !tensor.view.conjugate && !tensor.view.negative) return tensor;
  if (is_packed(tensor.view.dtype))
    return fail(Errc::Unsupported, "packed values of type ", tensor.view.dtype,
                " cannot be put in another order");
  ASSAY_TRY(const int64_t count, checked_count(tensor.view.shape));
  const size_t element_bytes = info(tensor.view.dtype).element_bits / 8;
  auto bytes =
      std::make_shared<Array<std::byte>>(Dims{count * static_cast<int64_t>(element_bytes)});
  gather_bytes(tensor.view, 0, count, {bytes->data(), bytes->values.size()});
  ASSAY_TRY(TensorView view, make_view(tensor.view.dtype, tensor.view.shape,
                                       ByteSpan(bytes->data(), bytes->values.size())));
  view.conjugate = tensor.view.conjugate;
  view.negative = tensor.view.negative;
  return Tensor{view, std::move(bytes)};
}

Result<Tensor> reshaped(const Tensor& tensor, const Dims& shape) {
  if (element_count(shape) != tensor.view.element_count())
    return fail(Errc::Invalid, tensor.view.shape, " does not have the elements of ", shape);
  Tensor result = tensor;
  if (!tensor.view.is_contiguous()) {
    ASSAY_TRY(result, contiguous(tensor));
  }
  result.view.shape = shape;
  result.view.strides = contiguous_strides(shape);
  return result;
}

int64_t wrap_to(int64_t value, DType dtype) {
  switch (dtype) {
    case DType::Int32:
      return static_cast<int32_t>(static_cast<uint32_t>(value));
    case DType::Int16:
      return static_cast<int16_t>(static_cast<uint16_t>(value));
    case DType::Int8:
      return static_cast<int8_t>(static_cast<uint8_t>(value));
    case DType::UInt32:
      return static_cast<int64_t>(static_cast<uint32_t>(value));
    case DType::UInt16:
      return static_cast<uint16_t>(value);
    case DType::UInt8:
      return static_cast<uint8_t>(value);
    case DType::Bool:
      return value != 0;
    default:
      return value;
  }
}

double scale_from_bits(int64_t bits) {
  return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits & 0xFFFFFFFF)));
}

double round_to(double value, DType dtype) {
  if (dtype == DType::Float64) return value;
  if (dtype == DType::Float32) return static_cast<double>(static_cast<float>(value));
  const std::optional<SmallFloat> format = small_float(dtype);
  if (!format) return value;
  const uint32_t bits = encode(std::fabs(value), *format);
  double magnitude = 0;
  switch (dtype) {
    case DType::Float16:
      magnitude = static_cast<double>(float16_to_float(static_cast<uint16_t>(bits)));
      break;
    case DType::BFloat16:
      magnitude = static_cast<double>(bfloat16_to_float(static_cast<uint16_t>(bits)));
      break;
    case DType::Float8E5M2:
      magnitude = static_cast<double>(float8_e5m2_to_float(static_cast<uint8_t>(bits)));
      break;
    default:
      magnitude = static_cast<double>(float8_e4m3fn_to_float(static_cast<uint8_t>(bits)));
  }
  return std::copysign(magnitude, value);
}

Result<Tensor> narrow(const TensorView& wide, DType dtype) {
  ASSAY_TRY_STATUS(check_real(wide));
  if (!is_real(dtype) || is_packed(dtype))
    return fail(Errc::Unsupported, dtype, " has no real values to compute with");
  const int64_t count = wide.element_count();
  const size_t element_bytes = info(dtype).element_bits / 8;
  auto bytes =
      std::make_shared<Array<std::byte>>(Dims{count * static_cast<int64_t>(element_bytes)});
  std::byte* out = bytes->data();
  const auto whole_numbers = [&]<typename T>(T) {
    convert_blocks<T>(wide, out, [](double value) { return clamped<T>(value); });
  };
  switch (dtype) {
    case DType::Float64:
      convert_blocks<double>(wide, out, [](double value) { return value; });
      break;
    case DType::Float32:
      convert_blocks<float>(wide, out, [](double value) { return static_cast<float>(value); });
      break;
    case DType::Float16:
    case DType::BFloat16:
      encode_blocks(wide, *small_float(dtype), out);
      break;
    case DType::Float8E5M2:
    case DType::Float8E4M3FN:
      convert_blocks<uint8_t>(wide, out, [format = *small_float(dtype)](double value) {
        const uint32_t sign = std::signbit(value) ? 0x80u : 0u;
        return static_cast<uint8_t>(sign | encode(std::fabs(value), format));
      });
      break;
    case DType::Int64:
      whole_numbers(int64_t{});
      break;
    case DType::Int32:
      whole_numbers(int32_t{});
      break;
    case DType::Int16:
      whole_numbers(int16_t{});
      break;
    case DType::Int8:
      whole_numbers(int8_t{});
      break;
    case DType::UInt64:
      whole_numbers(uint64_t{});
      break;
    case DType::UInt32:
      whole_numbers(uint32_t{});
      break;
    case DType::UInt16:
      whole_numbers(uint16_t{});
      break;
    case DType::UInt8:
      whole_numbers(uint8_t{});
      break;
    case DType::Bool:
      convert_blocks<uint8_t>(wide, out,
                              [](double value) { return static_cast<uint8_t>(value != 0); });
      break;
    default:
      return fail(Errc::Unsupported, "cannot round to ", dtype);
  }
  ASSAY_TRY(const TensorView view,
            make_view(dtype, wide.shape, ByteSpan(bytes->data(), bytes->values.size())));
  return Tensor{view, std::move(bytes)};
}

Result<size_t> axis_of(int64_t axis, size_t rank) {
  const auto dims = static_cast<int64_t>(rank);
  if (axis < -dims || axis >= dims)
    return fail(Errc::Invalid, "axis ", axis, " of a tensor with ", rank, " dimensions");
  return static_cast<size_t>(axis < 0 ? axis + dims : axis);
}

}  // namespace assay::reference
