// SPDX-License-Identifier: Apache-2.0
// Kullback-Leibler divergence of two softmax distributions, block by block and without
// cancellation.
//
// With d_i = m_i - g_i, p = softmax(g), q = softmax(m) and mu = sum p_i d_i:
//
//   KL(p || q) = sum p_i (log p_i - log q_i) = log sum p_i exp(d_i) - mu = log1p(sum p_i f(d_i - mu))
//   f(x) = exp(x) - 1 - x >= 0
//
// Every term is positive, so nothing cancels: two tensors that differ by 1e-9 have a divergence of
// about 1e-18, and it comes out with 12 correct digits, where log p - log q leaves none. Parts of a
// tensor join by the chain rule,
//
//   KL = sum_b P_b KL_b + KL(P || Q),   P_b = share of part b under p, Q_b under q
//
// which is the same computation over one value a part: log_sum_exp in place of g, shift in place of
// d.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace assay::measure {

struct KlPart {
  double golden_log_sum = -std::numeric_limits<double>::infinity();  // log sum exp(g_i)
  double mine_log_sum = -std::numeric_limits<double>::infinity();
  /// mine_log_sum - golden_log_sum, to more digits than that subtraction would keep.
  double shift = 0;
  double divergence = 0;  // nats, within this part
};

/// Largest number of values of one call below.
inline constexpr int64_t kKlBlock = 2048;

/// golden, mine  finite values, 1 to kKlBlock of them
/// difference  mine - golden for each
/// inner       divergence inside the part each value stands for; null: zero
[[nodiscard]] KlPart kl_of_values(const double* golden, const double* mine,
                                  const double* difference, const double* inner, int64_t count);

/// Joins any number of parts, in the order they are pushed, in constant memory.
class KlReducer {
 public:
  void push(const KlPart& part);
  [[nodiscard]] bool empty() const { return count_ == 0; }
  /// The join of everything pushed, which is forgotten then. Precondition: not empty.
  [[nodiscard]] KlPart finish();

 private:
  static constexpr size_t kCapacity = 256;
  std::array<double, kCapacity> golden_log_sum_;
  std::array<double, kCapacity> mine_log_sum_;
  std::array<double, kCapacity> shift_;
  std::array<double, kCapacity> divergence_;
  size_t count_ = 0;
};

/// KL(softmax(golden) || softmax(mine)) of finite values, equally many and at least one; nats.
[[nodiscard]] double kl_divergence(std::span<const double> golden, std::span<const double> mine);

}  // namespace assay::measure
