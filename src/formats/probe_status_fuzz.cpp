// SPDX-License-Identifier: Apache-2.0
// Any bytes as a status page and as a summary. A page that is one gives a summary that reads back
// to the same counters.
#include "formats/probe_status.hpp"

#include <cstdlib>

using namespace assay;
using namespace assay::formats;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ByteSpan bytes(reinterpret_cast<const std::byte*>(data), size);
  (void)read_probe_summary(as_text(bytes));
  const auto page = read_probe_status(bytes);
  if (!page) return 0;
  const auto summary = read_probe_summary(probe_summary_json(*page, false, std::nullopt));
  if (!summary || summary->pid != page->pid) std::abort();
  ProbeCounters counters = page->counters;
  // Milliseconds as a double do not hold every number of microseconds.
  counters.waited_us = summary->counters.waited_us;
  if (summary->counters != counters) std::abort();
  return 0;
}
