// SPDX-License-Identifier: Apache-2.0
// Any bytes as an overflow report; what they report reads back after it was written.
#include "formats/overflow_report.hpp"

using namespace assay;
using namespace assay::formats;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto report = read_overflow_report(std::as_bytes(std::span(data, size)));
  if (!report) return 0;
  (void)overflow_report_json(*report);
  for (OverflowEntry entry : report->entries) {
    (void)overflow_causes(entry);
    // Version 0 has one word of status, and the new form no code of a kernel.
    entry.status = {entry.status[0], 0, 0, 0};
    entry.kernel_code = 0;
    const auto again = read_overflow_report(write_overflow_report(entry));
    ASSAY_CHECK(again.has_value(), "what was written is a report");
    OverflowEntry nothing;
    nothing.core = entry.core;
    // An old form in which nothing is set reports nothing.
    if (report->is_old && entry == nothing) continue;
    ASSAY_CHECK(again->entries.size() == 1 && again->entries[0] == entry, "the entry reads back");
  }
  return 0;
}
