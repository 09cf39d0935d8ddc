// SPDX-License-Identifier: Apache-2.0
// Any bytes as a tree of model_addition_debugger: an error or records, and no file named outside
// the folder.
#include <cstdint>
#include <cstdlib>

#include "run/sources/debug_tree_list.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace assay::run;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static_cast<void>(sources::printed_numbers(text));
  Run run;
  sources::ModuleTree modules;
  if (!sources::read_debug_tree(text, {"tree.json", "data"}, &modules, &run)) return 0;
  static_cast<void>(modules.build());
  for (const TensorRecord& record : run.records) {
    if (!record.bytes) continue;
    const std::string& file = record.bytes->file;
    if (!file.starts_with("data/") || file.find('/', 5) != std::string::npos || file == "data/..")
      std::abort();
  }
  return 0;
}
