// SPDX-License-Identifier: Apache-2.0
// Types are taken apart into the words that a choice may name, and the nearest of these to a
// mistyped one is suggested.
#include "opcheck/choice.hpp"

#include <algorithm>
#include <string_view>

#include "base/ascii.hpp"
#include "base/suggest.hpp"
#include "base/text.hpp"

namespace assay::opcheck {
namespace {

constexpr size_t kMostWords = 24;  // of a list that a person reads

/// The words a type can be chosen by: "linear" of LinearOperation; "aten", "linear" and "default"
/// of aten.linear.default.
std::vector<std::string> names_of(const std::string& type) {
  constexpr std::string_view kEnd = "operation";
  std::vector<std::string> names;
  const std::string lower = lower_case(type);
  for (const std::string_view part : split(lower, '.')) {
    const bool has_end = part.size() > kEnd.size() && part.ends_with(kEnd);
    names.emplace_back(has_end ? part.substr(0, part.size() - kEnd.size()) : part);
  }
  return names;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  const size_t shown = std::min(words.size(), kMostWords);
  for (size_t i = 0; i < shown; ++i) text += (i == 0 ? "" : ", ") + words[i];
  return words.size() > shown ? text + " and " + std::to_string(words.size() - shown) + " more"
                              : text;
}

}  // namespace

void KnownOperations::add(const std::string& type, const std::string& id) {
  if (!type.empty() && seen_types_.insert(type).second) types.push_back(type);
  if (!id.empty() && seen_ids_.insert(id).second) ids.push_back(id);
}

std::string nearest_operation(const std::string& given, const std::vector<std::string>& types) {
  std::vector<std::string> known;
  for (const std::string& type : types) {
    for (const std::string& name : names_of(type)) known.push_back(name);
  }
  for (const std::string_view word : split(given, ',')) {
    if (std::string near = nearest_word(lower_case(word), known); !near.empty()) return near;
  }
  return {};
}

std::string comma_list(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ",") + word;
  return text;
}

std::string no_operation_text(const std::string& ids, const std::string& names,
                              const KnownOperations& known) {
  std::string text = "no operation matches";
  if (!ids.empty()) text += " -ids '" + ids + "'";
  if (!names.empty()) text += std::string(ids.empty() ? "" : " or") + " -opname '" + names + "'";
  const std::string near = nearest_operation(names, known.types);
  if (!near.empty()) text += "; did you mean -opname " + near + "?";
  const char* separator = near.empty() ? "; " : " ";
  if (!names.empty() && !known.types.empty())
    text += separator + ("these ran: " + joined(known.types));
  if (!ids.empty() && !known.ids.empty())
    text += (names.empty() ? "; these ids ran: " : ", ids ") + joined(known.ids);
  return text;
}

}  // namespace assay::opcheck
