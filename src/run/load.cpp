// SPDX-License-Identifier: Apache-2.0
// From a record to its bytes.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>

#include "base/file_source.hpp"
#include "base/mapped_file.hpp"
#include "run/container.hpp"
#include "run/load.hpp"
#include "run/payload_check.hpp"
#include "run/record.hpp"
#include "run/strided_payload.hpp"
#include "tensor/block_types.hpp"
#include "tensor/convert.hpp"

namespace assay::run {
namespace {

// Pages of a view that lie in the file are given back with it when there are that many: nobody
// copies them, and a run has more of them than there is memory.
constexpr uint64_t kReleasedBytes = uint64_t{1} << 20;

/// What a record with strides gives.
enum class Order : uint8_t { C, AsStored };

/// Precondition: is_strided(record).
Result<TensorView> strided_view(const TensorRecord& record, ByteSpan bytes) {
  if (!record.strides || info(*record.dtype).element_bits % 8 != 0)
    return fail(Errc::Invalid, "the record is a view without strides or of a packed type");
  ASSAY_TRY(const TensorView view, make_view(*record.dtype, *record.shape, *record.strides, bytes));
  const std::optional<uint64_t> size =
      storage_bytes(view.dtype, static_cast<uint64_t>(view.element_count()));
  // Elements that overlap could be any number.
  if (!size || *size > bytes.size())
    return fail(Errc::Invalid, "the record is a view of fewer bytes than its elements have");
  return view;
}

/// In memory of its own.
Result<Tensor> in_c_order(const TensorView& view) {
  const int64_t count = view.element_count();
  const uint64_t size = *storage_bytes(view.dtype, static_cast<uint64_t>(count));
  const std::shared_ptr<std::byte[]> plain(new std::byte[size]);
  const std::span<std::byte> out(plain.get(), size);
  gather_bytes(view, 0, count, out);
  ASSAY_TRY(const TensorView copy, make_view(view.dtype, view.shape, out));
  return Tensor{copy, plain};
}

/// The tensor whose payload is `bytes`; block types are decoded.
Result<Tensor> payload_tensor(const TensorRecord& record, ByteSpan bytes, Order order,
                              std::shared_ptr<const void> owner) {
  if (const auto blocks = block_type_from_name(record.memory_format))
    return decode_tensor(*blocks, *record.shape, bytes);
  if (is_strided(record)) {
    ASSAY_TRY(const TensorView stored, strided_view(record, bytes));
    if (order == Order::C) return in_c_order(stored);
    return Tensor{stored, std::move(owner)};
  }
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
                          const std::shared_ptr<const Container>& container, Order order) {
  const ByteSpan file = container->bytes();
  ASSAY_TRY_STATUS(check_place(record, file.size()));
  const uint64_t offset = record.bytes->offset;
  const uint64_t size = record.bytes->size_bytes;
  std::shared_ptr<const void> owner = container;
  if (order == Order::AsStored && is_strided(record) && size >= kReleasedBytes) {
    owner = std::shared_ptr<const void>(container.get(), [container, offset, size](const void*) {
      container->file().release_pages(offset, size);
    });
  }
  return payload_tensor(record, file.subspan(offset, size), order, std::move(owner));
}

/// Of a file that lies elsewhere: only the tensor itself is brought here.
Result<Tensor> raw_tensor_elsewhere(const TensorRecord& record, Order order) {
  const ByteLocation& location = *record.bytes;
  ASSAY_TRY(const FileFacts facts, file_facts(location.file));
  ASSAY_TRY_STATUS(check_place(record, facts.size_bytes));
  ASSAY_TRY(MappedFile range,
            MappedFile::open_range(location.file, location.offset, location.size_bytes));
  const ByteSpan bytes = range.bytes();
  return payload_tensor(record, bytes, order, std::make_shared<const MappedFile>(std::move(range)));
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

Result<Tensor> load(const TensorRecord& record, Order order) {
  if (record.made() != nullptr) return record.made()->make();
  if (!record.bytes) {
    return fail(Errc::NotFound,
                record.problem.empty() ? "the record has no bytes" : record.problem);
  }
  if (record.dtype && record.shape) {
    if (const std::shared_ptr<const std::byte[]> small = read_small(*record.bytes)) {
      const ByteSpan bytes(small.get(), record.bytes->size_bytes);
      return in_file(record.bytes->file, payload_tensor(record, bytes, order, small));
    }
  }
  if (record.bytes->raw && is_elsewhere(record.bytes->file))
    return in_file(record.bytes->file, raw_tensor_elsewhere(record, order));
  // Whatever kept us from reading it, the container says what is wrong.
  ASSAY_TRY(const std::shared_ptr<const Container> container, open_container(record.bytes->file));
  if (record.bytes->raw) return in_file(record.bytes->file, raw_tensor(record, container, order));
  return in_file(record.bytes->file, container->tensor(record.bytes->member));
}

Result<Tensor> load_checked(const TensorRecord& record, Order order) {
  ASSAY_TRY(Tensor tensor, load(record, order));
  if (record.made() != nullptr || !record.check) return tensor;
  const std::string problem = record.check.problem(record, tensor.view);
  if (problem.empty()) return tensor;
  return fail(Error{Errc::Invalid, record.bytes->file, record.bytes->offset, problem});
}

}  // namespace

Result<Tensor> load_tensor(const TensorRecord& record) { return load_checked(record, Order::C); }

Result<Tensor> load_as_stored(const TensorRecord& record) {
  return load_checked(record, Order::AsStored);
}

Result<Tensor> load_unchecked(const TensorRecord& record) { return load(record, Order::C); }

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
