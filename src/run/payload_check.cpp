// SPDX-License-Identifier: Apache-2.0
// Compares the values that were read with the digest or the statistics of their record. A check is
// one byte in an aligned block of 4096 bytes: its address gives the block, which counts its
// holders.
#include "run/payload_check.hpp"

#include <array>
#include <cmath>

#include "base/text.hpp"
#include "run/coverage.hpp"
#include "run/record.hpp"
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

// ---- blocks ----

// Aligned to its size, so that the address of any flag in it gives the block.
struct alignas(4096) PayloadCheck::Block {
  static constexpr size_t kSize = 4096;
  static constexpr size_t kChecks = kSize - 24;

  std::shared_ptr<FoundDamage> found;
  std::atomic<uint64_t> holders = 0;
  std::array<Flags, kChecks> flags = {};
};

PayloadCheck::Block* PayloadCheck::block() const {
  static_assert(sizeof(Block) == Block::kSize);
  return reinterpret_cast<Block*>(reinterpret_cast<uintptr_t>(flags_) & ~(Block::kSize - 1));
}

PayloadCheck::PayloadCheck(const PayloadCheck& other) : flags_(other.flags_) {
  if (flags_ != nullptr) block()->holders.fetch_add(1, std::memory_order_relaxed);
}

PayloadCheck::~PayloadCheck() {
  if (flags_ != nullptr && block()->holders.fetch_sub(1, std::memory_order_acq_rel) == 1)
    delete block();
}

PayloadCheck PayloadChecks::add(bool is_rough) {
  if (size_ % PayloadCheck::Block::kChecks == 0) {
    auto* const block = new PayloadCheck::Block{.found = found_, .holders = 1};
    blocks_.push_back(PayloadCheck(block->flags.data()));
  }
  PayloadCheck check = at(size_++);
  if (is_rough) check.flags_->store(PayloadCheck::kIsRough, std::memory_order_relaxed);
  return check;
}

PayloadCheck PayloadChecks::at(size_t i) const {
  PayloadCheck check = blocks_[i / PayloadCheck::Block::kChecks];
  check.flags_ += i % PayloadCheck::Block::kChecks;
  return check;
}

// ---- checks ----

std::string PayloadCheck::problem(const TensorRecord& record, const TensorView& payload) const {
  if (has(kIsWhole)) return {};
  if (!record.digest)
    return noted(record, difference(*record.stats, stats::statistics_of(payload), is_rough()));
  const bool is_same = stats::digest_of(payload) == *record.digest;
  return noted(record, is_same ? "" : "other bytes than the digest's");
}

std::string PayloadCheck::problem(const TensorRecord& record,
                                  const stats::TensorStats& payload) const {
  if (!record.stats || has(kIsWhole)) return {};
  return noted(record, difference(*record.stats, payload, is_rough()));
}

std::string PayloadCheck::noted(const TensorRecord& record, const std::string& difference) const {
  if (difference.empty()) {
    flags_->fetch_or(kIsWhole, std::memory_order_relaxed);
    return {};
  }
  std::string what =
      "the values of " + name_of(record) + " are not those of its record (" + difference + ")";
  block()->found->add({record.bytes->file, what});
  return what;
}

}  // namespace assay::run
