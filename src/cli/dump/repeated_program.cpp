// SPDX-License-Identifier: Apache-2.0
// Runs `assay dump` in this process for each run, with digests and operators; an incomplete capture
// is an error, and folders that nobody keeps are removed.
#include "cli/dump/repeated_program.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>

#include "base/atomic_file.hpp"
#include "base/paths.hpp"
#include "base/text.hpp"
#include "cli/assignments.hpp"
#include "cli/commands.hpp"
#include "cli/dump/dump_request.hpp"
#include "cli/interrupt.hpp"
#include "run/open.hpp"

namespace assay::cli {
namespace {

/// Standard output is standard error for as long as it lives: a report must not be mixed with what
/// programs print.
class OutputToError {
 public:
  OutputToError() {
    std::fflush(stdout);
    saved_ = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    if (saved_ >= 0) ::dup2(STDERR_FILENO, STDOUT_FILENO);
  }
  ~OutputToError() {
    if (saved_ < 0) return;
    std::fflush(stdout);
    ::dup2(saved_, STDOUT_FILENO);
    ::close(saved_);
  }
  OutputToError(const OutputToError&) = delete;
  OutputToError& operator=(const OutputToError&) = delete;

 private:
  int saved_ = -1;
};

/// What libraries ask for the number of their threads.
std::vector<std::pair<std::string, std::string>> thread_variables(int threads) {
  std::vector<std::pair<std::string, std::string>> variables;
  if (threads == 0) return variables;
  for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"})
    variables.emplace_back(name, std::to_string(threads));
  return variables;
}

Words dump_words(const RepeatedProgram& program, const RunChoice& choice,
                 const std::string& folder) {
  Words words = {"-o",       folder,     "--host",      program.host, "--level",
                 "operator", "--digest", "--log-level", "warning",    "--steps"};
  words.push_back(choice.steps.empty() ? program.steps : choice.steps);
  if (!choice.with_data) words.emplace_back("--only-save-desc");
  words.insert(words.end(), {"--weights", "--caches"});
  if (program.seed) words.insert(words.end(), {"-seed", std::to_string(*program.seed)});
  if (!choice.modules.empty()) words.insert(words.end(), {"--modules", choice.modules});
  words.emplace_back("--");
  for (std::string word : program.command) {
    const std::string mark = "{threads}";
    if (const size_t at = word.find(mark); at != std::string::npos && choice.threads > 0)
      word.replace(at, mark.size(), std::to_string(choice.threads));
    words.push_back(std::move(word));
  }
  return words;
}

Status run_captured(const Words& words, int threads) {
  const OutputToError output;
  const ScopedEnvironment environment(thread_variables(threads));
  const int status = run_command(dump_command({DumpName::Assay, "assay dump"}), words);
  if (status == kInterrupted) {
    interrupted() = true;
    return fail(Errc::Interrupted, "interrupted");
  }
  if (status == 0) return {};
  return fail(Errc::Invalid, "the program ended with status " + std::to_string(status));
}

std::string default_folder(std::string_view command) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y%m%d_%H%M%S", &parts);
  return "assay_" + std::string(command) + "_" + text;
}

}  // namespace

Result<RunFolders> RunFolders::make(const std::string& path, std::string_view command) {
  if (path.empty()) {
    ASSAY_TRY(std::string made, make_new_directory(default_folder(command), 0750));
    return RunFolders(std::move(made));
  }
  if (is_taken(path))
    return fail(
        Error{Errc::Usage, path, std::nullopt, "is there already; give another folder with -o"});
  ASSAY_TRY_STATUS(make_directories(path, 0750));
  return RunFolders(path);
}

RunFolders::RunFolders(RunFolders&& other) noexcept
    : path_(std::exchange(other.path_, {})), is_kept_(other.is_kept_) {}

RunFolders::~RunFolders() {
  std::error_code ignored;  // what cannot be removed stays, and is no reason to end otherwise
  if (!path_.empty() && !is_kept_) std::filesystem::remove_all(path_, ignored);
}

std::string RunFolders::folder(std::string_view name) const {
  return path_ + (path_.ends_with('/') ? "" : "/") + std::string(name);
}

void RunFolders::remove(std::string_view name) const {
  std::error_code ignored;
  std::filesystem::remove_all(folder(name), ignored);
}

Result<std::shared_ptr<const run::Run>> capture_run(const RepeatedProgram& program,
                                                    const RunChoice& choice,
                                                    const std::string& folder) {
  ASSAY_TRY_STATUS(make_directories(folder, 0750));
  ASSAY_TRY_STATUS(run_captured(dump_words(program, choice, folder), choice.threads));
  Result<run::Run> run = run::open_run(folder);
  if (!run) return fail(Errc::Invalid, "nothing was captured of the program");
  const bool has_digest = std::ranges::any_of(
      run->records, [](const run::TensorRecord& one) { return one.digest.has_value(); });
  if (run->operations.empty() || !has_digest)
    return fail(Errc::Invalid,
                "no operator with a digest was captured; PyTorch and ggml programs have them");
  if (!run->coverage.complete)
    return fail(Errc::Invalid, "the capture of the program is not complete");
  return std::make_shared<const run::Run>(*std::move(run));
}

Result<std::vector<std::string>> program_words(const ParsedArguments& parsed,
                                               const std::string& exec) {
  std::vector<std::string> words = parsed.command;
  if (!parsed.has_command) {
    ASSAY_TRY(words, split_command(exec));
  }
  if (words.empty() || words[0].empty()) return fail(Errc::Usage, "expected a program behind '--'");
  return words;
}

}  // namespace assay::cli
