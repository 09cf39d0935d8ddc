// SPDX-License-Identifier: Apache-2.0
// Reads the rules of a thresholds file, refuses unknown keys and impossible limits with the nearest
// key, and finds the first rule that matches a row.
#include "compare/limits.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/suggest.hpp"
#include "tensor/dtype.hpp"

namespace assay::compare {
namespace {

using nlohmann::json;

bool pattern_matches(const std::string& pattern, std::string_view text) {
  return ::fnmatch(pattern.c_str(), std::string(text).c_str(), 0) == 0;
}

bool rule_matches(const LimitRule& rule, const LimitSubject& subject) {
  if (!rule.dtype.empty()) {
    const std::string dtype = rule.dtype.starts_with("torch.") ? rule.dtype : "torch." + rule.dtype;
    if (dtype != subject.dtype) return false;
  }
  if (!rule.op_type.empty() && !pattern_matches(rule.op_type, subject.op_type)) return false;
  return rule.match.empty() || names_match(rule.match, subject);
}

Result<json> parse_list(std::string_view text) {
  try {
    json parsed = json::parse(text);
    if (!parsed.is_array()) return fail(Errc::Invalid, "a JSON list of objects is expected");
    for (const json& entry : parsed) {
      if (!entry.is_object())
        return fail(Errc::Invalid, "every entry of the list must be an object");
    }
    return parsed;
  } catch (const json::parse_error& error) {
    // Python writes what JSON does not have.
    for (const std::string_view word : {"NaN", "Infinity"}) {
      const size_t at = text.rfind(word, error.byte);
      if (at != std::string_view::npos && at + word.size() >= error.byte)
        return fail(Errc::Invalid, std::string(word) + " is no limit", at);
    }
    return fail(Errc::Invalid, "is not JSON", error.byte);
  }
}

/// A limit of a rule and what it may be.
struct LimitKey {
  const char* name;
  std::optional<double> Limit::* limit;
  double first;
  double last;
};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::array kLimitKeys = {
    LimitKey{"atol", &Limit::atol, 0, kInfinity}, LimitKey{"rtol", &Limit::rtol, 0, kInfinity},
    LimitKey{"cos", &Limit::cos, -1, 1}, LimitKey{"rel_l2", &Limit::rel_l2, 0, kInfinity}};

std::string range_text(const LimitKey& key) {
  return std::string(key.name) + (key.last == kInfinity ? " must be a number of at least 0"
                                                        : " must be a number from -1 to 1");
}

/// "unknown key 'rell2'; did you mean 'rel_l2'?"
std::string unknown_text(const std::string& what, const std::string& word,
                         const std::vector<std::string>& known) {
  constexpr std::string_view kTorch = "torch.";
  std::string text = "unknown " + what + " '" + word + "'";
  const std::string_view name =
      std::string_view(word).substr(word.starts_with(kTorch) ? kTorch.size() : 0);
  if (const std::string near = nearest_word(name, known); !near.empty())
    return text + "; did you mean '" + near + "'?";
  text += "; known are ";
  for (const std::string& one : known) text += (one == known.front() ? "" : ", ") + one;
  return text;
}

/// Patterns may match nothing; a type that does not exist is a mistake.
std::string dtype_problem(const std::string& dtype) {
  if (dtype.empty() || dtype_from_name(dtype)) return {};
  std::vector<std::string> known;
  for (const DType one :
       {DType::Float16, DType::BFloat16, DType::Float32, DType::Float64, DType::Int8, DType::Int16,
        DType::Int32, DType::Int64, DType::UInt8, DType::Bool})
    known.emplace_back(name(one));
  return unknown_text("dtype", dtype, known);
}

Result<LimitRule> parse_rule(const json& entry, size_t index) {
  const std::string where = "entry " + std::to_string(index);
  LimitRule rule;
  for (const auto& [key, value] : entry.items()) {
    std::string* text = key == "match"     ? &rule.match
                        : key == "dtype"   ? &rule.dtype
                        : key == "op_type" ? &rule.op_type
                                           : nullptr;
    if (text != nullptr) {
      if (!value.is_string())
        return fail(Errc::Invalid, where + ": '" + key + "' must be a string");
      *text = value.get<std::string>();
      continue;
    }
    const auto* known = std::ranges::find(kLimitKeys, key, &LimitKey::name);
    if (known == kLimitKeys.end()) {
      return fail(Errc::Invalid,
                  where + ": " +
                      unknown_text("key", key,
                                   {"match", "dtype", "op_type", "atol", "rtol", "cos", "rel_l2"}));
    }
    if (!value.is_number()) return fail(Errc::Invalid, where + ": " + range_text(*known));
    rule.limit.*(known->limit) = value.get<double>();
  }
  std::string problem = limit_problem(rule.limit);
  if (problem.empty()) problem = dtype_problem(rule.dtype);
  if (!problem.empty()) return fail(Errc::Invalid, where + ": " + problem);
  return rule;
}

}  // namespace

std::string limit_problem(const Limit& limit) {
  for (const LimitKey& key : kLimitKeys) {
    const std::optional<double>& value = limit.*(key.limit);
    if (!value || (key.first <= *value && *value <= key.last)) continue;
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%g", *value);
    return range_text(key) + ", not " + text.data();
  }
  return {};
}

bool names_match(const std::string& pattern, const LimitSubject& subject) {
  return pattern_matches(pattern, subject.mine_path) ||
         pattern_matches(pattern, subject.golden_path) || pattern_matches(pattern, subject.node) ||
         pattern_matches(pattern, "/" + std::string(subject.node));
}

const Limit& limit_for(const Limits& limits, const LimitSubject& subject) {
  for (const LimitRule& rule : limits.rules) {
    if (rule_matches(rule, subject)) return rule.limit;
  }
  return limits.fallback;
}

Result<std::vector<LimitRule>> parse_limit_rules(std::string_view text) {
  ASSAY_TRY(const json list, parse_list(text));
  std::vector<LimitRule> rules;
  for (const json& entry : list) {
    ASSAY_TRY(LimitRule rule, parse_rule(entry, rules.size()));
    rules.push_back(std::move(rule));
  }
  return rules;
}

}  // namespace assay::compare
