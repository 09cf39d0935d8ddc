// SPDX-License-Identifier: Apache-2.0
// Writes the header that describes all operands, then their bytes straight from the views; only
// views with gaps are copied first.
#include "cli/convert/dump_writer.hpp"

#include <chrono>
#include <list>

#include "cli/tensor_files.hpp"
#include "formats/cann_dump.hpp"

namespace assay::cli {
namespace {

constexpr int32_t kNd = 2;

/// The operand's description; its bytes are borrowed from the view, or from `copies` where the view
/// has gaps.
Result<formats::CannTensor> describe(const TensorView& view,
                                     std::list<std::vector<std::byte>>* copies) {
  const auto number = formats::cann_from_dtype(view.dtype);
  if (!number)
    return fail(Errc::Unsupported, "dump files have no type " + std::string(name(view.dtype)));
  formats::CannTensor tensor;
  tensor.data_type = *number;
  tensor.format = kNd;
  tensor.shape = view.shape;
  tensor.original_shape = view.shape;
  if (view.is_contiguous() && !view.conjugate && !view.negative) {
    tensor.data = view.contiguous_bytes();
  } else {
    ASSAY_TRY(std::vector<std::byte> bytes, element_bytes(view));
    tensor.data = copies->emplace_back(std::move(bytes));
  }
  tensor.size_bytes = tensor.data.size();
  return tensor;
}

}  // namespace

uint64_t now_us() {
  using std::chrono::microseconds;
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<microseconds>(since_1970).count());
}

Status write_dump_file(const std::string& path, const DumpContent& content, unsigned mode) {
  formats::CannDump dump;
  dump.version = "2.0";
  dump.op_name = content.op_name;
  dump.dump_time_us = content.time_us != 0 ? content.time_us : now_us();
  std::list<std::vector<std::byte>> copies;
  for (const TensorView& view : content.inputs) {
    ASSAY_TRY(formats::CannTensor tensor, in_file(path, describe(view, &copies)));
    dump.inputs.push_back(std::move(tensor));
  }
  for (const TensorView& view : content.outputs) {
    ASSAY_TRY(formats::CannTensor tensor, in_file(path, describe(view, &copies)));
    dump.outputs.push_back(std::move(tensor));
  }
  ASSAY_TRY(const std::vector<std::byte> header, in_file(path, formats::cann_dump_header(dump)));
  std::vector<ByteSpan> pieces = {header};
  for (const formats::CannTensor& tensor : dump.inputs) pieces.push_back(tensor.data);
  for (const formats::CannTensor& tensor : dump.outputs) pieces.push_back(tensor.data);
  return write_pieces_file(path, pieces, mode);
}

}  // namespace assay::cli
