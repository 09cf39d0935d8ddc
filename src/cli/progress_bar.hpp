// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <unistd.h>

#include <cstdio>

namespace assay::cli {

/// One line on stderr, rewritten in place and gone at the end; nothing when stderr is no terminal.
class ProgressBar {
 public:
  ProgressBar() : shown_(::isatty(STDERR_FILENO) == 1) {}
  ~ProgressBar() {
    if (drawn_) std::fprintf(stderr, "\r\033[K");
  }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(size_t done, size_t total) {
    const size_t percent = total == 0 ? 100 : done * 100 / total;
    if (!shown_ || percent == last_percent_) return;
    last_percent_ = percent;
    drawn_ = true;
    const int filled = static_cast<int>(percent * 30 / 100);
    std::fprintf(stderr, "\r[%.*s%.*s] %zu/%zu", filled, "##############################",
                 30 - filled, "..............................", done, total);
    std::fflush(stderr);
  }

 private:
  bool shown_;
  bool drawn_ = false;
  size_t last_percent_ = 101;
};

}  // namespace assay::cli
