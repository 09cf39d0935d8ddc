// SPDX-License-Identifier: Apache-2.0
// Any bytes as graphs.json, as mapping.csv and as the name of a dump file.
#include <cstdint>
#include <cstdlib>

#include "run/ge_names.hpp"
#include "run/sources/graphs_json.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace assay::run;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Run run;
  const auto read = sources::read_graphs_json(text, &run);
  // What is no run's description leaves the run as it was.
  if ((!read || !*read) && (run.coverage.planned > 0 || !run.properties.empty())) std::abort();
  const auto check_name = [](std::string_view name, bool in_exception_folder) {
    const auto parsed = parse_ge_file_name(name, in_exception_folder);
    if (!parsed) return;
    // Both are parts of the name, but for the type that exceptions are given.
    const bool exception = parsed->kind == GeFileKind::Exception;
    const size_t from_name = parsed->op_name.size() + (exception ? 0 : parsed->op_type.size());
    if (from_name + parsed->time.size() > name.size()) std::abort();
  };
  for (const auto& [file, name] : read_long_names(text)) check_name(name, false);
  check_name(text, false);
  check_name(text, true);
  return 0;
}
