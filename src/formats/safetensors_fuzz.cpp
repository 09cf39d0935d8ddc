// SPDX-License-Identifier: Apache-2.0
#include "formats/fuzz_support.hpp"
#include "formats/safetensors.hpp"

using namespace assay;
using namespace assay::formats;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = read_safetensors(std::as_bytes(std::span(data, size)));
  if (!file) return 0;
  std::vector<std::pair<std::string, TensorView>> tensors;
  for (const SafetensorsEntry& entry : file->entries) {
    touch(entry.view);
    tensors.emplace_back(entry.name, entry.view);
  }
  const auto written = write_safetensors(tensors, file->metadata);
  ASSAY_CHECK(written.has_value(), "what was read can be written");
  const auto again = read_safetensors(as_bytes(*written));
  ASSAY_CHECK(again && again->entries.size() == file->entries.size(),
              "written and read again it is the same");
  return 0;
}
