// SPDX-License-Identifier: Apache-2.0
// How near the text a model wrote is to the expected one.   docs/commands/bad-cases.md
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace assay::measure {

/// A metric with its limit.
struct CaseMetric {
  enum class Kind : uint8_t {
    Accuracy,
    EditDistance,
    RelativeAbnormal,
    Bleu,
    Rouge,
    RougeL,
    RelativeDistinct
  };
  std::string_view name;  // "rouge_1"
  Kind kind = Kind::Accuracy;
  int words = 1;  // in a group, for Bleu, Rouge and RelativeDistinct
  double threshold = 1;
  double largest_threshold = 1;

  [[nodiscard]] bool is_integer() const;  // the score counts something
  [[nodiscard]] bool is_small_good() const;
  [[nodiscard]] bool passes(double score) const;
};
/// All of them, with their usual limits.
[[nodiscard]] std::span<const CaseMetric> case_metrics();

/// "rouge_1", or with a limit of one's own "rouge_1=0.5".
/// errors    Usage: no such metric, a limit out of its range
[[nodiscard]] Result<CaseMetric> parse_case_metric(std::string_view text);

/// Words of a text: letters and digits of ASCII that stand together ("top1", "3.14", "80%"), every
/// other character by itself. UTF-8; bytes that are none count as U+FFFD.
[[nodiscard]] std::vector<std::string> words_of(std::string_view text);

/// errors    Invalid: a text without words has no rates
[[nodiscard]] Result<double> case_score(const CaseMetric& metric, std::string_view output,
                                        std::string_view expected);

}  // namespace assay::measure
