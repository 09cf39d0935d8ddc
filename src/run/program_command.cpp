// SPDX-License-Identifier: Apache-2.0
// The words of the command are JSON lists in the properties host.command.*, of earlier versions in
// host.program. Folder and variables are written only where they differ from this process's.
#include "run/program_command.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "base/numbers.hpp"
#include "base/shell_words.hpp"
#include "base/text.hpp"
#include "run/torch_names.hpp"

namespace assay::run {
namespace {

constexpr std::string_view kCommand = "host.command.";
constexpr std::string_view kUnknownLauncher = "LAUNCHER";

/// The words of a list in the manifest, quoted; nothing where it has no such list.
std::optional<std::string> quoted_words(const Run& run, const std::string& property) {
  const auto found = run.properties.find(property);
  if (found == run.properties.end()) return std::nullopt;
  const nlohmann::json words = nlohmann::json::parse(found->second, nullptr, false);
  if (!words.is_array()) return std::nullopt;
  std::string command;
  for (const nlohmann::json& word : words) {
    if (!word.is_string()) return std::nullopt;
    command += (command.empty() ? "" : " ") + shell_quote(word.get<std::string>());
  }
  return command;
}

std::optional<std::string> words_of(const Run& run, std::string_view part) {
  return quoted_words(run, std::string(kCommand) + std::string(part));
}

/// Processes of the job that a run is of, as far as it tells.
size_t processes_of(const Run& run) {
  const auto said = run.properties.find("host.world_size");
  const size_t world =
      said == run.properties.end() ? 1 : parse_number<size_t>(said->second).value_or(1);
  std::set<int> ranks;
  for (const TensorRecord& record : run.records) ranks.insert(record.rank);
  return std::max(world, ranks.size());
}

/// The class of the model; empty where there are several, or none is known.
std::string model_of(const Run& run) {
  if (!run.has(Trait::AtenOperators) || !run.topology || run.topology->type == kModelsType)
    return {};
  return run.topology->type;
}

/// "env -C /there NAME=value ", of what differs from this process; empty when nothing does.
std::string surroundings(const Run& run) {
  std::string text;
  const auto folder = run.properties.find(std::string(kCommand) + "folder");
  char here[4096];
  if (folder != run.properties.end() && ::getcwd(here, sizeof(here)) != nullptr &&
      folder->second != here)
    text += "-C " + shell_quote(folder->second) + " ";
  const std::string variable = std::string(kCommand) + "environment.";
  for (auto one = run.properties.lower_bound(variable);
       one != run.properties.end() && one->first.starts_with(variable); ++one) {
    const std::string name = one->first.substr(variable.size());
    const char* now = std::getenv(name.c_str());
    if (now == nullptr || one->second != now) text += shell_quote(name + "=" + one->second) + " ";
  }
  return text.empty() ? text : "env " + text;
}

/// What stands in front of `assay dump`, with a blank behind it.
std::string launcher_of(const Run& run) {
  const std::optional<std::string> words = words_of(run, "launcher");
  if (!words) return {};
  return (words->empty() ? std::string(kUnknownLauncher) : *words) + " ";
}

/// Without a launcher.
std::string own_program(const Run& run) {
  const std::optional<std::string> words = words_of(run, "words");
  if (words) return words->empty() ? std::string() : surroundings(run) + *words;
  return quoted_words(run, "host.program").value_or("");  // of earlier versions
}

}  // namespace

std::string program_of(const Run& run) {
  const std::string program = own_program(run);
  return program.empty() ? program : launcher_of(run) + program;
}

std::vector<std::string> program_differences(const Run& golden, const Run& mine, bool commands) {
  std::vector<std::string> notes;
  if (const size_t theirs = processes_of(golden), ours = processes_of(mine); theirs != ours)
    notes.push_back("golden's program ran in " + counted(theirs, "process") + ", mine's in " +
                    counted(ours, "process"));
  if (const std::string theirs = model_of(golden), ours = model_of(mine);
      !theirs.empty() && !ours.empty() && theirs != ours)
    notes.push_back("golden's model is a " + theirs + ", mine's a " + ours);
  if (const std::string theirs = program_of(golden), ours = program_of(mine);
      commands && !theirs.empty() && !ours.empty() && theirs != ours)
    notes.push_back("golden was captured of `" + theirs + "`, mine of `" + ours + "`");
  return notes;
}

std::string dump_command(const Run& run, const std::string& options) {
  const std::string program = own_program(run);
  return launcher_of(run) + "assay dump " + options + " -- " +
         (program.empty() ? "PROGRAM" : program);
}

}  // namespace assay::run
