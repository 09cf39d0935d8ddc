// SPDX-License-Identifier: Apache-2.0
// When an output is right: the named sets of limits.   docs/opcheck.md
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "measure/measures.hpp"

namespace assay::measure {

/// How exactly a result must be met; the limits are in standards.cpp.
enum class Precision : uint8_t {
  Move,     // bit exact
  Cast,     // bit exact
  Integer,  // bit exact
  Quant,
  Float,
  FloatHighPrecision,
  VectorFusion,
  CvFusion,  // attention: ratios against a second implementation
  Rand,      // two-sample Kolmogorov-Smirnov test
};

struct Accuracy {
  Precision precision = Precision::Float;
  /// Accumulated terms: K of a product, length of a reduction; 0 when it does not matter.
  int64_t terms = 0;
};

enum class Standard : uint8_t { Atb, LegacyO4, LegacyO4Strict, LegacyO1, Mixed };
/// "atb" "legacy-o4" "legacy-o4-strict" "legacy-o1" "mixed"
[[nodiscard]] std::string_view standard_name(Standard standard);
[[nodiscard]] std::optional<Standard> standard_from_name(std::string_view name);

/// Limits of `atb` for an output type.   table of 6.3
struct AtbLimits {
  double error = 0;          // of |o - g| / max(1, |g|); 0: bit exact
  double error_balance = 0;  // 0: not tested
  int64_t ulp = 0;  // units of the last place; integers: the difference. With error 0 only.
};
[[nodiscard]] AtbLimits atb_limits(const Accuracy& accuracy, DType dtype);

/// etol and needed percentage of the legacy standards.   table of 6.2
struct LegacyLimits {
  double etol = 0;
  double needed = 0;  // percent
};
[[nodiscard]] std::optional<LegacyLimits> legacy_limits(Standard standard, DType dtype);
/// Limits of `mixed`: |o - g| <= tolerance (1 + |g|) for 99 % of the elements, and no element
/// further
/// off than the larger of `floor` and 32 units of the last place.   document set of 9.5
struct MixedLimits {
  double tolerance = 0;  // 0: bit exact
  double floor = 0;
};
[[nodiscard]] MixedLimits mixed_limits(DType dtype);
/// "99.9%(error<0.0009765625)", numbers as Python prints them.
[[nodiscard]] std::string precision_standard_text(const LegacyLimits& limits);

struct Judgement {
  bool passed = false;
  std::string reason;          // of a failure, one sentence with numbers; empty for a pass
  std::string remark;          // worth knowing beside a pass: which of two rules passed
  double rate = NAN;           // percent of elements within
  double error_balance = NAN;  // atb: percent of its limit
};

/// measures   taken with the error of atb_limits() as MeasureOptions::atb_error; for Rand with
///            kolmogorov_smirnov
/// second     CvFusion: measures of the second implementation against golden, when there is one
[[nodiscard]] Judgement judge(Standard standard, const Measures& measures, const Accuracy& accuracy,
                              const Measures* second);

}  // namespace assay::measure
