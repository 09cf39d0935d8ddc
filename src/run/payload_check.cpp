// SPDX-License-Identifier: Apache-2.0
#include "run/payload_check.hpp"

#include <cmath>

#include "base/text.hpp"
#include "stats/whole_tensor.hpp"

namespace assay::run {
namespace {

// Sums in fp64 over the same values in another order, and sums of a device in float32, as shares of
// the root mean square (mean) and of the norm.
constexpr double kSumError = 1e-9;
constexpr double kRoughSumError = 1e-5;
// Absolute values of complex numbers: two libraries' hypot() differ in the last place.
constexpr double kRoughExtreme = 1e-15;
// A sketch is rounded to float32; its buckets hold up to the norm each.
constexpr double kSketchError = 1e-6;

bool is_same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

bool is_near(double a, double b, double allowed) {
  return is_same(a, b) || std::abs(a - b) <= allowed;
}

std::string against(const char* name, double found, double said) {
  return std::string(name) + " " + python_repr(found) + " against " + python_repr(said);
}

bool has_same_counts(const stats::TensorStats& a, const stats::TensorStats& b) {
  return a.count == b.count && a.nan_count == b.nan_count &&
         a.positive_inf_count == b.positive_inf_count &&
         a.negative_inf_count == b.negative_inf_count;
}

bool has_near_sketch(const stats::TensorStats& a, const stats::TensorStats& b) {
  if (!a.sketch || !b.sketch) return true;
  for (size_t i = 0; i < stats::kSketchBuckets; ++i) {
    if (!is_near((*a.sketch)[i], (*b.sketch)[i], kSketchError * b.l2_norm)) return false;
  }
  return true;
}

std::string name_of(const TensorRecord& record) {
  return (record.node.empty() ? "the model" : record.node) + " " +
         std::string(role_name(record.role)) + (record.slot.empty() ? "" : " " + record.slot) +
         " of step " + record.step_name;
}

}  // namespace

std::string difference(const stats::TensorStats& said, const stats::TensorStats& found,
                       bool is_rough) {
  if (!has_same_counts(found, said))
    return std::to_string(found.finite_count()) + " finite values of " +
           std::to_string(found.count) + " against " + std::to_string(said.finite_count()) +
           " of " + std::to_string(said.count);
  const double extreme = is_rough ? kRoughExtreme : 0;
  if (!is_near(found.min, said.min, extreme * std::abs(said.min)))
    return against("minimum", found.min, said.min);
  if (!is_near(found.max, said.max, extreme * std::abs(said.max)))
    return against("maximum", found.max, said.max);
  const double share = is_rough ? kRoughSumError : kSumError;
  if (!is_near(found.l2_norm, said.l2_norm, share * said.l2_norm))
    return against("l2 norm", found.l2_norm, said.l2_norm);
  const double mean_square = said.l2_norm * said.l2_norm / static_cast<double>(said.count);
  if (!is_near(found.mean, said.mean, share * std::sqrt(mean_square)))
    return against("mean", found.mean, said.mean);
  if (!has_near_sketch(found, said)) return "the values stand in another order";
  return {};
}

std::string PayloadCheck::problem(const TensorRecord& record, const TensorView& payload) {
  if (is_whole()) return {};
  if (!record.digest)
    return noted(record, difference(*record.stats, stats::statistics_of(payload), is_rough()));
  const bool is_same = stats::digest_of(payload) == *record.digest;
  return noted(record, is_same ? "" : "other bytes than the digest's");
}

std::string PayloadCheck::problem(const TensorRecord& record, const stats::TensorStats& payload) {
  if (!record.stats || is_whole()) return {};
  return noted(record, difference(*record.stats, payload, is_rough()));
}

std::string PayloadCheck::noted(const TensorRecord& record, const std::string& difference) {
  if (difference.empty()) {
    bits_.fetch_or(kIsWhole, std::memory_order_relaxed);
    return {};
  }
  std::string what =
      "the values of " + name_of(record) + " are not those of its record (" + difference + ")";
  reinterpret_cast<FoundDamage*>(bits_.load(std::memory_order_relaxed) & ~(kIsWhole | kIsRough))
      ->add({record.bytes->file, what});
  return what;
}

}  // namespace assay::run
