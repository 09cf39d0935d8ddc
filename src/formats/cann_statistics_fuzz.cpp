// SPDX-License-Identifier: Apache-2.0
// Any text as a table of statistics. What was read is written and read again: the same rows.
#include "formats/cann_statistics.hpp"

using namespace assay;
using namespace assay::formats;

namespace {

std::vector<CannStatistic> all_statistics() {
  std::vector<CannStatistic> all;
  for (int i = 0; i <= static_cast<int>(CannStatistic::L2Norm); ++i)
    all.push_back(static_cast<CannStatistic>(i));
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto first = read_cann_statistics(as_text(std::as_bytes(std::span(data, size))));
  if (!first) return 0;
  const std::string text = write_cann_statistics(first->rows, all_statistics());
  const auto second = read_cann_statistics(text);
  ASSAY_CHECK(second.has_value(), "what was written is a table");
  ASSAY_CHECK(second->rows.size() == first->rows.size(), "no row is lost");
  ASSAY_CHECK(write_cann_statistics(second->rows, all_statistics()) == text,
              "numbers do not change when they are read and written again");
  return 0;
}
