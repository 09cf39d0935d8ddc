// SPDX-License-Identifier: Apache-2.0
// Runs a program with ATB's overflow check on and says which kernels overflowed.
// Source: Ascend/msit: msit/components/llm/msit_llm/errcheck/process.py
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>

#include "base/text.hpp"
#include "cli/assignments.hpp"
#include "cli/commands.hpp"
#include "cli/dump/dump_environment.hpp"
#include "cli/dump/dump_places.hpp"
#include "cli/dump/probe_library.hpp"
#include "cli/dump/voice.hpp"

namespace assay::cli {
namespace {

constexpr int kNotRun = 1;

std::vector<EnvironmentChange> overflow_environment(const std::string& output, bool stop,
                                                    const std::string& log_level,
                                                    const std::string& probe) {
  return {{"ATB_CHECK_TYPE", "1"},
          {"ATB_OUTPUT_DIR", output},
          {"ATB_EXIT", stop ? std::optional<std::string>("1") : std::nullopt},
          {"ATB_AIT_LOG_LEVEL", probe_log_level(log_level)},
          {"ATB_DUMP_TYPE", std::nullopt},
          {"ATB_DUMP_CONFIG", std::nullopt},
          {"LD_PRELOAD", preload_value(probe, environment("LD_PRELOAD"))}};
}

/// Result files and when each was last written, in nanoseconds since 1970.
std::map<std::string, int64_t> result_files(const std::string& folder) {
  std::map<std::string, int64_t> files;
  DIR* listing = ::opendir(folder.c_str());
  if (listing == nullptr) return files;
  while (const dirent* entry = ::readdir(listing)) {
    const std::string name = entry->d_name;
    if (!name.starts_with("msit_overflow_res_") || !name.ends_with(".txt")) continue;
    struct stat info{};
    if (::stat((folder + "/" + name).c_str(), &info) == 0)
      files[folder + "/" + name] =
          int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  }
  ::closedir(listing);
  return files;
}

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

/// Says what this run added to the result files; returns the number of findings.
size_t report_findings(const std::string& folder, const std::map<std::string, int64_t>& before,
                       const Voice& voice) {
  // of each process: what follows an overflow is mostly its consequence
  constexpr size_t kShown = 5;
  size_t count = 0;
  for (const auto& [path, written] : result_files(folder)) {
    const auto old = before.find(path);
    if (old != before.end() && old->second == written) continue;
    const std::vector<std::string> lines = lines_of(path);
    for (size_t i = 0; i < std::min(lines.size(), kShown); ++i) voice.warning(lines[i]);
    if (lines.size() > kShown)
      voice.warning("and " + std::to_string(lines.size() - kShown) + " more behind these");
    voice.info("the findings are in " + path);
    count += lines.size();
  }
  if (count == 0) voice.info("no overflow was reported");
  return count;
}

struct ErrcheckRequest {
  DumpRequest program;  // what is run, where results go
  Words types;
  bool stop = false;  // at the first overflow
};

int run_errcheck(ErrcheckRequest& request, const ParsedArguments& parsed) {
  DumpRequest& program = request.program;
  const Voice voice(program.name, program.log_level);
  const auto failed = [&](const Error& error) {
    voice.error(error);
    return kNotRun;
  };
  if (const Status read = read_program(parsed, &program); !read) return failed(read.error());
  const ScopedEnvironment environment(program.assignments);
  if (program.command.empty()) return kSame;
  voice.old_warning("Please ensure that your execution command is secure.");
  const Result<DumpPlaces> places = choose_places(program);
  if (!places) return failed(places.error());
  const Result<ProbeLibrary> probe =
      find_probe_library(program.probe_library, atb_uses_cxx11_strings().value_or(false));
  if (!probe) return failed(probe.error());

  const std::map<std::string, int64_t> before = result_files(places->output);
  const Result<ChildEnd> end = run_program(
      program.command,
      overflow_environment(places->output, request.stop, program.log_level, probe->path));
  if (!end) return failed(end.error());
  const size_t findings = report_findings(places->output, before, voice);
  const bool found = program.name == DumpName::Assay && findings > 0;
  return found && end->exit_status == 0 ? kDiffers : end->exit_status;
}

}  // namespace

Command errcheck_command(const Caller& caller) {
  Command command(caller,
                  "Runs a program and names the kernels whose results overflowed (Inf or NaN).");
  const auto request = std::make_shared<ErrcheckRequest>();
  request->program.name = caller.name;
  add_program_row(command, "The program to run and its arguments in one string.",
                  request->program.exec);
  command.add("--type {overflow} ...", "What to check, default: overflow", request->types);
  command.add("--output, -o OUTPUT", "Folder for the result, default './'.",
              request->program.output);
  command.add("--exit, -exit", "End the program's run at the first overflow.", request->stop);
  add_log_level(command, request->program.log_level);
  command.add("--probe-library FILE", "Another ATB probe library than our own.",
              request->program.probe_library);
  command.example = caller.program + (caller.is_ours() ? " -o out -- python run.py"
                                                       : " -o out --exec \"python run.py\"");
  command.run = [request](const ParsedArguments& parsed) { return run_errcheck(*request, parsed); };
  return command;
}

}  // namespace assay::cli
