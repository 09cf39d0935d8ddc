// SPDX-License-Identifier: Apache-2.0
#include "cli/tensor_files.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>

#include "base/atomic_file.hpp"
#include "base/interruption.hpp"
#include "base/temporary_files.hpp"
#include "cli/interrupt.hpp"
#include "cli/tensor_text.hpp"
#include "formats/crc32.hpp"
#include "formats/npy.hpp"
#include "formats/pth.hpp"
#include "formats/safetensors.hpp"
#include "stats/whole_tensor.hpp"
#include "tensor/convert.hpp"

namespace assay::cli {
namespace {

constexpr int64_t kBlockElements = 1 << 18;
constexpr uint64_t kBlockBytes = uint64_t{4} << 20;

using Sink = std::function<Status(ByteSpan)>;

/// "{path}.tmp{pid}"; where that is longer than a name may be, a short name in the same folder.
std::string temporary_name(const std::string& path) {
  constexpr size_t kMaxNameBytes = 255;
  static std::atomic<uint64_t> next{0};
  const std::string ending = ".tmp" + std::to_string(::getpid());
  const size_t name = path.rfind('/') + 1;  // 0 without a folder
  if (path.size() - name + ending.size() <= kMaxNameBytes) return path + ending;
  return path.substr(0, name) + "long_name_" + std::to_string(next++) + ending;
}

/// The kernel answers "bad address" where a mapped file lost its bytes; reading them says what happened.
void touch(ByteSpan bytes) {
  constexpr size_t kPageBytes = 4096;
  for (size_t at = 0; at < bytes.size(); at += kPageBytes)
    static_cast<void>(*static_cast<const volatile std::byte*>(bytes.data() + at));
}

/// Runs `write` with a sink into a temporary file beside `path` and puts that file in its place.
Status write_through_temporary(const std::string& path, unsigned mode,
                               const std::function<Status(const Sink&)>& write) {
  TemporaryFile temporary(temporary_name(path));
  const int fd = ::open(temporary.path().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  if (fd < 0) return fail(errno_error(errno, "create", path));
  Status status = write([&](ByteSpan bytes) -> Status {
    if (interrupted()) return fail(Errc::Interrupted, "interrupted");
    Status written = write_all(fd, bytes, path);
    if (!written) touch(bytes);
    return written;
  });
  if (::close(fd) != 0 && status) status = fail(errno_error(errno, "close", path));
  if (status && ::rename(temporary.path().c_str(), path.c_str()) != 0)
    status = fail(errno_error(errno, "rename into place", path));
  if (status) temporary.keep();
  return in_file(path, std::move(status));
}

/// Flips the sign bit of the values whose lazy bits ask for it: all of them, or the imaginary parts.
void apply_lazy_bits(const TensorView& view, std::vector<std::byte>* bytes) {
  const bool complex_parts = is_complex(view.dtype);
  const size_t part_bytes = info(view.dtype).element_bits / 8u / (complex_parts ? 2u : 1u);
  size_t part = 0;
  for (size_t end = part_bytes; end <= bytes->size(); end += part_bytes, ++part) {
    const bool imaginary = complex_parts && part % 2 == 1;
    if (view.negative != (view.conjugate && imaginary)) (*bytes)[end - 1] ^= std::byte{0x80};
  }
}

/// The elements in C order as bytes of their own type.
Status write_payload(const TensorView& view, const Sink& sink) {
  const bool lazy = view.conjugate || view.negative;
  if (lazy && !has_non_finite(view.dtype)) {
    return fail(Errc::Unsupported, "a lazily negated tensor of integers cannot be written");
  }
  if (!lazy && view.is_contiguous()) {
    for (ByteSpan rest = view.contiguous_bytes(); !rest.empty();) {
      const ByteSpan block = rest.first(std::min<uint64_t>(kBlockBytes, rest.size()));
      ASSAY_TRY_STATUS(sink(block));
      rest = rest.subspan(block.size());
    }
    return {};
  }
  if (info(view.dtype).element_bits % 8 != 0) {
    return fail(Errc::Unsupported, "a strided tensor of packed values cannot be written");
  }
  const int64_t total = view.element_count();
  std::vector<std::byte> block;
  for (int64_t first = 0; first < total; first += kBlockElements) {
    const int64_t count = std::min(kBlockElements, total - first);
    block.resize(static_cast<size_t>(count) * info(view.dtype).element_bits / 8);
    gather_bytes(view, first, count, block);
    if (lazy) apply_lazy_bits(view, &block);
    ASSAY_TRY_STATUS(sink(block));
  }
  return {};
}

Status write_npy_file(const TensorView& view, const Sink& sink) {
  ASSAY_TRY(const std::string header, formats::npy_header(view.dtype, view.shape));
  ASSAY_TRY_STATUS(sink(as_bytes(header)));
  return write_payload(view, sink);
}

Status write_pth_file(const std::string& path, const TensorView& view, const Sink& sink) {
  formats::PthWriteOptions options;
  options.archive_name = formats::pth_archive_name(path);
  ASSAY_TRY(const formats::PthPrologue prologue,
            formats::pth_prologue(view.dtype, view.shape, options));
  ASSAY_TRY_STATUS(sink(as_bytes(prologue.header)));
  uint32_t crc = 0;
  ASSAY_TRY_STATUS(write_payload(view, [&](ByteSpan bytes) {
    crc = formats::crc32(bytes, crc);
    return sink(bytes);
  }));
  return sink(as_bytes(formats::pth_epilogue(prologue, crc)));
}

Status write_text_file(const TensorView& view, char separator, const Sink& sink) {
  const int64_t total = view.element_count();
  const int64_t row =
      view.shape.empty() ? 1 : std::max<int64_t>(view.shape[view.shape.size() - 1], 1);
  std::string block;
  for (int64_t first = 0; first < total; first += kBlockElements) {
    const int64_t count = std::min(kBlockElements, total - first);
    const std::vector<std::string> texts = value_texts(view, first, count);
    // Packed types give several values an element; they stay in the element's row.
    const auto per_element = static_cast<int64_t>(texts.size()) / count;
    for (size_t i = 0; i < texts.size(); ++i) {
      block += texts[i];
      const int64_t next = static_cast<int64_t>(i) + 1;
      const bool row_ends = next % per_element == 0 && (first + next / per_element) % row == 0;
      block += row_ends ? '\n' : separator;
    }
    ASSAY_TRY_STATUS(sink(as_bytes(block)));
    block.clear();
  }
  return {};
}

// ---- other types --------------------------------------------------------------------------------------------------

uint16_t to_bfloat16(double value) {
  // Odd rounding to float first keeps the second rounding exact.
  auto narrow = static_cast<float>(value);
  auto bits = std::bit_cast<uint32_t>(narrow);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  if (std::isinf(narrow) && std::isfinite(value)) {
    // Above the largest float; the largest bfloat16 is below it, so this is infinity there as well.
    return static_cast<uint16_t>(bits >> 16);
  }
  if (static_cast<double>(narrow) != value && (bits & 1u) == 0) {
    const bool away = std::abs(static_cast<double>(narrow)) > std::abs(value);
    bits = away ? bits - 1 : bits + 1;
  }
  bits += 0x7FFFu + ((bits >> 16) & 1u);
  return static_cast<uint16_t>(bits >> 16);
}

uint16_t to_float16(double value) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const double magnitude = std::abs(value);
  if (std::isnan(value)) return static_cast<uint16_t>(sign | 0x7E00);
  if (magnitude >= 65520.0)
    return static_cast<uint16_t>(sign | 0x7C00);  // halfway to 2^16 and beyond
  // Units of the last place: 2^-24 below 2^-14, otherwise 2^(exponent - 10).
  if (magnitude == 0) return sign;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const int unit = std::max(exponent - 11, -24);
  const auto steps = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, -unit)));
  // Adding the steps to the exponent field carries over when rounding reached the next power of two.
  const uint32_t field = unit == -24 ? steps : (static_cast<uint32_t>(unit + 24) << 10) + steps;
  return static_cast<uint16_t>(sign | field);
}

