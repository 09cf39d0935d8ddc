// SPDX-License-Identifier: Apache-2.0
// Every format writes its header, then the elements in blocks, into a temporary file that is
// renamed at the end. Strided tensors are gathered block by block, so that no whole copy is made.
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
#include "reference/wide.hpp"
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

/// The kernel answers "bad address" where a mapped file lost its bytes; reading them says what
/// happened.
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

Status write_blocks(ByteSpan rest, const Sink& sink) {
  while (!rest.empty()) {
    const ByteSpan block = rest.first(std::min<uint64_t>(kBlockBytes, rest.size()));
    ASSAY_TRY_STATUS(sink(block));
    rest = rest.subspan(block.size());
  }
  return {};
}

/// The elements in C order as bytes of their own type.
Status write_payload(const TensorView& view, const Sink& sink) {
  const bool lazy = view.conjugate || view.negative;
  if (!lazy && view.is_contiguous()) return write_blocks(view.contiguous_bytes(), sink);
  if (info(view.dtype).element_bits % 8 != 0) {
    return fail(Errc::Unsupported, "a strided tensor of packed values cannot be written");
  }
  const int64_t total = view.element_count();
  std::vector<std::byte> block;
  for (int64_t first = 0; first < total; first += kBlockElements) {
    const int64_t count = std::min(kBlockElements, total - first);
    block.resize(static_cast<size_t>(count) * info(view.dtype).element_bits / 8);
    gather_bytes(view, first, count, block);
    if (lazy) apply_lazy_bits(view, block);
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

struct Format {
  TensorFileFormat format;
  std::string_view suffix;
};
constexpr Format kFormats[] = {
    {TensorFileFormat::Npy, ".npy"}, {TensorFileFormat::Pth, ".pth"},
    {TensorFileFormat::Pth, ".pt"},  {TensorFileFormat::Safetensors, ".safetensors"},
    {TensorFileFormat::Txt, ".txt"}, {TensorFileFormat::Csv, ".csv"},
    {TensorFileFormat::Bin, ".bin"},
};

}  // namespace

std::optional<TensorFileFormat> tensor_file_format(std::string_view name) {
  for (const Format& known : kFormats) {
    if (known.suffix.substr(1) == name) return known.format;
  }
  return std::nullopt;
}

std::string_view suffix_of(TensorFileFormat format) {
  return std::ranges::find(kFormats, format, &Format::format)->suffix;
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
    for (const ByteSpan piece : pieces) ASSAY_TRY_STATUS(write_blocks(piece, sink));
    return {};
  });
}

Result<std::shared_ptr<std::vector<std::byte>>> values_as(const TensorView& view, DType dtype) {
  const int64_t total = view.element_count();
  const int per_element = values_per_element(view.dtype);
  const auto size =
      storage_bytes(dtype, static_cast<uint64_t>(total) * static_cast<uint64_t>(per_element));
  if (!size) return fail(Errc::TooLarge, "the converted tensor is too large");
  auto bytes = std::make_shared<std::vector<std::byte>>();
  bytes->reserve(*size);  // and filled block by block: Ctrl-C must not wait for gigabytes
  std::vector<double> values;
  for (int64_t first = 0; first < total; first += kBlockElements) {
    if (interrupted()) return fail(Errc::Interrupted, "interrupted");
    const int64_t count = std::min(kBlockElements, total - first);
    values.resize(static_cast<size_t>(count * per_element));
    read_values(view, first, count, values);
    ASSAY_TRY(const TensorView block,
              make_view(DType::Float64, {count * per_element}, std::as_bytes(std::span(values))));
    ASSAY_TRY(const Tensor converted, reference::narrow(block, dtype));
    const ByteSpan part = converted.view.contiguous_bytes();
    bytes->insert(bytes->end(), part.begin(), part.end());
  }
  return bytes;
}

Result<Tensor> convert_dtype(const TensorView& view, DType dtype) {
  if (values_per_element(view.dtype) != 1 || info(view.dtype).kind == DTypeKind::Bits) {
    return fail(Errc::Unsupported,
                "cannot convert " + std::string(name(view.dtype)) + " elements to another type");
  }
  ASSAY_TRY(auto bytes, values_as(view, dtype));
  ASSAY_TRY(const TensorView converted, make_view(dtype, view.shape, *bytes));
  return Tensor{converted, std::move(bytes)};
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
