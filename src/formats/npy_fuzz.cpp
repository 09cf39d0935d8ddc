// SPDX-License-Identifier: Apache-2.0
#include "formats/fuzz_support.hpp"
#include "formats/npy.hpp"

using namespace assay;
using namespace assay::formats;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto tensor = read_npy(std::as_bytes(std::span(data, size)));
  if (!tensor) return 0;
  touch(tensor->view);
  if (!tensor->view.is_contiguous()) return 0;
  const auto written = write_npy(tensor->view);
  ASSAY_CHECK(written.has_value(), "what was read can be written");
  const auto again = read_npy(as_bytes(*written));
  ASSAY_CHECK(
      again && again->view.shape == tensor->view.shape &&
          as_text(again->view.contiguous_bytes()) == as_text(tensor->view.contiguous_bytes()),
      "written and read again it is the same");
  return 0;
}
