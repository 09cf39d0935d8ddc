// SPDX-License-Identifier: Apache-2.0
// Any text as the JSON of a fingerprint: an error, or a run whose records can be asked for.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/bytes.hpp"
#include "formats/gzip.hpp"
#include "run/fingerprint/fingerprint.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace assay;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<std::string> file = formats::gzip(text);
  if (!file) std::abort();
  const Result<run::Run> run = run::open_fingerprint(as_bytes(*file), "fuzz");
  if (!run) return 0;
  for (const run::TensorRecord& record : run->records) {
    if (record.producer >= static_cast<int64_t>(run->records.size())) std::abort();
    if (record.made() != nullptr && !record.made()->make()) std::abort();
  }
  return 0;
}
