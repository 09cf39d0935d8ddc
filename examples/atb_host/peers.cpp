// SPDX-License-Identifier: Apache-2.0
#include "peers.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>

namespace atb_host {

// Followed by one slot of floats a rank.
struct alignas(64) Peers::Shared {
  pthread_barrier_t barrier;
};

Peers::Peers(int64_t ranks, size_t most_elements) : most_elements_(most_elements) {
  const size_t bytes = sizeof(Shared) + static_cast<size_t>(ranks) * most_elements * sizeof(float);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  shared_ = new (memory) Shared;
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared_->barrier, &attributes, static_cast<unsigned>(ranks));
  pthread_barrierattr_destroy(&attributes);
}

float* Peers::slot(int64_t rank) const {
  return reinterpret_cast<float*>(shared_ + 1) + static_cast<size_t>(rank) * most_elements_;
}

void Peers::all_reduce(int64_t rank, std::vector<float>& values, int64_t counted) {
  std::copy(values.begin(), values.end(), slot(rank));
  pthread_barrier_wait(&shared_->barrier);
  std::fill(values.begin(), values.end(), 0.0F);
  for (int64_t other = 0; other < counted; ++other) {
    const float* theirs = slot(other);
    for (size_t i = 0; i < values.size(); ++i) values[i] += theirs[i];
  }
  pthread_barrier_wait(&shared_->barrier);  // nobody writes the next values before all have read
}

}  // namespace atb_host
