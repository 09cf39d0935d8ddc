// SPDX-License-Identifier: Apache-2.0
// A program that is run again and again, each run captured into a folder of its own.
//   docs/commands/repeat.md
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "cli/argparse.hpp"
#include "run/run.hpp"

namespace assay::cli {

/// The folders of the runs, in one that is made for them and goes with its content unless somebody
/// keeps it.
class RunFolders {
 public:
  /// path     empty: `assay_repeat_20260105_100000`, in UTC, or the next name that is free
  /// command  "repeat"
  /// errors   Usage: the folder is there already
  [[nodiscard]] static Result<RunFolders> make(const std::string& path, std::string_view command);
  RunFolders(RunFolders&& other) noexcept;
  RunFolders(const RunFolders&) = delete;
  RunFolders& operator=(const RunFolders&) = delete;
  ~RunFolders();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string folder(std::string_view name) const;
  void remove(std::string_view name) const;
  void keep() { is_kept_ = true; }

 private:
  explicit RunFolders(std::string path) : path_(std::move(path)) {}
  std::string path_;
  bool is_kept_ = false;
};

struct RepeatedProgram {
  std::vector<std::string> command;
  std::string host = "auto";
  std::string steps = "all";
  std::optional<std::int64_t> seed = {};
};

struct RunChoice {
  int threads = 0;           // 0: as the program chooses
  bool with_data = false;    // not only digests
  std::string modules = {};  // pattern; empty: all
  std::string steps = {};    // other steps than the program's
};

/// Runs the program once. What it prints to standard output goes to standard error.
///
/// errors  Interrupted | Invalid: it failed, or nothing of it was captured that can be compared
[[nodiscard]] Result<std::shared_ptr<const run::Run>> capture_run(const RepeatedProgram& program,
                                                                  const RunChoice& choice,
                                                                  const std::string& folder);

/// The words behind "--", or those of `exec`.
/// errors  Usage: there are none | Invalid: as split_command()
[[nodiscard]] Result<std::vector<std::string>> program_words(const ParsedArguments& parsed,
                                                             const std::string& exec);

}  // namespace assay::cli
