// SPDX-License-Identifier: Apache-2.0
// A comma or a new line goes in front of a member, so the text never lacks more than its closing
// brace.
#include "base/json_text.hpp"

namespace assay {

JsonObject& JsonObject::add(std::string_view name, std::string_view text) {
  return add_json(name, json_quote(text));
}

JsonObject& JsonObject::add_json(std::string_view name, std::string_view json) {
  if (text_.size() > 1) text_ += ',';
  if (on_new_line_) text_ += "\n ";
  on_new_line_ = false;
  text_ += json_quote(name);
  text_ += ':';
  text_ += json;
  return *this;
}

}  // namespace assay
