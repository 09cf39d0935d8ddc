// SPDX-License-Identifier: Apache-2.0
// `assay part`: does the part of a command's work that is on standard input; its answer goes to
// standard output. Drivers of other machines start it (cli/part_pipe.hpp), people do not.
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "base/atomic_file.hpp"
#include "cli/cmd_compare.hpp"
#include "cli/commands.hpp"
#include "cli/custom_metrics.hpp"
#include "cli/interrupt.hpp"
#include "cli/part_pipe.hpp"
#include "compare/algorithms.hpp"
#include "compare/parts.hpp"
#include "locate/judge/operator_parts.hpp"
#include "opcheck/parts.hpp"
#include "run/part_archive.hpp"
#include "vendor/compat.hpp"

namespace assay::cli {
namespace {

Result<std::string> read_input() {
  std::string all;
  std::string piece(size_t{1} << 20, '\0');
  for (;;) {
    const ssize_t count = ::read(STDIN_FILENO, piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail(errno_error(errno, "read", "standard input"));
    if (count == 0) return all;
    all.append(piece.data(), static_cast<size_t>(count));
  }
}

struct PartRequest {
  int jobs = 0;
  uint64_t max_memory = 0;  // 0: the default of what the part asks for
};

template <typename Options>
Options options_of(const PartRequest& request) {
  Options options;
  options.jobs = request.jobs;
  if (request.max_memory > 0) options.max_memory = request.max_memory;
  options.interrupted = &interrupted();
  return options;
}

Result<std::string> answer_to(const std::string& body, const PartRequest& request) {
  ASSAY_TRY(const auto read, settings_of(as_bytes(body)));
  const auto& [settings, part] = read;
  ASSAY_TRY(const auto algorithms, compare::load_algorithms(settings.custom_algorithms));
  const std::string kind = run::mark_of(part);
  if (kind == compare::kPairsMark) {
    ASSAY_TRY(const vendor::Compat compat, vendor::compat(settings.compat));
    auto options = options_of<compare::CompareOptions>(request);
    options.conventions = compat.conventions;
    options.algorithms = algorithms;
    return compare::run_part(part, std::move(options));
  }
  if (kind == opcheck::kCasesMark) {
    auto options = options_of<opcheck::CheckOptions>(request);
    options.custom = custom_metrics(algorithms);
    return opcheck::run_part(part, std::move(options));
  }
  if (kind == locate::kOperatorsMark)
    return locate::run_part(part, options_of<locate::OwnErrorOptions>(request));
  return fail(Errc::Invalid, "the part is of another version of assay");
}

int run_part_command(const PartRequest& request) {
  const InterruptGuard interrupt_guard;
  const Result<std::string> body = read_input();
  if (!body) return report_error(body.error());
  const Result<std::string> answer = answer_to(*body, request);
  if (!answer) return report_error(answer.error());
  const Status written = write_all(STDOUT_FILENO, as_bytes(*answer), "standard output");
  return written ? kSame : report_error(written.error());
}

}  // namespace

Command part_command(const Caller& caller) {
  Command command(caller, "Does the part of a command's work that is on standard input");
  const auto request = std::make_shared<PartRequest>();
  add_jobs(command, request->jobs);
  command.add("--max-memory BYTES",
              "Of file pages, default 256MiB; of working tensors, where operators are checked",
              parsed_into(request->max_memory, parse_bytes));
  command.example = "assay part < part > answer";
  command.run = [request](const ParsedArguments&) { return run_part_command(*request); };
  return command;
}

}  // namespace assay::cli
