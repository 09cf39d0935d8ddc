// SPDX-License-Identifier: Apache-2.0
// One row of a softmax in fp64, the inner loop of attention.
#pragma once
#include <cstdint>

namespace assay::reference {

/// Largest value; NaN is passed over, -Inf when there is no other.
[[nodiscard]] double row_maximum(const double* values, int64_t count);

/// values[i] = e^(values[i] - maximum); returns their sum. Precondition: no value above maximum, so all
/// results lie in [0, 1]. Below e^-708 (2.2e-308) the result is 0; NaN stays NaN. Relative error below 4e-16.
double exponentials(double* values, int64_t count, double maximum);

/// The same by std::exp, element by element.
double exponentials_plain(double* values, int64_t count, double maximum);

/// values[i] *= factor
void scale_row(double* values, int64_t count, double factor);
/// values[i] += factor * terms[i]
void add_row(double* values, const double* terms, int64_t count, double factor);

}  // namespace assay::reference
