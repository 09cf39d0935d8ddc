// SPDX-License-Identifier: Apache-2.0
// A view is cut into runs of equally spaced elements, as long as its strides allow; each run is
// widened or copied by a loop for its type.
#include "tensor/convert.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/simd.hpp"
#include "tensor/half.hpp"
#include "tensor/widen.hpp"

namespace assay {
namespace {

using simd::load;
using simd::store;

// ---- Runs: a strided view as a sequence of equally spaced elements ------------------------------

/// Calls run(offset, stride, length, done) for consecutive parts of elements [first, first + count)
/// in C order: `length` elements from element `offset` of the storage on, `stride` apart, after
/// `done` earlier ones.
template <typename Run>
void for_each_run(const TensorView& view, int64_t first, int64_t count, Run run) {
  if (count <= 0) return;
  const size_t rank = view.shape.size();
  if (rank == 0 || view.is_contiguous()) {
    run(view.offset_elements + first, int64_t{1}, count, int64_t{0});
    return;
  }
  // Join neighbouring dimensions that one stride describes, so that runs are as long as they can
  // be.
  Dims sizes;
  Dims strides;
  for (size_t i = 0; i < rank; ++i) {
    if (view.shape[i] == 1) continue;
    const size_t last = sizes.size();
    if (last != 0 && strides[last - 1] == view.shape[i] * view.strides[i]) {
      sizes[last - 1] *= view.shape[i];
      strides[last - 1] = view.strides[i];
    } else {
      sizes.push_back(view.shape[i]);
      strides.push_back(view.strides[i]);
    }
  }
  const size_t dims = sizes.size();
  if (dims == 0) {
    run(view.offset_elements, int64_t{1}, count, int64_t{0});
    return;
  }
  Dims index;
  index.resize(dims);
  int64_t offset = view.offset_elements;
  int64_t rest = first;
  for (size_t i = dims; i-- > 0;) {
    index[i] = rest % sizes[i];
    rest /= sizes[i];
    offset += index[i] * strides[i];
  }
  const size_t inner = dims - 1;
  int64_t done = 0;
  while (true) {
    const int64_t length = std::min(count - done, sizes[inner] - index[inner]);
    run(offset, strides[inner], length, done);
    done += length;
    if (done == count) return;
    offset += (length - sizes[inner]) * strides[inner];
    index[inner] = 0;
    for (size_t i = inner; i-- > 0;) {
      offset += strides[i];
      if (++index[i] < sizes[i]) break;
      offset -= sizes[i] * strides[i];
      index[i] = 0;
    }
  }
}

// ---- Widening of contiguous elements ------------------------------------------------------------

template <typename Elements>
[[gnu::always_inline]] inline void widen_contiguous(const std::byte* source, int64_t count,
                                                    double* out) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) store(out + i, Elements::eight(source + i * Elements::kBytes));
  for (; i < count; ++i) out[i] = Elements::one(source + i * Elements::kBytes);
}

ASSAY_CLONES void widen_float32(const std::byte* source, int64_t count, double* out) {
  widen_contiguous<simd::Float32Elements>(source, count, out);
}
ASSAY_CLONES void widen_bfloat16(const std::byte* source, int64_t count, double* out) {
  widen_contiguous<simd::BFloat16Elements>(source, count, out);
}
ASSAY_CLONES void widen_float16(const std::byte* source, int64_t count, double* out) {
  widen_contiguous<simd::Float16Elements>(source, count, out);
}

/// Widening of elements that are `stride` elements apart; T is the storage type, widen(T) the
/// value.
template <typename T, typename Widen>
void widen_strided(const std::byte* source, int64_t stride, int64_t count, double* out,
                   Widen widen) {
  const int64_t step = stride * static_cast<int64_t>(sizeof(T));
  for (int64_t i = 0; i < count; ++i)
    out[i] = static_cast<double>(widen(load<T>(source + i * step)));
}

