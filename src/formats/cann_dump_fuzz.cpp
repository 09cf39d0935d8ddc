// SPDX-License-Identifier: Apache-2.0
#include "formats/cann_dump.hpp"
#include "formats/fuzz_support.hpp"

using namespace assay;
using namespace assay::formats;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ByteSpan file = std::as_bytes(std::span(data, size));
  const auto dump = read_cann_dump(file);
  if (!dump) return 0;
  for (const auto* list : {&dump->inputs, &dump->outputs}) {
    for (const CannTensor& tensor : *list) {
      ASSAY_CHECK(tensor.data.size() <= size, "a tensor lies inside its file");
      const auto stored = cann_stored_view(tensor);
      if (stored) touch(*stored);
      const auto converted = cann_tensor(tensor);
      if (!converted) continue;
      touch(converted->view);
      if (stored) {
        ASSAY_CHECK(converted->view.element_count() <= stored->element_count(),
                    "a conversion leaves elements out, it adds none");
      }
    }
  }
  return 0;
}
