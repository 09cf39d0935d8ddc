// SPDX-License-Identifier: Apache-2.0
// Results to stdout, for people and for pipes.
#pragma once
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>

#include "base/atomic_file.hpp"
#include "base/text.hpp"

namespace assay::cli {

/// Collects text and writes it in large pieces, without what a terminal would obey (names come from
/// files). A reader that has seen enough (`| head`) is no error: what comes after is dropped
/// silently, even where SIGPIPE is ignored.
class Output {
 public:
  void add(std::string_view text) {
    buffer_ += text;
    if (buffer_.size() > kFlushBytes) flush();
  }
  void line(std::string_view text) {
    add(text);
    add("\n");
  }
  /// The reader is gone: stop working for it.
  [[nodiscard]] bool closed() const { return closed_; }

  /// errors  NoSpace | Io, of any write so far
  [[nodiscard]] Status finish() {
    flush();
    return status_;
  }

 private:
  static constexpr size_t kFlushBytes = 1 << 16;
  void flush() {
    if (!closed_) {
      Status written =
          write_all(STDOUT_FILENO, as_bytes(printable_screen(buffer_)), "standard output");
      if (!written) {
        closed_ = true;
        if (errno != EPIPE) status_ = std::move(written);
      }
    }
    buffer_.clear();
  }
  std::string buffer_;
  bool closed_ = false;
  Status status_;
};

}  // namespace assay::cli
