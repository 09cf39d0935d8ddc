// SPDX-License-Identifier: Apache-2.0
// `assay part`: compares the part of a comparison on standard input; its rows go to standard
// output. Drivers of other machines start it (cli/part_pipe.hpp), people do not.
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "base/atomic_file.hpp"
#include "cli/commands.hpp"
#include "cli/interrupt.hpp"
#include "cli/part_pipe.hpp"
#include "compare/algorithms.hpp"
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

Result<std::string> answer_to(const std::string& body, const compare::CompareOptions& given) {
  ASSAY_TRY(const auto read, settings_of(as_bytes(body)));
  const auto& [settings, pairs] = read;
  ASSAY_TRY(const vendor::Compat compat, vendor::compat(settings.compat));
  compare::CompareOptions options = given;
  options.conventions = compat.conventions;
  if (!settings.custom_algorithms.empty()) {
    ASSAY_TRY(options.algorithms, compare::load_algorithms(settings.custom_algorithms));
  }
  return compare::run_part(pairs, std::move(options));
}

int run_part_command(compare::CompareOptions options) {
  const InterruptGuard interrupt_guard;
  options.interrupted = &interrupted();
  const Result<std::string> body = read_input();
  if (!body) return report_error(body.error());
  const Result<std::string> answer = answer_to(*body, options);
  if (!answer) return report_error(answer.error());
  const Status written = write_all(STDOUT_FILENO, as_bytes(*answer), "standard output");
  return written ? kSame : report_error(written.error());
}

}  // namespace

Command part_command(const Caller& caller) {
  Command command(caller, "Compares the part of a comparison on standard input");
  const auto options = std::make_shared<compare::CompareOptions>();
  add_jobs(command, options->jobs);
  command.add("--max-memory BYTES", "File pages kept in memory; default 256MiB",
              parsed_into(options->max_memory, parse_bytes));
  command.example = "assay part < pairs > rows";
  command.run = [options](const ParsedArguments&) { return run_part_command(*options); };
  return command;
}

}  // namespace assay::cli