template <typename T>
void store_at(std::vector<std::byte>* out, size_t index, T value) {
  std::memcpy(out->data() + index * sizeof(T), &value, sizeof(T));
}

template <typename Integer>
void store_integer(std::vector<std::byte>* out, size_t index, double value) {
  constexpr auto kLow = static_cast<double>(std::numeric_limits<Integer>::min());
  constexpr auto kHigh = static_cast<double>(std::numeric_limits<Integer>::max());
  // NaN becomes 0; what does not fit becomes the nearest value that does.
  Integer result = 0;
  if (value >= kHigh) {
    result = std::numeric_limits<Integer>::max();
  } else if (value <= kLow) {
    result = std::numeric_limits<Integer>::min();
  } else if (!std::isnan(value)) {
    result = static_cast<Integer>(std::nearbyint(value));
  }
  store_at(out, index, result);
}

Status store_value(DType dtype, std::vector<std::byte>* out, size_t index, double value) {
  switch (dtype) {
    case DType::Float64:
      store_at(out, index, value);
      return {};
    case DType::Float32:
      store_at(out, index, static_cast<float>(value));
      return {};
    case DType::Float16:
      store_at(out, index, to_float16(value));
      return {};
    case DType::BFloat16:
      store_at(out, index, to_bfloat16(value));
      return {};
    case DType::Int64:
      store_integer<int64_t>(out, index, value);
      return {};
    case DType::Int32:
      store_integer<int32_t>(out, index, value);
      return {};
    case DType::Int16:
      store_integer<int16_t>(out, index, value);
      return {};
    case DType::Int8:
      store_integer<int8_t>(out, index, value);
      return {};
    case DType::UInt8:
      store_integer<uint8_t>(out, index, value);
      return {};
    case DType::UInt64:
      store_integer<uint64_t>(out, index, value);
      return {};
    case DType::UInt32:
      store_integer<uint32_t>(out, index, value);
      return {};
    case DType::UInt16:
      store_integer<uint16_t>(out, index, value);
      return {};
    default:
      return fail(Errc::Unsupported, "cannot convert to " + std::string(name(dtype)));
  }
}

}  // namespace

