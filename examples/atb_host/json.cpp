// SPDX-License-Identifier: Apache-2.0
#include "json.h"

#include <charconv>
#include <cmath>

namespace atb_host {
namespace {

// The shortest digits that read back as the same double; plain notation for decimal exponents -4 ... 15, as nlohmann.
std::string number_text(double value) {
  const double magnitude = std::fabs(value);
  const bool plain = magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e15);
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer, end.ptr);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

struct Writer {
  std::string operator()(std::monostate) const { return "null"; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return number_text(value); }
  std::string operator()(const std::string& value) const { return '"' + value + '"'; }
  std::string operator()(const Json::Array& values) const {
    std::string text;
    for (const Json& value : values) text += (text.empty() ? "" : ",") + value.dump();
    return '[' + text + ']';
  }
  std::string operator()(const Json::Object& members) const {
    std::string text;
    for (const auto& [key, value] : members) {
      text += (text.empty() ? "\"" : ",\"") + key + "\":" + value.dump();
    }
    return '{' + text + '}';
  }
};

}  // namespace

std::string Json::dump() const { return std::visit(Writer{}, value_); }

}  // namespace atb_host