template <typename T>
void widen_number(const std::byte* source, int64_t stride, int64_t count, double* out) {
  widen_strided<T>(source, stride, count, out, [](T value) { return value; });
}

using ByteTable = std::array<float, 256>;
ByteTable make_table(float (*decode)(uint8_t)) {
  ByteTable table{};
  for (size_t i = 0; i < table.size(); ++i) table[i] = decode(static_cast<uint8_t>(i));
  return table;
}

/// The 256 values of a one-byte float type.
const ByteTable& float8_table(DType dtype) {
  static const ByteTable e4m3fn = make_table(float8_e4m3fn_to_float);
  static const ByteTable e5m2 = make_table(float8_e5m2_to_float);
  static const ByteTable e4m3fnuz = make_table(float8_e4m3fnuz_to_float);
  static const ByteTable e5m2fnuz = make_table(float8_e5m2fnuz_to_float);
  static const ByteTable e8m0fnu = make_table(float8_e8m0fnu_to_float);
  static const ByteTable hifloat8 = make_table(hifloat8_to_float);
  switch (dtype) {
    case DType::Float8E4M3FN:
      return e4m3fn;
    case DType::Float8E5M2:
      return e5m2;
    case DType::Float8E4M3FNUZ:
      return e4m3fnuz;
    case DType::Float8E5M2FNUZ:
      return e5m2fnuz;
    case DType::Float8E8M0FNU:
      return e8m0fnu;
    default:
      return hifloat8;
  }
}

/// One-byte elements that hold several numbers of `bits` bits, the lowest bits first.
template <typename Decode>
void unpack_bytes(const std::byte* source, int64_t stride, int64_t count, int bits, double* out,
                  Decode decode) {
  const unsigned mask = (1u << bits) - 1u;
  for (int64_t i = 0; i < count; ++i) {
    const auto packed = static_cast<unsigned>(source[i * stride]);
    for (int shift = 0; shift < 8; shift += bits) {
      *out++ = static_cast<double>(decode((packed >> shift) & mask));
    }
  }
}

/// Int4 and UInt4: offset and stride count nibbles.
void unpack_nibbles(const std::byte* storage, int64_t offset, int64_t stride, int64_t count,
                    bool is_signed, double* out) {
  for (int64_t i = 0; i < count; ++i, offset += stride) {
    const auto packed = static_cast<unsigned>(storage[offset / 2]);
    const auto nibble = static_cast<int>((packed >> (offset % 2 * 4)) & 15u);
    out[i] = is_signed && nibble >= 8 ? nibble - 16 : nibble;
  }
}

template <typename T, typename Widen>
void widen_complex(const std::byte* source, int64_t stride, int64_t count, double* out,
                   Widen widen) {
  const int64_t step = stride * 2 * static_cast<int64_t>(sizeof(T));
  for (int64_t i = 0; i < count; ++i) {
    out[2 * i] = static_cast<double>(widen(load<T>(source + i * step)));
    out[2 * i + 1] = static_cast<double>(widen(load<T>(source + i * step + sizeof(T))));
  }
}

