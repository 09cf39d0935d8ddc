// SPDX-License-Identifier: Apache-2.0
// From a record to its bytes.
#include "run/container.hpp"
#include "run/run.hpp"

namespace assay::run {
namespace {

Result<Tensor> raw_tensor(const TensorRecord& record,
                          const std::shared_ptr<const Container>& container) {
  const ByteLocation& location = *record.bytes;
  if (!record.dtype || !record.shape) {
    return fail(Errc::Invalid, "the record has no dtype or shape", location.offset);
  }
  const ByteSpan file = container->bytes();
  uint64_t end = 0;
  if (add_overflows(location.offset, location.size_bytes, &end) || end > file.size()) {
    return fail(Errc::Truncated,
                "the record says " + std::to_string(location.size_bytes) +
                    " bytes, the file ends at " + std::to_string(file.size()),
                location.offset);
  }
  ASSAY_TRY(const TensorView view, make_view(*record.dtype, *record.shape,
                                             file.subspan(location.offset, location.size_bytes)));
  return Tensor{view, container};
}

}  // namespace

Result<Tensor> load_tensor(const TensorRecord& record) {
  if (!record.bytes) {
    return fail(Errc::NotFound,
                record.problem.empty() ? "the record has no bytes" : record.problem);
  }
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
  ASSAY_TRY(const Tensor tensor, load_tensor(record));
  record.dtype = tensor.view.dtype;
  record.shape = tensor.view.shape;
  record.strides = tensor.view.strides;
  return {};
}

}  // namespace assay::run