std::optional<TensorFileFormat> tensor_file_format(std::string_view name) {
  if (name == "npy") return TensorFileFormat::Npy;
  if (name == "pth" || name == "pt") return TensorFileFormat::Pth;
  if (name == "safetensors") return TensorFileFormat::Safetensors;
  if (name == "txt") return TensorFileFormat::Txt;
  if (name == "csv") return TensorFileFormat::Csv;
  if (name == "bin") return TensorFileFormat::Bin;
  return std::nullopt;
}

std::string_view suffix_of(TensorFileFormat format) {
  switch (format) {
    case TensorFileFormat::Npy:
      return ".npy";
    case TensorFileFormat::Pth:
      return ".pth";
    case TensorFileFormat::Safetensors:
      return ".safetensors";
    case TensorFileFormat::Txt:
      return ".txt";
    case TensorFileFormat::Csv:
      return ".csv";
    case TensorFileFormat::Bin:
      return ".bin";
  }
  return "";
}

Result<std::vector<std::byte>> element_bytes(const TensorView& view) {
  std::vector<std::byte> bytes;
  ASSAY_TRY_STATUS(write_payload(view, [&](ByteSpan block) -> Status {
    bytes.insert(bytes.end(), block.begin(), block.end());
    return {};
  }));
  return bytes;
}

std::string text_header(DType dtype, const Dims& shape) {
  std::string line = "# dtype=" + std::string(name(dtype)) + " shape=";
  for (size_t axis = 0; axis < shape.size(); ++axis)
    line += (axis > 0 ? "," : "") + std::to_string(shape[axis]);
  return line + "\n";
}