/// One run of any type. `offset` and `stride` count elements from the start of the storage.
void widen_run(DType dtype, const std::byte* storage, int64_t offset, int64_t stride, int64_t count,
               double* out) {
  if (info(dtype).element_bits < 8) {
    unpack_nibbles(storage, offset, stride, count, dtype == DType::Int4, out);
    return;
  }
  const std::byte* source = storage + offset * (info(dtype).element_bits / 8);
  const auto as_value = [](auto value) { return value; };
  switch (dtype) {
    case DType::Float64:
      if (stride == 1) {
        std::memcpy(out, source, static_cast<size_t>(count) * sizeof(double));
        return;
      }
      return widen_number<double>(source, stride, count, out);
    case DType::Float32:
      if (stride == 1) return widen_float32(source, count, out);
      return widen_number<float>(source, stride, count, out);
    case DType::Float16:
      if (stride == 1) return widen_float16(source, count, out);
      return widen_strided<uint16_t>(source, stride, count, out, float16_to_float);
    case DType::BFloat16:
      if (stride == 1) return widen_bfloat16(source, count, out);
      return widen_strided<uint16_t>(source, stride, count, out, bfloat16_to_float);
    case DType::Float8E4M3FN:
    case DType::Float8E5M2:
    case DType::Float8E4M3FNUZ:
    case DType::Float8E5M2FNUZ:
    case DType::Float8E8M0FNU:
    case DType::HiFloat8: {
      const ByteTable& table = float8_table(dtype);
      return widen_strided<uint8_t>(source, stride, count, out,
                                    [&table](uint8_t bits) { return table[bits]; });
    }
    case DType::Float4E2M1FNx2:
      return unpack_bytes(source, stride, count, 4, out, [](unsigned nibble) {
        return float4_e2m1fn_to_float(static_cast<uint8_t>(nibble));
      });
    case DType::Complex128:
      return widen_complex<double>(source, stride, count, out, as_value);
    case DType::Complex64:
      return widen_complex<float>(source, stride, count, out, as_value);
    case DType::Complex32:
      return widen_complex<uint16_t>(source, stride, count, out, float16_to_float);
    case DType::Int64:
      return widen_number<int64_t>(source, stride, count, out);
    case DType::Int32:
    case DType::QInt32:
      return widen_number<int32_t>(source, stride, count, out);
    case DType::Int16:
      return widen_number<int16_t>(source, stride, count, out);
    case DType::Int8:
    case DType::QInt8:
      return widen_number<int8_t>(source, stride, count, out);
    case DType::UInt64:
      return widen_number<uint64_t>(source, stride, count, out);
    case DType::UInt32:
      return widen_number<uint32_t>(source, stride, count, out);
    case DType::UInt16:
    case DType::Bits16:
      return widen_number<uint16_t>(source, stride, count, out);
    case DType::UInt8:
    case DType::QUInt8:
    case DType::Bits8:
      return widen_number<uint8_t>(source, stride, count, out);
    case DType::Bool:
      return widen_strided<uint8_t>(source, stride, count, out,
                                    [](uint8_t byte) { return byte != 0 ? 1 : 0; });
    case DType::QUInt4x2:
    case DType::Bits4x2:
      return unpack_bytes(source, stride, count, 4, out, as_value);
    case DType::QUInt2x4:
    case DType::Bits2x4:
      return unpack_bytes(source, stride, count, 2, out, as_value);
    case DType::Bits1x8:
      return unpack_bytes(source, stride, count, 1, out, as_value);
    case DType::Int4:
    case DType::UInt4:
      return;  // handled above
  }
}

// ---- Copying ------------------------------------------------------------------------------------

struct Bytes16 {
  uint64_t parts[2];
};

/// Copies runs with a stride. Neighbouring columns of a row-major matrix are copied together: a
/// cache line of a row has a part of each.
template <typename T>
class StridedCopy {
 public:
  StridedCopy(const std::byte* source, std::byte* target) : source_(source), target_(target) {}
  ~StridedCopy() { copy(); }
  StridedCopy(const StridedCopy&) = delete;
  StridedCopy& operator=(const StridedCopy&) = delete;

  /// All in elements: where the run begins, from one to the next, how many, and where they go.
  void add(int64_t offset, int64_t stride, int64_t length, int64_t place) {
    const bool is_next = columns_ > 0 && columns_ < kMostColumns && stride == stride_ &&
                         length == length_ && offset == offset_ + columns_ &&
                         place == place_ + columns_ * length_;
    if (!is_next) {
      copy();
      offset_ = offset;
      stride_ = stride;
      length_ = length;
      place_ = place;
    }
    ++columns_;
  }

 private:
  static constexpr int64_t kMostColumns = 16;
  static constexpr int64_t kRows = 8;  // lines that stay in the cache while all columns are copied
  static constexpr auto kSize = static_cast<int64_t>(sizeof(T));

