// SPDX-License-Identifier: Apache-2.0
// Margin and gap are taken from the whole rows; noise and divergence from what is left when the
// tokens that both rows hide are taken out.
#include "locate/verdict/token_row.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "measure/kl_divergence.hpp"

namespace assay::locate {
namespace {

using Row = std::vector<double>;

constexpr double kHidden = 745;  // exp(-745) is the smallest positive double

size_t largest(const Row& row) {
  return static_cast<size_t>(std::ranges::max_element(row) - row.begin());
}

double largest_but(const Row& row, size_t best) {
  double second = -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < row.size(); ++i)
    if (i != best) second = std::max(second, row[i]);
  return second;
}

/// The tokens that either row gives a chance. A NaN is among them.
class Likely {
 public:
  Likely(const Row& golden, const Row& mine)
      : golden_(&golden),
        mine_(&mine),
        golden_end_(golden[largest(golden)] - kHidden),
        mine_end_(mine[largest(mine)] - kHidden) {
    if (hides_some()) copy_others();
  }
  Likely(const Likely&) = delete;
  Likely& operator=(const Likely&) = delete;
  [[nodiscard]] const Row& golden() const { return *golden_; }
  [[nodiscard]] const Row& mine() const { return *mine_; }

 private:
  [[nodiscard]] bool is_hidden(size_t i) const {
    return (*golden_)[i] < golden_end_ && (*mine_)[i] < mine_end_;
  }
  [[nodiscard]] bool hides_some() const {
    for (size_t i = 0; i < golden_->size(); ++i)
      if (is_hidden(i)) return true;
    return false;
  }
  void copy_others() {
    for (size_t i = 0; i < golden_->size(); ++i) {
      if (is_hidden(i)) continue;
      golden_copy_.push_back((*golden_)[i]);
      mine_copy_.push_back((*mine_)[i]);
    }
    golden_ = &golden_copy_;
    mine_ = &mine_copy_;
  }
  const Row* golden_;
  const Row* mine_;
  double golden_end_, mine_end_;
  Row golden_copy_, mine_copy_;
};

bool is_finite(const Row& row) {
  return std::ranges::all_of(row, [](double value) { return std::isfinite(value); });
}

/// Mean square of mine - golden around its mean.
double mean_square_of_difference(const Row& golden, const Row& mine) {
  const auto count = static_cast<double>(golden.size());
  double sum = 0;
  for (size_t i = 0; i < golden.size(); ++i) sum += mine[i] - golden[i];
  const double mean = sum / count;
  double square = 0;
  for (size_t i = 0; i < golden.size(); ++i) {
    const double difference = mine[i] - golden[i] - mean;
    square += difference * difference;
  }
  return square / count;
}

/// Mean square of what storing a value of this size rounds it by.
double square_of_rounding(const measure::Rounding& type, double value) {
  const double unit = type.unit(value);
  return unit * unit / 12;
}

}  // namespace

TokenChoice compare_token_rows(const TokenRow& golden, const TokenRow& mine) {
  const size_t g = largest(golden.logits);
  const size_t m = largest(mine.logits);
  TokenChoice choice;
  choice.golden_token = static_cast<int64_t>(g);
  choice.mine_token = static_cast<int64_t>(m);
  choice.margin = golden.logits[g] - largest_but(golden.logits, g);
  choice.gap = golden.logits[g] - golden.logits[m];
  choice.difference = std::max(std::abs(mine.logits[g] - golden.logits[g]),
                               std::abs(mine.logits[m] - golden.logits[m]));
  const Likely likely(golden.logits, mine.logits);
  if (!is_finite(likely.golden()) || !is_finite(likely.mine())) return choice;
  choice.noise = std::sqrt(mean_square_of_difference(likely.golden(), likely.mine()) +
                           square_of_rounding(golden.type, golden.logits[g]) +
                           square_of_rounding(mine.type, mine.logits[m]));
  choice.divergence = measure::kl_divergence(likely.golden(), likely.mine());
  return choice;
}

}  // namespace assay::locate
