// SPDX-License-Identifier: Apache-2.0
#include "compare/limits.hpp"

#include <fnmatch.h>

#include <cmath>
#include <nlohmann/json.hpp>

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
  if (rule.match.empty()) return true;
  return pattern_matches(rule.match, subject.mine_path) ||
         pattern_matches(rule.match, subject.golden_path) ||
         pattern_matches(rule.match, subject.node) ||
         pattern_matches(rule.match, "/" + std::string(subject.node));
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
    return fail(Errc::Invalid, "is not JSON", error.byte);
  }
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
    std::optional<double>* number = key == "atol"     ? &rule.limit.atol
                                    : key == "rtol"   ? &rule.limit.rtol
                                    : key == "cos"    ? &rule.limit.cos
                                    : key == "rel_l2" ? &rule.limit.rel_l2
                                                      : nullptr;
    if (number == nullptr) {
      return fail(Errc::Invalid, where + ": unknown key '" + key +
                                     "'; known are match, dtype, op_type, atol, rtol, cos, rel_l2");
    }
    if (!value.is_number() || std::isnan(value.get<double>())) {
      return fail(Errc::Invalid, where + ": '" + key + "' must be a number");
    }
    *number = value.get<double>();
  }
  return rule;
}

}  // namespace

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
