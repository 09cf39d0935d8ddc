// SPDX-License-Identifier: Apache-2.0
// Any bytes as a dump file. A file that is whole is written again and reads back the same.
#include "formats/cann_dump.hpp"
#include "formats/fuzz_support.hpp"

using namespace assay;
using namespace assay::formats;

namespace {

void touch_tensors(const CannDump& dump, size_t file_bytes) {
  for (const auto* list : {&dump.inputs, &dump.outputs}) {
    for (const CannTensor& tensor : *list) {
      ASSAY_CHECK(tensor.data.size() <= file_bytes, "a tensor lies inside its file");
      const auto stored = cann_stored_view(tensor);
      if (stored) touch(*stored);
      const auto converted = cann_tensor(tensor);
      const auto header = cann_header(tensor);
      ASSAY_CHECK(header.has_value() == converted.has_value(), "a header promises a tensor");
      if (!converted) continue;
      touch(converted->view);
      ASSAY_CHECK(header->dtype == converted->view.dtype && header->shape == converted->view.shape,
                  "a header promises this tensor");
      if (stored) {
        ASSAY_CHECK(converted->view.element_count() <= stored->element_count(),
                    "a conversion leaves elements out, it adds none");
      }
    }
  }
}

bool same_tensor(const CannTensor& a, const CannTensor& b) {
  const bool a_named = a.origin && !a.origin->name.empty();
  return a.data_type == b.data_type && a.format == b.format && a.sub_format == b.sub_format &&
         a.shape == b.shape && a.original_shape == b.original_shape && a.address == b.address &&
         a.offset == b.offset && a.arg_index == b.arg_index && a.input_type == b.input_type &&
         a.dim_range == b.dim_range && as_text(a.data) == as_text(b.data) &&
         (a_named ? a.origin == b.origin : !b.origin);
}
bool same_buffer(const CannBuffer& a, const CannBuffer& b) {
  return a.type == b.type && as_text(a.data) == as_text(b.data);
}
bool same_attribute(const CannAttribute& a, const CannAttribute& b) {
  return a.name == b.name && a.value == b.value;
}
template <typename Item, typename Same>
bool same_list(const std::vector<Item>& a, const std::vector<Item>& b, Same same) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
}

bool same_dump(const CannDump& a, const CannDump& b) {
  return a.dump_time_us == b.dump_time_us && a.op_name == b.op_name && a.message == b.message &&
         a.has_operand_indices == b.has_operand_indices && b.version == "2.0" &&
         same_list(a.inputs, b.inputs, same_tensor) &&
         same_list(a.outputs, b.outputs, same_tensor) &&
         same_list(a.buffers, b.buffers, same_buffer) &&
         same_list(a.workspaces, b.workspaces, same_buffer) &&
         same_list(a.attributes, b.attributes, same_attribute);
}

/// Nothing when an operand has a problem.
std::optional<std::string> file_of(const CannDump& dump) {
  const auto has_problem = [](const auto& operand) { return !operand.problem.empty(); };
  for (const auto* list : {&dump.inputs, &dump.outputs}) {
    if (std::any_of(list->begin(), list->end(), has_problem)) return std::nullopt;
  }
  const auto header = cann_dump_header(dump);
  if (!header) return std::nullopt;
  std::string file(as_text(*header));
  for (const auto* list : {&dump.inputs, &dump.outputs}) {
    for (const CannTensor& tensor : *list) file += as_text(tensor.data);
  }
  const bool is_exception = !dump.message.empty();
  for (const auto* list : {is_exception ? &dump.workspaces : &dump.buffers,
                           is_exception ? &dump.buffers : &dump.workspaces}) {
    for (const CannBuffer& buffer : *list) file += as_text(buffer.data);
  }
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto dump = read_cann_dump(std::as_bytes(std::span(data, size)));
  if (!dump) return 0;
  touch_tensors(*dump, size);
  // Nano has negative indices of outputs that the protobuf header has no room for.
  if (dump->variant == CannVariant::Nano) return 0;
  const std::optional<std::string> file = file_of(*dump);
  if (!file) return 0;
  const auto again = read_cann_dump(as_bytes(*file));
  ASSAY_CHECK(again.has_value(), "what was written is a dump");
  ASSAY_CHECK(again->warnings.empty(), "its sizes agree");
  ASSAY_CHECK(same_dump(*dump, *again), "it says what was read");
  return 0;
}
