// SPDX-License-Identifier: Apache-2.0
// The command `assay dump` and its old names: chooses places and probes, runs the program with
// them, and reports what was captured.   docs/commands/dump.md
#include "cli/assignments.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>

#include "base/atomic_file.hpp"
#include "cli/answer.hpp"
#include "cli/commands.hpp"
#include "cli/dump/dump_environment.hpp"
#include "cli/dump/dump_places.hpp"
#include "cli/dump/dump_results.hpp"
#include "cli/dump/probe_library.hpp"
#include "cli/dump/voice.hpp"

namespace assay::cli {
namespace {

constexpr int kNotRun = 1;

Result<DumpLibraries> choose_libraries(const DumpRequest& request, const Voice& voice) {
  DumpLibraries libraries;
  const std::optional<bool> cxx11 = atb_uses_cxx11_strings();
  if (request.captures_atb()) {
    if (cxx11)
      voice.old_info(std::string("Info detected from ATB so is_use_cxx11: ") +
                     (*cxx11 ? "True" : "False"));
    ASSAY_TRY(const ProbeLibrary probe,
              find_probe_library(request.probe_library, cxx11.value_or(false)));
    libraries.probe = probe.path;
    voice.old_info("Append save_tensor_so_path: " + probe.path + " to LD_PRELOAD");
  }
  if (request.captures_torch()) {
    const std::string folder = own_library_folder();
    if (folder.empty() || ::access((folder + "/python/sitecustomize.py").c_str(), R_OK) != 0) {
      return fail(Error{
          Errc::NotFound, folder, std::nullopt,
          "lib/assay/python/sitecustomize.py is missing; install assay again, or give --host atb"});
    }
    libraries.python_folder = folder + "/python";
  }
  if (request.captures_ggml()) {
    const std::string folder = own_library_folder();
    const std::string path = folder + "/libggml_probe.so";
    const bool found = !folder.empty() && ::access(path.c_str(), R_OK) == 0;
    if (!found && request.host == "ggml") {
      return fail(Error{Errc::NotFound, path, std::nullopt,
                        "lib/assay/libggml_probe.so is missing; install assay again"});
    }
    if (found && path.find_first_of(" :\t\n") != std::string::npos) {
      return fail(Error{
          Errc::Invalid, path, std::nullopt,
          "LD_PRELOAD cannot hold this path: it has blanks or colons; install assay elsewhere"});
    }
    if (found) libraries.ggml_probe = path;
  }
  return libraries;
}

Answer answer_of(const DumpRequest& request, const DumpResults& results,
                 const std::vector<std::string>& lines, int status) {
  Answer answer{"dump", "captured", {}, next_command(request, results), status};
  if (!results.captured_anything())
    answer.outcome = "nothing_captured";
  else if (!results.warnings.empty())
    answer.outcome = "incomplete";
  const bool lines_tell = results.captured_anything() || results.nothing_was_asked();
  const std::vector<std::string>& told = lines_tell ? lines : results.warnings;
  answer.sentence = told.empty() ? "nothing was captured" : told.front();
  return answer;
}

JsonObject json_of(const Answer& answer, const DumpResults& results, int program_status) {
  uint64_t tensors = formats::sum_of_counters(results.processes).tensors_written;
  uint64_t steps = 0;
  for (const TorchReport& report : results.torch) {
    tensors += report.tensors;
    steps = std::max(steps, report.steps);
  }
  for (const GgmlReport& report : results.ggml) {
    tensors += report.nodes;
    steps = std::max(steps, report.steps);
  }
  return std::move(answer_json(answer)
                       .add("run", folder_of_run(results))
                       .add("program_status", program_status)
                       .add("tensors", tensors)
                       .add("steps", steps)
                       .add_json("warnings", json_texts(results.warnings)));
}

/// The program was not started.
int report_not_run(const DumpRequest& request, const Voice& voice, const Error& error,
                   const std::string& next = "assay help dump") {
  voice.error(error);
  if (request.name != DumpName::Assay) return kNotRun;
  return print_failure({"dump", "error", error.describe(), next, kNotRun}, request.json);
}

int run_dump(const DumpRequest& request, const Voice& voice) {
  const auto failed = [&](const Error& error) { return report_not_run(request, voice, error); };
  const Result<DumpPlaces> places = choose_places(request);
  if (!places) return failed(places.error());
  const Result<DumpLibraries> libraries = choose_libraries(request, voice);
  if (!libraries) return report_not_run(request, voice, libraries.error(), "assay doctor");
  if (const Status made = make_directories(places->scratch, 0750); !made)
    return failed(made.error());

  DumpRun run;
  run.started = std::time(nullptr);
  run.program_file = find_program(request.command[0]);
  run.earlier = files_of_earlier_runs(places->output + "/" + places->dump_name);
  ProcessWatch watch(places->scratch);
  run.watch = &watch;
  const Result<ChildEnd> end = run_program(
      request.command, dump_environment(request, *places, *libraries, environment("LD_PRELOAD"),
                                        environment("PYTHONPATH")));
  if (!end) {
    ::rmdir(places->scratch.c_str());
    return failed(end.error());
  }
  watch.stop();
  run.end = *end;
  const DumpResults results = finish_dump(request, *places, run);
  if (end->signal != 0) voice.warning("the program " + end_text(end->exit_status, end->signal));
  const bool lacking =
      !results.warnings.empty() || (!results.captured_anything() && !results.nothing_was_asked());
  const int status =
      request.require && lacking && end->exit_status == 0 ? kCannotJudge : end->exit_status;
  const std::vector<std::string> lines = summary_lines(request, results);
  if (request.json) {
    const Answer answer = answer_of(request, results, lines, status);
    return print_answer(answer, {}, true, json_of(answer, results, end->exit_status));
  }
  for (const std::string& line : lines) voice.info(line);
  for (const std::string& warning : results.warnings) voice.warning(warning);
  if (request.name == DumpName::Assay) voice.info("next: " + next_command(request, results));
  return status;
}

int start(const ParsedArguments& parsed, DumpRequest& request) {
  const Voice voice(request.name, request.log_level);
  if (const Status read = read_program(parsed, &request); !read) {
    return report_not_run(request, voice, read.error());
  }
  if (request.name != DumpName::Assay) {
    // The program's own files get these permissions too, as under the original.
    ::umask(027);
    if (::geteuid() == 0)
      voice.warning(
          "msit is being run as root. To avoid security risks, it is recommended to switch to a "
          "regular user to run it.");
  }
  const ScopedEnvironment environment(request.assignments);
  if (request.command.empty()) return kSame;
  voice.old_warning("Please ensure that your execution command is secure.");
  return run_dump(request, voice);
}

}  // namespace

Command dump_command(const Caller& caller) {
  const auto request = std::make_shared<DumpRequest>();
  Command command = dump_options(caller, *request);
  command.ends_with_next = caller.is_ours();
  command.check = [request](const ParsedArguments& parsed) {
    return complete_request(parsed, request.get());
  };
  command.run = [request](const ParsedArguments& parsed) { return start(parsed, *request); };
  return command;
}

}  // namespace assay::cli
