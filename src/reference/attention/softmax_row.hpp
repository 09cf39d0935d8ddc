// SPDX-License-Identifier: Apache-2.0
// One row of a softmax in fp64, the inner loop of attention.
#pragma once
#include <cstdint>
#include <limits>

namespace assay::reference {

/// Largest value; NaN is passed over, -Inf when there is no other.
[[nodiscard]] double row_maximum(const double* values, int64_t count);

/// values[i] = e^(values[i] - maximum); returns their sum. Precondition: no value above maximum, so
/// all results lie in [0, 1]. Below e^-708 (2.2e-308) the result is 0; NaN stays NaN. Relative
/// error below 4e-16.
double exponentials(double* values, int64_t count, double maximum);

/// What a softmax divided by.
struct SoftmaxSum {
  double largest;  // of all scores
  double sum;      // of e^(score - largest)
};
/// Scores become e^(score - largest) / sum in place. A NaN, or nothing but -Inf, makes the whole
/// row NaN.
/// sink  one more score, which has no place in the row
SoftmaxSum softmax_row(double* scores, int64_t count,
                       double sink = -std::numeric_limits<double>::infinity());

/// exponentials() by std::exp, element by element.
double exponentials_plain(double* values, int64_t count, double maximum);

/// values[i] *= factor
void scale_row(double* values, int64_t count, double factor);
/// values[i] += factor * terms[i]
void add_row(double* values, const double* terms, int64_t count, double factor);

}  // namespace assay::reference
