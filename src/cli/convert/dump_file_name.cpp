// SPDX-License-Identifier: Apache-2.0
// Names {type}.{name}.0.0.{time}: characters that would end a part or the name become underscores.
#include "cli/convert/dump_file_name.hpp"

#include "run/ge_names.hpp"

namespace assay::cli {

std::string dump_file_name(std::string_view op_type, std::string_view op_name, uint64_t time_us) {
  constexpr size_t kMaxPartBytes = 110;  // of two parts, so that numbers and endings fit into 255
  const auto part = [](std::string_view text) {
    std::string out(text.substr(0, kMaxPartBytes));
    for (char& c : out) {
      const bool stands_for_more = c == ' ' || c == '.' || c == '/' || c == '\\';
      if (stands_for_more || static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '_';
    }
    return out.empty() ? std::string("_") : out;
  };
  return part(op_type) + "." + part(op_name) + ".0.0." + std::to_string(time_us);
}

bool may_be_dump(std::string_view name) {
  for (const std::string_view suffix : {".csv", ".npz", ".safetensors", ".md", ".xlsx", ".html"}) {
    if (name.ends_with(suffix)) return false;
  }
  return !run::is_other_file(name) && !run::is_unfinished_file(name) && !name.starts_with('.');
}

}  // namespace assay::cli
