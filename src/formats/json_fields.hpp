// SPDX-License-Identifier: Apache-2.0
// JSON from outside: a text that is parsed with care, and members of which only the expected type
// is taken.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace assay::formats {

inline constexpr size_t kMaxJsonNesting = 64;

/// Deepest nesting of { and [ outside of strings: to be checked before a parser that allocates per
/// level.
[[nodiscard]] size_t json_nesting(std::string_view text);

/// errors  Invalid: no JSON object | TooLarge: nested deeper than kMaxJsonNesting
[[nodiscard]] Result<nlohmann::json> parse_json_object(std::string_view text);

/// nullptr when it is absent or null, or `value` is no object.
[[nodiscard]] const nlohmann::json* member(const nlohmann::json& value, std::string_view name);
/// Empty when it is no text.
[[nodiscard]] std::string text_of(const nlohmann::json& object, std::string_view name);
/// 0 when it is no integer from 0 on.
[[nodiscard]] uint64_t count_of(const nlohmann::json& object, std::string_view name);
/// The objects, and the texts, of a list.
[[nodiscard]] std::vector<const nlohmann::json*> objects_of(const nlohmann::json& object,
                                                            std::string_view name);
[[nodiscard]] std::vector<std::string> texts_of(const nlohmann::json& object,
                                                std::string_view name);

/// As people read it: a text as it is, everything else as JSON.
[[nodiscard]] std::string plain_text(const nlohmann::json& value);

/// "host.torch" = "2.13.0", "config.steps" = "[0,1]": the members of an object, and of those in it,
/// as plain texts.
void flatten(const nlohmann::json& value, const std::string& name,
             std::map<std::string, std::string>* out);

}  // namespace assay::formats
