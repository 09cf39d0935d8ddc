// SPDX-License-Identifier: Apache-2.0
// What captured programs print, on its way to our standard error, so that standard output holds the
// gate's result alone.
#pragma once
#include <atomic>
#include <deque>
#include <string>
#include <thread>
#include <vector>

namespace assay::cli {

/// While it lives, standard error of this process and its programs, and standard output unless that
/// is to stay, passes through here; its last lines are kept.
class ProgramOutput {
 public:
  explicit ProgramOutput(bool show_output);
  ~ProgramOutput();
  ProgramOutput(const ProgramOutput&) = delete;
  ProgramOutput& operator=(const ProgramOutput&) = delete;

  /// Puts both streams back and returns the last lines.
  std::vector<std::string> finish();

 private:
  void pass_on();
  void keep(std::string_view text);

  int standard_output_ = -1, standard_error_ = -1;  // as they were
  int ends_[2] = {-1, -1};                          // of the pipe
  std::atomic<bool> over_ = false;
  std::thread reader_;
  std::deque<std::string> lines_ = {""};  // the last one has no end yet
};

}  // namespace assay::cli
