// SPDX-License-Identifier: Apache-2.0
// Any bytes as a dump.json: an error or records, and no file named outside the folder.
#include <cstdint>
#include <cstdlib>

#include "run/sources/msprobe_list.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace assay::run;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Run run;
  sources::MsprobePlace place;
  place.data_folder = "data";
  if (!sources::read_msprobe_list(text, place, &run)) return 0;
  for (const TensorRecord& record : run.records) {
    if (!record.bytes) continue;
    const std::string& file = record.bytes->file;
    if (!file.starts_with("data/") || file.find('/', 5) != std::string::npos || file == "data/..")
      std::abort();
  }
  return 0;
}
