// SPDX-License-Identifier: Apache-2.0
#include "cli/dump/cmd_dump.hpp"
#include "cli/assignments.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "base/atomic_file.hpp"
#include "cli/command.hpp"
#include "cli/dump/dump_environment.hpp"
#include "cli/dump/dump_places.hpp"
#include "cli/dump/dump_results.hpp"
#include "cli/dump/probe_library.hpp"
#include "cli/dump/voice.hpp"

namespace assay::cli {
namespace {

constexpr int kNotRun = 1;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

/// A usage error in the name's own words.
int usage_error(DumpName name, const Grammar& grammar, const std::string& message) {
  if (name != DumpName::Assay) return argparse_error(grammar, message);
  return report_error(message, grammar.program + " --help lists the options");
}

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

int run_dump(const DumpRequest& request, const Voice& voice) {
  const auto failed = [&](const Error& error) {
    voice.error(error);
    return kNotRun;
  };
  const Result<DumpPlaces> places = choose_places(request);
  if (!places) return failed(places.error());
  const Result<DumpLibraries> libraries = choose_libraries(request, voice);
  if (!libraries) return failed(libraries.error());
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
  for (const std::string& line : summary_lines(request, results)) voice.info(line);
  for (const std::string& warning : results.warnings) voice.warning(warning);
  const bool lacking = !results.captured_anything() || !results.warnings.empty();
  return request.require && lacking && end->exit_status == 0 ? kCannotJudge : end->exit_status;
}

}  // namespace

int dump_main(DumpName name, const std::string& program, const std::vector<std::string>& words) {
  const Grammar grammar = dump_grammar(name, program);
  const Result<ParsedArguments> parsed = parse_arguments(grammar, words);
  if (!parsed) return usage_error(name, grammar, parsed.error().message);
  if (parsed->given("--help")) {
    std::fputs(help_text(grammar).c_str(), stdout);
    return kSame;
  }
  const Voice voice(name, parsed->text("--log-level", "info"));
  Result<DumpRequest> request = dump_request(name, *parsed);
  if (!request) {
    if (request.error().code == Errc::Usage)
      return usage_error(name, grammar, request.error().message);
    voice.error(request.error());
    return kNotRun;
  }
  if (name != DumpName::Assay) {
    // The program's own files get these permissions too, as under the original.
    ::umask(027);
    if (::geteuid() == 0)
      voice.warning(
          "msit is being run as root. To avoid security risks, it is recommended to switch to a "
          "regular user to run it.");
  }
  const ScopedEnvironment environment(parsed->has_command
                                          ? std::vector<std::pair<std::string, std::string>>()
                                          : take_assignments(&request->command));
  if (request->command.empty()) return kSame;
  voice.old_warning("Please ensure that your execution command is secure.");
  return run_dump(*request, voice);
}

}  // namespace assay::cli