  void copy() {
    for (int64_t begin = 0; begin < length_; begin += kRows) {
      const int64_t end = std::min(begin + kRows, length_);
      for (int64_t column = 0; column < columns_; ++column) {
        const std::byte* from = source_ + (offset_ + column) * kSize;
        std::byte* to = target_ + (place_ + column * length_) * kSize;
        for (int64_t row = begin; row < end; ++row)
          std::memcpy(to + row * kSize, from + row * stride_ * kSize, sizeof(T));
      }
    }
    columns_ = 0;
  }

  const std::byte* source_;
  std::byte* target_;
  int64_t offset_ = 0;
  int64_t stride_ = 0;
  int64_t length_ = 0;
  int64_t place_ = 0;
  int64_t columns_ = 0;
};

template <typename T>
void gather(const TensorView& view, int64_t first_element, int64_t count, std::byte* out) {
  StridedCopy<T> strided(view.storage.data(), out);
  for_each_run(view, first_element, count,
               [&](int64_t offset, int64_t stride, int64_t length, int64_t done) {
                 if (stride != 1) return strided.add(offset, stride, length, done);
                 constexpr auto kSize = static_cast<int64_t>(sizeof(T));
                 std::memcpy(out + done * kSize, view.storage.data() + offset * kSize,
                             static_cast<size_t>(length * kSize));
               });
}

// Flips the sign bits of `part_bytes`-wide floats at `first`, `first + step`, ...
void flip_signs(std::span<std::byte> bytes, size_t first, size_t step, size_t part_bytes) {
  // Little-endian: the sign is the top bit of the last byte.
  for (size_t i = first + part_bytes - 1; i < bytes.size(); i += step) bytes[i] ^= std::byte{0x80};
}

void negate_integer(std::span<std::byte> bytes) {
  unsigned carry = 1;
  for (std::byte& byte : bytes) {
    const unsigned flipped = (static_cast<unsigned>(byte) ^ 0xFFu) + carry;
    byte = static_cast<std::byte>(flipped & 0xFFu);
    carry = flipped >> 8;
  }
}

}  // namespace

int values_per_element(DType dtype) { return is_complex(dtype) ? 2 : info(dtype).element_values; }

void read_values(const TensorView& view, int64_t first_element, int64_t count,
                 std::span<double> out) {
  const int64_t per_element = values_per_element(view.dtype);
  for_each_run(view, first_element, count,
               [&](int64_t offset, int64_t stride, int64_t length, int64_t done) {
                 widen_run(view.dtype, view.storage.data(), offset, stride, length,
                           out.data() + done * per_element);
               });
  if (view.negative) {
    for (double& value : out) value = -value;
  }
  if (view.conjugate && is_complex(view.dtype)) {
    for (size_t i = 1; i < out.size(); i += 2) out[i] = -out[i];
  }
}

void gather_bytes(const TensorView& view, int64_t first_element, int64_t count,
                  std::span<std::byte> out) {
  switch (info(view.dtype).element_bits / 8) {
    case 1:
      return gather<uint8_t>(view, first_element, count, out.data());
    case 2:
      return gather<uint16_t>(view, first_element, count, out.data());
    case 4:
      return gather<uint32_t>(view, first_element, count, out.data());
    case 8:
      return gather<uint64_t>(view, first_element, count, out.data());
    default:
      return gather<Bytes16>(view, first_element, count, out.data());
  }
}

void apply_lazy_bits(const TensorView& view, std::span<std::byte> elements) {
  const size_t element = info(view.dtype).element_bits / 8u;
  if (is_complex(view.dtype)) {
    const size_t part = element / 2;
    if (view.negative) flip_signs(elements, 0, part, part);
    if (view.conjugate) flip_signs(elements, part, element, part);
  } else if (view.negative && is_float(view.dtype)) {
    flip_signs(elements, 0, element, element);
  } else if (view.negative) {
    for (size_t i = 0; i < elements.size(); i += element)
      negate_integer(elements.subspan(i, element));
  }
}

}  // namespace assay
