// SPDX-License-Identifier: Apache-2.0
// From a record to its bytes.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>

#include "base/file_source.hpp"
#include "base/mapped_file.hpp"
#include "run/container.hpp"
#include "run/payload_check.hpp"
#include "run/run.hpp"
#include "run/strided_payload.hpp"
#include "tensor/block_types.hpp"
#include "tensor/convert.hpp"

namespace assay::run {
namespace {

/// In C order, in memory of its own. Precondition: is_strided(record).
Result<Tensor> gathered_tensor(const TensorRecord& record, ByteSpan bytes) {
  if (!record.strides || info(*record.dtype).element_bits % 8 != 0)
    return fail(Errc::Invalid, "the record is a view without strides or of a packed type");
  ASSAY_TRY(const TensorView lying,
            make_view(*record.dtype, *record.shape, *record.strides, bytes));
  const std::optional<uint64_t> size =
      storage_bytes(lying.dtype, static_cast<uint64_t>(lying.element_count()));
  // Elements that overlap could be any number.
  if (!size || *size > bytes.size())
    return fail(Errc::Invalid, "the record is a view of fewer bytes than its elements have");
  const std::shared_ptr<std::byte[]> plain(new std::byte[*size]);
  const std::span<std::byte> out(plain.get(), *size);
  gather_bytes(lying, 0, lying.element_count(), out);
  ASSAY_TRY(const TensorView view, make_view(lying.dtype, lying.shape, out));
  return Tensor{view, plain};
}

/// The tensor whose payload is `bytes`; block types are decoded.
Result<Tensor> payload_tensor(const TensorRecord& record, ByteSpan bytes,
                              std::shared_ptr<const void> owner) {
  if (const auto blocks = block_type_from_name(record.memory_format))
    return decode_tensor(*blocks, *record.shape, bytes);
  if (is_strided(record)) return gathered_tensor(record, bytes);
  ASSAY_TRY(const TensorView view, make_view(*record.dtype, *record.shape, bytes));
  return Tensor{view, std::move(owner)};
}

Status check_place(const TensorRecord& record, uint64_t file_bytes) {
  const ByteLocation& location = *record.bytes;
  if (!record.dtype || !record.shape) {
    return fail(Errc::Invalid, "the record has no dtype or shape", location.offset);
  }
  uint64_t end = 0;
  if (add_overflows(location.offset, location.size_bytes, &end) || end > file_bytes) {
    return fail(Errc::Truncated,
                "the record says " + std::to_string(location.size_bytes) +
                    " bytes, the file ends at " + std::to_string(file_bytes),
                location.offset);
  }
  return {};
}

Result<Tensor> raw_tensor(const TensorRecord& record,
                          const std::shared_ptr<const Container>& container) {
  const ByteSpan file = container->bytes();
  ASSAY_TRY_STATUS(check_place(record, file.size()));
  return payload_tensor(record, file.subspan(record.bytes->offset, record.bytes->size_bytes),
                        container);
}

/// Of a file that lies elsewhere: only the tensor itself is brought here.
Result<Tensor> raw_tensor_elsewhere(const TensorRecord& record) {
  const ByteLocation& location = *record.bytes;
  ASSAY_TRY(const FileFacts facts, file_facts(location.file));
  ASSAY_TRY_STATUS(check_place(record, facts.size_bytes));
  ASSAY_TRY(MappedFile range,
            MappedFile::open_range(location.file, location.offset, location.size_bytes));
  const ByteSpan bytes = range.bytes();
  return payload_tensor(record, bytes, std::make_shared<const MappedFile>(std::move(range)));
}

// A tensor that ends this near to the start of its file is read: that costs less than a mapping, or
// than finding out whether the file is among the open ones.
constexpr uint64_t kReadBytes = 32768;

/// The bytes of a small tensor; null when they cannot be had this way, whatever the reason.
std::shared_ptr<const std::byte[]> read_small(const ByteLocation& location) {
  uint64_t end = 0;
  if (!location.raw || location.size_bytes == 0 ||
      add_overflows(location.offset, location.size_bytes, &end) || end > kReadBytes ||
      is_elsewhere(location.file))
    return nullptr;
  const int fd = ::open(location.file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return nullptr;
  const std::shared_ptr<std::byte[]> bytes(new std::byte[location.size_bytes]);
  struct stat info{};
  ssize_t count = -1;
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode))
    count = ::pread(fd, bytes.get(), location.size_bytes, static_cast<off_t>(location.offset));
  ::close(fd);
  return count >= 0 && static_cast<uint64_t>(count) == location.size_bytes ? bytes : nullptr;
}

}  // namespace

Result<Tensor> load_tensor(const TensorRecord& record) {
  ASSAY_TRY(Tensor tensor, load_unchecked(record));
  if (record.made() != nullptr || !record.check) return tensor;
  const std::string problem = record.check.problem(record, tensor.view);
  if (problem.empty()) return tensor;
  return fail(Error{Errc::Invalid, record.bytes->file, record.bytes->offset, problem});
}

Result<Tensor> load_unchecked(const TensorRecord& record) {
  if (record.made() != nullptr) return record.made()->make();
  if (!record.bytes) {
    return fail(Errc::NotFound,
                record.problem.empty() ? "the record has no bytes" : record.problem);
  }
  if (record.dtype && record.shape) {
    if (const std::shared_ptr<const std::byte[]> small = read_small(*record.bytes)) {
      const ByteSpan bytes(small.get(), record.bytes->size_bytes);
      return in_file(record.bytes->file, payload_tensor(record, bytes, small));
    }
  }
  if (record.bytes->raw && is_elsewhere(record.bytes->file))
    return in_file(record.bytes->file, raw_tensor_elsewhere(record));
  // Whatever kept us from reading it, the container says what is wrong.
  ASSAY_TRY(const std::shared_ptr<const Container> container, open_container(record.bytes->file));
  if (record.bytes->raw) return in_file(record.bytes->file, raw_tensor(record, container));
  return in_file(record.bytes->file, container->tensor(record.bytes->member));
}

Status load_header(TensorRecord& record) {
  if (record.dtype && record.shape && record.strides) return {};
  if (record.bytes && record.bytes->raw && record.dtype && record.shape) {
    record.strides = contiguous_strides(*record.shape);
    return {};
  }
  ASSAY_TRY(const Tensor tensor, load_unchecked(record));
  record.dtype = tensor.view.dtype;
  record.shape = tensor.view.shape;
  record.strides = tensor.view.strides;
  return {};
}

}  // namespace assay::run
