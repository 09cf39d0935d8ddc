// SPDX-License-Identifier: Apache-2.0
#include "formats/fuzz_support.hpp"
#include "formats/gguf.hpp"

using namespace assay;
using namespace assay::formats;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = read_gguf(std::as_bytes(std::span(data, size)));
  if (!file) return 0;
  for (const GgufEntry& entry : file->metadata) {
    uint64_t elements = 0;
    entry.value.for_each([&](const GgufValue&) { return ++elements > 0; });
    if (entry.value.type == GgufType::Array)
      ASSAY_CHECK(elements == entry.value.count, "an accepted array can be read to its end");
    (void)gguf_value_text(entry.value);
    (void)entry.value.integer_at(entry.value.count - 1);
  }
  for (const GgufTensor& tensor : file->tensors) {
    if (const auto values = gguf_tensor(*file, tensor)) touch(values->view);
  }
  return 0;
}
