// SPDX-License-Identifier: Apache-2.0
// JSON put together as text, without a library: for what runs inside a host, and where the order
// and the spaces matter.
#pragma once
#include <concepts>
#include <string>
#include <string_view>

#include "base/text.hpp"

namespace assay {

/// `[a,b]` of what text(item) makes of each item: JSON.
template <typename Items, typename Text>
[[nodiscard]] std::string json_list(const Items& items, Text text) {
  std::string list = "[";
  for (const auto& item : items) {
    if (list.size() > 1) list += ',';
    list += text(item);
  }
  return list + "]";
}
/// Of texts, which are quoted.
template <typename Texts>
[[nodiscard]] std::string json_texts(const Texts& texts) {
  return json_list(texts, json_quote);
}

/// The members of an object, in the order of the calls.
class JsonObject {
 public:
  JsonObject& add(std::string_view name, std::string_view text);
  template <std::integral T>
  JsonObject& add(std::string_view name, T value) {
    if constexpr (std::same_as<T, bool>)
      return add_json(name, value ? "true" : "false");
    else
      return add_json(name, std::to_string(value));
  }
  /// A value that is JSON already.
  JsonObject& add_json(std::string_view name, std::string_view json);
  /// The next member stands on a line of its own.
  JsonObject& new_line() {
    on_new_line_ = true;
    return *this;
  }

  /// What it is so far, without the brace at the end.
  [[nodiscard]] std::string_view open_text() const { return text_; }
  [[nodiscard]] std::string text() const { return text_ + "}"; }

 private:
  std::string text_ = "{";
  bool on_new_line_ = false;
};

}  // namespace assay
