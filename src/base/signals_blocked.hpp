// SPDX-License-Identifier: Apache-2.0
// For threads of ours in other people's processes: the host's signals are for its own threads.
#pragma once
#include <pthread.h>

#include <csignal>

namespace assay {

/// All signals of the calling thread, and of threads that it starts meanwhile.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~AllSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace assay
