// SPDX-License-Identifier: Apache-2.0
// Both tables are JSON. What a table should have said is thrown as Expected to whoever knows its
// file; globs are matched without recursion.
#include "pair/mapping_tables.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/ascii.hpp"
#include "base/mapped_file.hpp"
#include "base/text.hpp"

namespace assay::pair {

extern const std::string_view kMappingTablesJson;  // made from mapping_tables.json at build time

namespace {

using nlohmann::json;

/// What a table should have said, thrown to whoever knows the file.
struct Expected {
  std::string what;
};

std::string text_of(const json& value, std::string_view where) {
  if (value.is_string()) return value.get<std::string>();
  throw Expected{std::string(where) + ": expected a text, not " + value.type_name()};
}

constexpr size_t kMaxMappingBytes = size_t{16} << 20;

bool glob_matches(std::string_view pattern, std::string_view text) {
  // Backtracks to the last star only, so the time is at most the product of the lengths.
  size_t p = 0;
  size_t t = 0;
  size_t star = std::string_view::npos;
  size_t star_text = 0;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  while (t < text.size() || p < pattern.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
      continue;
    }
    if (p < pattern.size() && t < text.size()) {
      if (pattern[p] == '#' && is_digit(text[t])) {
        while (t < text.size() && is_digit(text[t])) ++t;
        ++p;
        continue;
      }
      if (pattern[p] == '?' || (pattern[p] != '#' && pattern[p] == text[t])) {
        ++p;
        ++t;
        continue;
      }
    }
    if (star == std::string_view::npos || star_text >= text.size()) return false;
    p = star + 1;
    t = ++star_text;
  }
  return true;
}

std::vector<std::string> texts_of(const json& value, std::string_view where) {
  if (value.is_string()) return {value.get<std::string>()};
  if (!value.is_array())
    throw Expected{std::string(where) + ": expected a text or a list of texts, not " +
                   value.type_name()};
  std::vector<std::string> texts;
  for (const json& item : value) texts.push_back(text_of(item, where));
  return texts;
}

NamePattern pattern_of(const json& value) {
  NamePattern pattern;
  if (value.is_string()) {
    pattern.glob = value.get<std::string>();
    return pattern;
  }
  if (!value.is_object())
    throw Expected{"expected a pattern, a text or an object, not " +
                   std::string(value.type_name())};
  for (const auto& [key, item] : value.items()) {
    if (key == "all") {
      pattern.all = texts_of(item, key);
    } else if (key == "any") {
      pattern.any = texts_of(item, key);
    } else if (key == "none") {
      pattern.none = texts_of(item, key);
    } else if (key == "glob") {
      pattern.glob = text_of(item, key);
    } else if (key == "ignore_case") {
      if (!item.is_boolean()) throw Expected{"ignore_case: expected true or false"};
      pattern.ignore_case = item.get<bool>();
    } else {
      throw Expected{"unknown key '" + key +
                     "' of a pattern; known are all, any, none, glob, ignore_case"};
    }
  }
  return pattern;
}

PairRule rule_of(const json& value) {
  PairRule rule;
  if (!value.is_object())
    throw Expected{"rules: expected objects, not " + std::string(value.type_name())};
  for (const auto& [key, item] : value.items()) {
    if (key == "my") {
      rule.mine = pattern_of(item);
    } else if (key == "golden") {
      rule.golden = pattern_of(item);
    } else if (key == "my_location") {
      rule.mine_at = text_of(item, key);
    } else if (key == "golden_location") {
      rule.golden_at = text_of(item, key);
    } else {
      throw Expected{"unknown key '" + key +
                     "' of a rule; known are my, golden, my_location, golden_location"};
    }
  }
  return rule;
}

std::vector<PairRule> rules_of(const json& value) {
  std::vector<PairRule> rules;
  for (const json& item : value) rules.push_back(rule_of(item));
  return rules;
}

// "CommonLayer_outtensor0": what stands behind the first _ is a tensor of the node.
std::pair<std::string, Location> type_and_location(const std::string& text) {
  const size_t line = text.find('_');
  if (line == std::string::npos) return {text, "outputs"};
  return {text.substr(0, line), text.substr(line + 1)};
}

TypeRule type_rule(const std::string& key, const json& value, bool from_user) {
  TypeRule rule;
  std::tie(rule.mine, rule.mine_at) = type_and_location(key);
  for (const std::string& text : texts_of(value, "'" + key + "'"))
    rule.golden.push_back(type_and_location(text));
  rule.from_user = from_user;
  return rule;
}

MappingTables tables_of(const json& table) {
  MappingTables tables;
  table.at("float_types").get_to(tables.float_types);
  tables.layer_special = rules_of(table.at("layer_special"));
  tables.module_match = rules_of(table.at("module_match"));
  for (const auto& [key, value] : table.at("leaf_types").items())
    tables.leaf_types.push_back(type_rule(key, value, false));
  for (const auto& [key, value] : table.at("types").items())
    tables.types.push_back(type_rule(key, value, false));
  tables.rope = rule_of(table.at("rope"));
  tables.enhanced_name = rules_of(table.at("enhanced_name"));
  tables.qwen_mine = pattern_of(table.at("qwen").at("my"));
  tables.qwen_golden = texts_of(table.at("qwen").at("golden"), "qwen");
  for (const json& item : table.at("qkv_files"))
    tables.qkv_files.push_back(
        {item.at("golden").get<std::string>(), texts_of(item.at("my"), "qkv_files")});
  return tables;
}

bool is_word(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

/// "line 3, column 7" of the `byte`-th byte, counted from 1.
std::string place_of(std::string_view text, size_t byte) {
  const std::string_view before = text.substr(0, byte > 0 ? byte - 1 : 0);
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  return "line " + std::to_string(lines + 1) + ", column " +
         std::to_string(before.size() - line_start + 1);
}

/// The original's sentence has the path; the error has no other, or it would be said twice.
Error invalid_file(const std::string& path, const std::string& why) {
  return {Errc::Invalid, "", std::nullopt, "Invalid op_mapping file: " + path + " (" + why + ")"};
}

Status apply_user_table(const json& table, const std::string& path, MappingTables* tables) {
  if (!table.is_object()) return fail(invalid_file(path, "is no JSON object"));
  for (const auto& [key, value] : table.items()) {
    if (key == "rules" && value.is_array() && !value.empty() && value[0].is_object()) {
      for (const json& item : value) tables->rules.push_back(rule_of(item));
      continue;
    }
    if (!is_word(key)) return fail(invalid_file(path, "the key '" + key + "' is no word"));
    const TypeRule rule = type_rule(key, value, true);
    for (const std::string& text : texts_of(value, key)) {
      if (!is_word(text)) return fail(invalid_file(path, "the value '" + text + "' is no word"));
    }
    const auto known = std::find_if(tables->types.begin(), tables->types.end(), [&](auto& old) {
      return old.mine == rule.mine && old.mine_at == rule.mine_at;
    });
    if (known == tables->types.end()) {
      tables->types.push_back(rule);
    } else {
      *known = rule;
    }
  }
  return {};
}

}  // namespace

bool NamePattern::matches(std::string_view name) const {
  const std::string text = ignore_case ? lower_case(name) : std::string(name);
  const auto occurs = [&](const std::string& part) {
    return text.find(ignore_case ? lower_case(part) : part) != std::string::npos;
  };
  return std::all_of(all.begin(), all.end(), occurs) &&
         (any.empty() || std::any_of(any.begin(), any.end(), occurs)) &&
         std::none_of(none.begin(), none.end(), occurs) &&
         (glob.empty() || glob_matches(ignore_case ? lower_case(glob) : glob, text));
}

std::string_view MappingTables::float_type(std::string_view type) const {
  const auto found = float_types.find(type);
  return found == float_types.end() ? type : std::string_view(found->second);
}

const MappingTables& builtin_tables() {
  static const MappingTables tables = tables_of(json::parse(kMappingTablesJson));
  return tables;
}

Result<MappingTables> tables_with_user_file(const std::string& path) {
  MappingTables tables = builtin_tables();
  std::string file = path;
  struct stat info{};
  if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    file += "/op_mapping_file.json";
    // A folder without that file is no mistake: it may be there for something else.
    if (::stat(file.c_str(), &info) != 0) return tables;
  }
  ASSAY_TRY(const MappedFile bytes, MappedFile::open(file));
  if (bytes.bytes().size() > kMaxMappingBytes)
    return fail(invalid_file(file, "is larger than 16 MiB"));
  try {
    const json table = json::parse(as_text(bytes.bytes()));
    ASSAY_TRY_STATUS(apply_user_table(table, file, &tables));
  } catch (const json::parse_error& problem) {
    return fail(invalid_file(
        file, "is not JSON from " + place_of(as_text(bytes.bytes()), problem.byte) +
                  " on; expected an object such as {\"RmsNormOperation\": \"RMSNorm\"}"));
  } catch (const Expected& expected) {
    return fail(invalid_file(file, repair_utf8(expected.what)));
  } catch (const json::exception&) {  // a number that no double holds
    return fail(invalid_file(file, "holds a value that is neither a text nor a list of texts"));
  }
  return tables;
}

}  // namespace assay::pair
