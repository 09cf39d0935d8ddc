// SPDX-License-Identifier: Apache-2.0
// A shared library as a user of -alg FILE.so:FUNC writes it; algorithms_test.cpp loads it.
#include <cmath>
#include <cstddef>
#include <cstdio>

extern "C" {

[[gnu::visibility("default")]] int largest_difference(const float* golden, const float* my,
                                                      size_t n, double* value, char* msg,
                                                      size_t cap) {
  size_t place = 0;
  for (size_t i = 0; i < n; ++i) {
    const double difference = std::fabs(double{my[i]} - double{golden[i]});
    if (difference > *value) {
      *value = difference;
      place = i;
    }
  }
  std::snprintf(msg, cap, "at %zu", place);
  return 0;
}

[[gnu::visibility("default")]] int always_fails(const float*, const float*, size_t, double*, char*,
                                                size_t) {
  return 7;
}

}  // extern "C"
