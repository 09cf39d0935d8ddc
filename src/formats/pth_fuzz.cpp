// SPDX-License-Identifier: Apache-2.0
// Any bytes as a .pth; and, because few mutations keep a zip whole, the same bytes as the pickle
// inside one.
#include "formats/detect.hpp"
#include "formats/fuzz_support.hpp"
#include "formats/pth.hpp"
#include "formats/zip.hpp"

using namespace assay;
using namespace assay::formats;

namespace {

void read_all(ByteSpan file) {
  const auto entries = read_pth(file);
  if (!entries) {
    ASSAY_CHECK(!entries.error().message.empty(), "an error says what is wrong");
    return;
  }
  for (const PthEntry& entry : *entries) {
    if (entry.kind == PthEntry::Kind::Tensor) touch(entry.tensor.view);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ByteSpan bytes = std::as_bytes(std::span(data, size));
  (void)detect_file(bytes, "x.pth");
  read_all(bytes);
  std::string wrapped;
  ZipWriter zip(&wrapped);
  ASSAY_CHECK(zip.add("a/data.pkl", bytes) &&
                  zip.add("a/data/0", bytes.first(std::min<size_t>(size, 64))) && zip.finish(),
              "writing to a string cannot fail");
  read_all(as_bytes(wrapped));
  return 0;
}
