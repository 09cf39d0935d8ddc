// SPDX-License-Identifier: Apache-2.0
// A choice is a search in the running sums of a row; where a sum is within kSumTolerance of what it
// is compared with, the place beside it is a tie.
//   docs/opcheck/selection.md, "Sampling"
#include "reference/selection/sampling.hpp"
#include "tensor/sentence.hpp"

#include <algorithm>
#include <string>

namespace assay::reference {
namespace {

// Kernels look for the row's target block by block, and what they keep ends with the block that
// holds it.
constexpr int64_t kScanBlock = 16384;
constexpr double kDropped = -9999;

bool is_close(double sum, double target) { return std::fabs(sum - target) <= kSumTolerance; }

void add_tie(int64_t place, Choice* choice) {
  if (place != choice->place &&
      std::find(choice->ties.begin(), choice->ties.end(), place) == choice->ties.end())
    choice->ties.push_back(place);
}

struct Batch {
  int64_t rows = 0, columns = 0;
};
Result<Batch> batch_of(const Dims& shape) {
  if (shape.size() != 2 || shape[1] == 0)
    return fail(Errc::Invalid, "probabilities have shape ", shape, ", [batch, values] expected");
  return Batch{shape[0], shape[1]};
}

/// p with what top_k drops set to 0, and its running sums.
struct Masked {
  Batch batch;
  Wide probs;
  Wide sums;
  [[nodiscard]] double top_p(const NucleusInput& input, int64_t row) const {
    return input.top_p[input.top_p.size() == 1 ? 0 : static_cast<size_t>(row)];
  }
};
Result<Masked> masked(const NucleusInput& input) {
  ASSAY_TRY(const Batch batch, batch_of(input.sorted.values.shape));
  const auto rows = static_cast<size_t>(batch.rows);
  if (input.top_p.size() != 1 && input.top_p.size() != rows)
    return fail(Errc::Invalid, input.top_p.size(), " values of top p for ", rows, " rows");
  if (!input.top_k.empty() && input.top_k.size() != rows)
    return fail(Errc::Invalid, input.top_k.size(), " values of top k for ", rows, " rows");
  Masked result{batch, input.sorted.values, Wide(input.sorted.values.shape)};
  for (int64_t row = 0; row < batch.rows; ++row) {
    double* p = result.probs.data() + row * batch.columns;
    double* c = result.sums.data() + row * batch.columns;
    if (!input.top_k.empty()) {
      const int64_t last = input.top_k[static_cast<size_t>(row)];
      if (last < 0 || last >= batch.columns)
        return fail(Errc::Invalid, "top k ", last, " of ", batch.columns, " values");
      const double least = p[last];
      for (int64_t i = last + 1; i < batch.columns; ++i)
        if (p[i] < least) p[i] = 0;
    }
    double sum = 0;
    for (int64_t i = 0; i < batch.columns; ++i) {
      sum += p[i];
      c[i] = round_to(sum, input.sums);
    }
  }
  return result;
}

/// Sums of one row: they do not descend, unless the row holds NaN or negative numbers.
using Sums = std::span<const double>;

int64_t count_below(Sums c, double target, bool inclusive) {
  const auto end = inclusive ? std::upper_bound(c.begin(), c.end(), target)
                             : std::lower_bound(c.begin(), c.end(), target);
  return end - c.begin();
}

/// The last place whose sum stays below top_p, but within the block where the target is found.
Choice last_below(Sums c, double top_p, double fraction) {
  const auto size = static_cast<int64_t>(c.size());
  int64_t end = size;
  for (int64_t first = 0; first < size; first += kScanBlock) {
    const int64_t block_end = std::min(first + kScanBlock, size);
    if (c[static_cast<size_t>(block_end - 1)] >= top_p * fraction) {
      end = block_end;
      break;
    }
  }
  const int64_t below = count_below(c, top_p, false);
  Choice last{.place = std::min(std::max<int64_t>(below - 1, 0), end - 1), .ties = {}};
  if (below > 1 && is_close(c[static_cast<size_t>(below - 1)], top_p))
    add_tie(std::min(below - 2, end - 1), &last);
  if (below < size && is_close(c[static_cast<size_t>(below)], top_p))
    add_tie(std::min(below, end - 1), &last);
  return last;
}

}  // namespace

Result<std::vector<Choice>> multinomial(const TensorView& probs, std::span<const double> fractions,
                                        DType sums) {
  ASSAY_TRY(const Batch batch, batch_of(probs.shape));
  ASSAY_TRY(Wide c, widen(probs));
  std::vector<Choice> choices;
  for (int64_t row = 0; row < batch.rows; ++row) {
    double* values = c.data() + row * batch.columns;
    for (int64_t i = 1; i < batch.columns; ++i)
      values[i] = round_to(values[i] + values[i - 1], sums);
    const Sums row_sums(values, static_cast<size_t>(batch.columns));
    for (const double r : fractions) {
      const int64_t below = count_below(row_sums, r, true);
      Choice choice{.place = below == batch.columns ? 0 : below, .ties = {}};
      if (below > 0 && is_close(values[below - 1], r)) add_tie(below - 1, &choice);
      if (below + 1 < batch.columns && is_close(values[below], r)) add_tie(below + 1, &choice);
      // No sum is large enough, or the last one only just: the first place is what remains.
      if (is_close(values[batch.columns - 1], r)) add_tie(0, &choice);
      choices.push_back(std::move(choice));
    }
  }
  return choices;
}

Result<NucleusSample> sample_nucleus(const NucleusInput& input, std::span<const double> fractions,
                                     bool inclusive) {
  ASSAY_TRY(Masked row_values, masked(input));
  const auto [rows, columns] = row_values.batch;
  if (fractions.size() != static_cast<size_t>(rows))
    return fail(Errc::Invalid, fractions.size(), " random numbers for ", rows, " rows");
  NucleusSample sample;
  for (int64_t row = 0; row < rows; ++row) {
    const Sums c(row_values.sums.data() + row * columns, static_cast<size_t>(columns));
    const double r = fractions[static_cast<size_t>(row)];
    Choice last = last_below(c, row_values.top_p(input, row), r);
    const auto choose = [&](int64_t m) {
      const double v = c[static_cast<size_t>(m)] * r;
      return std::pair(v, std::min(count_below(c, v, inclusive), columns - 1));
    };
    Choice choice{.place = choose(last.place).second, .ties = {}};
    std::vector<int64_t> ends = last.ties;
    ends.push_back(last.place);
    for (const int64_t m : ends) {
      const auto [v, k] = choose(m);
      add_tie(k, &choice);
      if (k > 0 && is_close(c[static_cast<size_t>(k - 1)], v)) add_tie(k - 1, &choice);
      if (k + 1 < columns && is_close(c[static_cast<size_t>(k)], v)) add_tie(k + 1, &choice);
    }
    sample.choices.push_back(std::move(choice));
    sample.last.push_back(std::move(last));
  }
  sample.cumulative = std::move(row_values.sums);
  return sample;
}

Result<NucleusSample> sample_nucleus_exponential(const NucleusInput& input,
                                                 const TensorView& noise) {
  ASSAY_TRY(Masked row_values, masked(input));
  const auto [rows, columns] = row_values.batch;
  if (noise.shape != input.sorted.values.shape)
    return fail(Errc::Invalid, "noise has shape ", noise.shape, ", probabilities have ",
                input.sorted.values.shape);
  ASSAY_TRY(const Wide divisors, widen(noise));
  NucleusSample sample;
  for (int64_t row = 0; row < rows; ++row) {
    const double top_p = row_values.top_p(input, row);
    const double* p = row_values.probs.data() + row * columns;
    const double* c = row_values.sums.data() + row * columns;
    const double* exponential = divisors.data() + row * columns;
    // Two rows of quotients: with what is surely kept, and with what may be.
    double best = 0;
    double sure = 0;
    Choice choice;
    int64_t kept = 1;
    int64_t surely_kept = 1;
    int64_t maybe_kept = 1;
    for (int64_t i = 0; i < columns; ++i) {
      if (p[i] == 0) continue;  // dropped by top k
      const double quotient = p[i] / exponential[i];
      if (c[i] <= top_p) {
        kept = std::max(kept, i + 1);
        if (quotient > best) {
          best = quotient;
          choice.place = i;
        }
      }
      if (c[i] <= top_p - kSumTolerance) {
        surely_kept = std::max(surely_kept, i + 1);
        sure = std::max(sure, quotient);
      }
      if (c[i] <= top_p + kSumTolerance) maybe_kept = std::max(maybe_kept, i + 1);
    }
    // Quotients are rounded to half precision too.
    for (int64_t i = 0; i < maybe_kept; ++i) {
      if (p[i] / exponential[i] >= sure * (1 - kSumTolerance)) add_tie(i, &choice);
    }
    Choice last{.place = kept - 1, .ties = {}};
    for (int64_t i = surely_kept; i <= maybe_kept; ++i) add_tie(i - 1, &last);
    sample.choices.push_back(std::move(choice));
    sample.last.push_back(std::move(last));
  }
  sample.cumulative = std::move(row_values.sums);
  return sample;
}

Result<Wide> nucleus_log_probs(const NucleusInput& input, const Wide& cumulative,
                               std::span<const int64_t> last, int64_t size) {
  ASSAY_TRY(const Batch batch, batch_of(input.sorted.values.shape));
  if (size < 0 || size > batch.columns)
    return fail(Errc::Invalid, size, " logarithms of ", batch.columns, " probabilities");
  if (cumulative.shape != input.sorted.values.shape ||
      last.size() != static_cast<size_t>(batch.rows))
    return fail(Errc::Invalid, "sums or ends of another batch");
  Wide result(Dims{batch.rows, size}, kDropped);
  for (int64_t row = 0; row < batch.rows; ++row) {
    const int64_t m = last[static_cast<size_t>(row)];
    if (m < 0 || m >= batch.columns) return fail(Errc::Invalid, "an end beyond the row");
    const double* p = input.sorted.values.data() + row * batch.columns;
    const double sum = cumulative.data()[row * batch.columns + m];
    for (int64_t j = 0; j <= std::min(m, size - 1); ++j)
      result.data()[row * size + j] = std::log(p[j] / sum);
  }
  return result;
}

}  // namespace assay::reference
