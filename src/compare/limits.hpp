// SPDX-License-Identifier: Apache-2.0
// Limits that turn a row into pass or fail: command line and `--thresholds FILE`.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace assay::compare {

/// Absent members are not tested. atol and rtol together are one test, element by element:
/// |mine - golden| <= atol + rtol * |golden|; one without the other means the other is 0.
struct Limit {
  std::optional<double> atol = {};
  std::optional<double> rtol = {};
  std::optional<double> cos = {};     // cosine_similarity at least
  std::optional<double> rel_l2 = {};  // relative_euclidean_distance at most

  [[nodiscard]] bool empty() const { return !atol && !rtol && !cos && !rel_l2; }
};

struct LimitRule {
  std::string match;    // shell pattern on a path, node name or "/" + node name; empty: every row
  std::string dtype;    // of mine, "bfloat16" or "torch.bfloat16"; empty: every dtype
  std::string op_type;  // shell pattern on my type; empty: every type
  Limit limit;
};

struct Limits {
  std::vector<LimitRule> rules;  // the first match wins
  Limit fallback;                // of rows that no rule matches

  [[nodiscard]] bool empty() const { return rules.empty() && fallback.empty(); }
};

/// What a rule is tested against.
struct LimitSubject {
  std::string_view golden_path;
  std::string_view mine_path;
  std::string_view node;
  std::string_view op_type;
  std::string_view dtype;
};
/// A shell pattern is that of a path of the pair, its node name or "/" + node name.
[[nodiscard]] bool names_match(const std::string& pattern, const LimitSubject& subject);
[[nodiscard]] const Limit& limit_for(const Limits& limits, const LimitSubject& subject);

/// Why a limit cannot be one: "cos must be a number from -1 to 1, not 2"; empty when it can.
[[nodiscard]] std::string limit_problem(const Limit& limit);

/// Reads a JSON list of objects with the keys match, dtype, op_type, atol, rtol, cos, rel_l2.
/// text     content of the file
/// errors   Invalid (not such a list, unknown key or dtype, a limit that is no number or out of its
///          range); offset where known
[[nodiscard]] Result<std::vector<LimitRule>> parse_limit_rules(std::string_view text);

}  // namespace assay::compare
