// SPDX-License-Identifier: Apache-2.0
#include "formats/atb_bin.hpp"

namespace assay::formats {
namespace {

void append_line(std::string& text, std::string_view name, std::string_view value) {
  text.append(name).append("=").append(value).append("\n");
}

}  // namespace

std::string atb_bin_header(std::span<const AtbAttribute> attributes,
                           std::optional<uint64_t> payload_bytes) {
  const std::string length = std::to_string(payload_bytes.value_or(0));
  std::string text;
  append_line(text, "$Version", "1.0");
  append_line(text, "$Object.Count", payload_bytes ? "1" : "0");
  append_line(text, "$Object.Length", length);
  for (const AtbAttribute& attribute : attributes)
    append_line(text, attribute.name, attribute.value);
  if (payload_bytes) append_line(text, "$Object.data", "0," + length);
  append_line(text, "$End", "1");
  return text;
}

}  // namespace assay::formats
