// SPDX-License-Identifier: Apache-2.0
// Several ranks of one model: processes that add up their partial results through shared memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace atb_host {

/// Made before the ranks are forked. All of them must make the same calls in the same order, or they wait for ever;
/// who forked them ends the others when one dies.
class Peers {
 public:
  /// errors: std::system_error when there is no memory to share.
  Peers(int64_t ranks, size_t most_elements);
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  /// Replaces `values` with the sum over the first `counted` ranks, added in their order: the same bits on each of them.
  void all_reduce(int64_t rank, std::vector<float>& values, int64_t counted);

 private:
  struct Shared;
  float* slot(int64_t rank) const;

  size_t most_elements_;
  Shared* shared_;  // mapped until the process ends
};

}  // namespace atb_host