Status write_tensor_file(const std::string& path, TensorFileFormat format, const TensorView& view,
                         unsigned mode) {
  if (format == TensorFileFormat::Safetensors)
    return write_safetensors_file(path, {{"tensor", view}}, mode);
  return write_through_temporary(path, mode, [&](const Sink& sink) -> Status {
    switch (format) {
      case TensorFileFormat::Npy:
        return write_npy_file(view, sink);
      case TensorFileFormat::Pth:
        return write_pth_file(path, view, sink);
      case TensorFileFormat::Txt:
        ASSAY_TRY_STATUS(sink(as_bytes(text_header(view.dtype, view.shape))));
        return write_text_file(view, ' ', sink);
      case TensorFileFormat::Csv:
        return write_text_file(view, ',', sink);
      case TensorFileFormat::Bin:
        return write_payload(view, sink);
      case TensorFileFormat::Safetensors:
        break;
    }
    return {};
  });
}

Status write_safetensors_file(const std::string& path,
                              const std::vector<std::pair<std::string, TensorView>>& tensors,
                              unsigned mode) {
  std::vector<formats::SafetensorsHeaderEntry> entries;
  uint64_t offset = 0;
  for (const auto& [tensor_name, view] : tensors) {
    const auto size = storage_bytes(view.dtype, static_cast<uint64_t>(view.element_count()));
    if (!size)
      return fail(
          Error{Errc::TooLarge, path, std::nullopt, "tensor " + tensor_name + " is too large"});
    entries.push_back({tensor_name, view.dtype, view.shape, offset, offset + *size});
    offset += *size;
  }
  return write_through_temporary(path, mode, [&](const Sink& sink) -> Status {
    ASSAY_TRY(const std::string header, formats::safetensors_header(entries, {}));
    ASSAY_TRY_STATUS(sink(as_bytes(header)));
    for (const auto& [tensor_name, view] : tensors) ASSAY_TRY_STATUS(write_payload(view, sink));
    return {};
  });
}

Status write_pieces_file(const std::string& path, const std::vector<ByteSpan>& pieces,
                         unsigned mode) {
  return write_through_temporary(path, mode, [&](const Sink& sink) -> Status {
    for (ByteSpan rest : pieces) {
      while (!rest.empty()) {
        const ByteSpan block = rest.first(std::min<uint64_t>(kBlockBytes, rest.size()));
        ASSAY_TRY_STATUS(sink(block));
        rest = rest.subspan(block.size());
      }
    }
    return {};
  });
}

Result<Tensor> convert_dtype(const TensorView& view, DType dtype) {
  if (values_per_element(view.dtype) != 1 || info(view.dtype).kind == DTypeKind::Bits) {
    return fail(Errc::Unsupported,
                "cannot convert " + std::string(name(view.dtype)) + " elements to another type");
  }
  const int64_t total = view.element_count();
  const auto size = storage_bytes(dtype, static_cast<uint64_t>(total));
  if (!size) return fail(Errc::TooLarge, "the converted tensor is too large");
  auto bytes = std::make_shared<std::vector<std::byte>>();
  bytes->reserve(*size);  // and cleared block by block: Ctrl-C must not wait for gigabytes
  std::vector<double> values;
  for (int64_t first = 0; first < total; first += kBlockElements) {
    if (interrupted()) return fail(Errc::Interrupted, "interrupted");
    const int64_t count = std::min(kBlockElements, total - first);
    bytes->resize(*storage_bytes(dtype, static_cast<uint64_t>(first + count)));
    values.resize(static_cast<size_t>(count));
    read_values(view, first, count, values);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSAY_TRY_STATUS(store_value(dtype, bytes.get(), static_cast<size_t>(first) + i, values[i]));
    }
  }
  ASSAY_TRY(const TensorView converted, make_view(dtype, view.shape, *bytes));
  return Tensor{converted, bytes};
}

stats::TensorStats statistics_until_interrupted(const TensorView& view) {
  try {
    const InterruptScope scope(&interrupted());
    return stats::statistics_of(view);
  } catch (const Interrupted&) {
    return {};
  }
}

}  // namespace assay::cli
