// SPDX-License-Identifier: Apache-2.0
// Reads the probes' summaries and reports, makes tables and graphs, says what was lost or why
// nothing was captured, and writes the manifest. What goes wrong becomes a warning, never a
// failure.
#include "cli/dump/dump_results.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/ascii.hpp"
#include "base/atomic_file.hpp"
#include "base/mapped_file.hpp"
#include "base/numbers.hpp"
#include "base/paths.hpp"
#include "base/shell_words.hpp"
#include "base/suggest.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/dump/elf.hpp"
#include "cli/dump/hidden_program.hpp"
#include "cli/list_text.hpp"
#include "cli/topology_files.hpp"
#include "formats/cpu_profiling.hpp"
#include "opcheck/choice.hpp"
#include "run/record.hpp"

namespace assay::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr unsigned kFileMode = 0640;

std::string iso_time(int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

Result<std::string> read_text(const std::string& path) {
  ASSAY_TRY(const MappedFile file, MappedFile::open(path));
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

void append(std::vector<std::string>* lines, std::vector<std::string> more) {
  std::move(more.begin(), more.end(), std::back_inserter(*lines));
}

std::string sentence(const Error& error) { return error.describe(); }

// ---- what the processes say ----

/// A page that a process left behind: its summary, in which only the end is missing.
Result<formats::ProbeSummary> summary_of_page(const std::string& path, DumpResults* results) {
  ASSAY_TRY(const MappedFile file, MappedFile::open(path));
  ASSAY_TRY(const formats::ProbeStatus status, formats::read_probe_status(file.bytes()));
  const std::string json = formats::probe_summary_json(status, status.concluded == 1, std::nullopt);
  ASSAY_TRY(const formats::ProbeSummary summary, formats::read_probe_summary(json));
  if (is_running(static_cast<pid_t>(status.pid))) {
    results->warnings.push_back("process " + std::to_string(status.pid) +
                                " is still running: its dump goes on");
    return summary;
  }
  const std::string target =
      path.substr(0, path.rfind('/')) + "/probe_summary_" + std::to_string(status.pid) + ".json";
  ASSAY_TRY_STATUS(write_file_atomically(target, as_bytes(json), kFileMode));
  ::unlink(path.c_str());
  return summary;
}

void collect_summaries(const DumpRun& run, DumpResults* results) {
  for (const std::string& name : names_in(results->root)) {
    const std::string path = results->root + "/" + name;
    Result<formats::ProbeSummary> summary = fail(Errc::NotFound, "");
    if (name.starts_with("probe_summary_") && name.ends_with(".json")) {
      const Result<std::string> text = read_text(path);
      summary = text ? formats::read_probe_summary(*text)
                     : Result<formats::ProbeSummary>(fail(text.error()));
    } else if (name.starts_with("probe_status_")) {
      summary = summary_of_page(path, results);
    } else {
      continue;
    }
    if (!summary) {
      results->warnings.push_back(sentence(in_file(path, std::move(summary)).error()));
    } else if (!run.is_earlier(path)) {  // a reused root holds older runs too
      results->processes.push_back(*std::move(summary));
    }
  }
  std::sort(results->processes.begin(), results->processes.end(),
            [](const auto& a, const auto& b) { return a.pid < b.pid; });
}

// ---- files made of what was captured ----

/// ait's documents have these files in a folder that is named by the time of the run; of several
/// processes the later ones get a number behind it.
///
/// folders  one a process
void name_by_time(const std::set<std::string>& folders, const DumpRun& run, DumpResults* results) {
  const std::string name = time_in_name(DumpName::Ait, run.started);
  for (const std::string& folder : folders) {
    const std::string place = fs::path(folder).parent_path().string() + "/";
    std::string target = place + name;
    for (int number = 1; exists(target); ++number)
      target = place + name + "_" + std::to_string(number);
    std::error_code error;
    fs::rename(folder, target, error);
    if (error) results->warnings.push_back(folder + ": " + error.message());
  }
}

void merge_statistics(bool as_text, const DumpRun& run, DumpResults* results) {
  std::error_code error;
  std::vector<std::string> files;
  const std::string folder = results->root + "/cpu_profiling";
  for (const auto& entry : fs::recursive_directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    constexpr std::string_view kStem = "operation_statistic_";
    const bool ours = name.starts_with(kStem) && name.ends_with(".txt") &&
                      name.find_first_not_of("0123456789", kStem.size()) == name.size() - 4;
    if (ours && entry.is_regular_file(error) && !run.is_earlier(entry.path().string()))
      files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  bool only_zeros = !files.empty();
  std::set<std::string> folders;
  for (const std::string& path : files) {
    const Result<std::string> text = read_text(path);
    if (!text) {
      results->warnings.push_back(sentence(text.error()));
      only_zeros = false;
      continue;
    }
    only_zeros = only_zeros && formats::all_zero(formats::read_cpu_statistics(*text));
    const Result<std::string> table = as_text
                                          ? Result<std::string>(formats::cpu_profiling_text(*text))
                                          : formats::cpu_profiling_csv(*text);
    const std::string target =
        as_text ? path : path.substr(0, path.size() - std::strlen(".txt")) + ".csv";
    Status written = table ? write_file_atomically(target, as_bytes(*table), kFileMode)
                           : Status(fail(table.error()));
    if (!written) {
      results->warnings.push_back(sentence(in_file(path, std::move(written)).error()) +
                                  "; the text is kept");
      continue;
    }
    if (as_text) {
      folders.insert(fs::path(path).parent_path().string());
    } else {
      ::unlink(path.c_str());
    }
    results->profiling_tables.push_back(target);
  }
  name_by_time(folders, run, results);
  // Our own probe says this itself.
  if (only_zeros && results->processes.empty()) {
    results->warnings.push_back(
        "every number of cpu_profiling is 0: ATB of CANN 8.2 and later resets its statistics "
        "before it reports them");
  }
}

/// What a probe other than ours (--probe-library) left: no summary tells of it, its files do. They
/// lie in folders of the root; beside these are our own.
void count_files_without_summary(const DumpRun& run, DumpResults* results) {
  if (!results->processes.empty()) return;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(results->root, error), end; entry != end;
       entry.increment(error)) {
    const bool is_of_probe = entry.depth() > 0 && entry->is_regular_file(error);
    if (is_of_probe && run.wrote(entry->path().string())) ++results->files_without_summary;
  }
}

void convert_topologies(const std::string& scratch, DumpResults* results) {
  std::ifstream list(scratch + "/subprocess_info.txt");
  ShapeCache shapes;
  for (std::string path; std::getline(list, path);) {
    if (path.empty()) continue;
    const Result<std::string> written = write_onnx_beside(path, -1, &shapes);
    if (written) {
      results->graphs.push_back(*written);
    } else {
      results->warnings.push_back("no graph of a topology: " + sentence(written.error()));
    }
  }
}

// ---- what was lost, and why ----

struct Loss {
  std::string reason;
  uint64_t count;
  bool is_told = false;  // the reason, by the probe when it happened
};

std::vector<Loss> losses_of(const formats::ProbeSummary& process) {
  const formats::ProbeCounters& c = process.counters;
  std::vector<Loss> losses;
  const auto add = [&](uint64_t count, std::string reason) {
    if (count > 0) losses.push_back({std::move(reason), count});
  };
  if (!process.complete || formats::tensors_lost(c) > 0) {
    add(formats::tensors_lost(c),
        "still queued when the process ended without its exit handlers (_exit, a signal); --sync "
        "writes at once");
  }
  add(c.tensors_dropped, "the queue was full (--drop-when-full); --queue gives it more memory");
  if (c.tensors_failed > 0 && !process.first_error.empty()) {
    losses.push_back({process.first_error, c.tensors_failed, true});
  } else {
    add(c.tensors_failed, "could not be written");
  }
  add(c.skipped_disk, "less than 2 GB were free on the disk");
  add(c.skipped_size, "empty, larger than 10 GiB, or not readable");
  add(c.skipped_null, "the library gave no data");
  add(c.skipped_header, "format, dtype or dims are longer than 50 characters");
  add(c.skipped_name, "the path cannot be a path of the dump");
  return losses;
}

void add_loss_warnings(const DumpRun& run, DumpResults* results) {
  for (const formats::ProbeSummary& process : results->processes) {
    const std::string who = "process " + std::to_string(process.pid) + ": ";
    const std::vector<Loss> losses = losses_of(process);
    const std::string summary =
        results->root + "/probe_summary_" + std::to_string(process.pid) + ".json";
    for (const Loss& loss : losses)
      results->warnings.push_back(
          who + counted(loss.count, "tensor") +
          (loss.is_told ? " could not be written; " + summary + " has the first error"
                        : " missing: " + loss.reason));
    if (!process.complete && !is_running(static_cast<pid_t>(process.pid)))
      results->warnings.push_back(how_it_ended(process.pid, run) + " before its dump was complete");
    if (losses.empty() && !process.first_error.empty())
      results->warnings.push_back(who + "an error left its dump incomplete; " + summary +
                                  " has it");
    for (const std::string& note : process.notes) {
      // Names of operations serve why_no_tensor(). Skipped tensors stand among the losses, and the
      // probe itself has told the first of them.
      const bool is_said = formats::parse_operations_note(note) ||
                           (formats::is_skipped_tensor_note(note) && !losses.empty());
      if (!is_said) results->warnings.push_back(who + note);
    }
  }
}

uint64_t tensors_stored(const formats::ProbeSummary& process) {
  return process.counters.tensors_written + process.counters.tensors_linked;
}

/// Why nothing of ours can be in the program's process, from its file alone; empty when nothing
/// speaks against it.
std::string why_not_loaded(const DumpRequest& request, const DumpRun& run) {
  if (std::string hidden = hidden_from_probes(request); !hidden.empty()) return hidden;
  const Result<MappedFile> file = MappedFile::open(run.program_file);
  if (!file) return {};
  const Result<ElfProgram> program = read_elf_program(file->bytes());
  if (!program) return {};
  if (!program->has_interpreter)
    return run.program_file + " is statically linked, so nothing can be loaded into it";
  struct stat info{};
  if (::stat(run.program_file.c_str(), &info) == 0 && (info.st_mode & (S_ISUID | S_ISGID)) != 0)
    return run.program_file + " runs with another user's rights, so nothing can be loaded into it";
  if (request.captures_ggml() && holds_ggml(file->bytes()))
    return run.program_file +
           " has ggml linked into it, where its calls cannot be seen; build it with shared "
           "libraries "
           "(cmake -DBUILD_SHARED_LIBS=ON)";
  return {};
}

/// Why the probe was never called by any process.
std::string why_no_process(const DumpRequest& request, const DumpRun& run) {
  if (run.program_file.empty()) return "the program could not be found";
  if (std::string why = why_not_loaded(request, run); !why.empty()) return why;
  std::string why;
  if (run.end.exit_status != 0)
    why = "the program ended with status " + std::to_string(run.end.exit_status) + "; ";
  if (request.host == "ggml")
    return why + "no process of it computed a graph through a ggml scheduler";
  if (!request.captures_torch())
    return why + "no process of it called ATB's probe interface (is ATB, libatb.so, really used?)";
  if (!request.captures_atb()) return why + "no process of it imported torch";
  return why +
         "no process of it called ATB's probe interface, none imported torch, and none computed a "
         "graph "
         "through a ggml scheduler";
}

/// What the configuration file says of a key, as text; empty when it says nothing that can be read.
std::string configured(const std::string& path, const char* key) {
  std::ifstream file(path);
  const ordered_json config = ordered_json::parse(file, nullptr, false);
  if (!config.is_object() || !config.contains(key)) return {};
  return config[key].is_string() ? config[key].get<std::string>() : config[key].dump();
}

/// Why a configuration file lets nothing through; it has replaced -ids, -er, -child and -device.
std::string why_configured_to_nothing(const std::string& path, const formats::ProbeCounters& sum) {
  const std::string who = "the configuration file " + path;
  const std::string enabled = configured(path, "dump_enable");
  if (enabled != "true")
    return who +
           (enabled.empty() ? " does not set dump_enable to true" : " has dump_enable " + enabled);
  for (const char* key : {"er", "exec_range"}) {
    const std::string range = configured(path, key);
    if (sum.asked_in_range > 0 && sum.asked_in_range_yes == 0 && !range.empty())
      return "no step of an operation was in the range " + range + " (" + key + " in " + path + ")";
  }
  return who + " let no operation through";
}

/// What all processes ran, each once.
opcheck::KnownOperations operations_that_ran(const DumpResults& results) {
  opcheck::KnownOperations ran;
  for (const formats::ProbeSummary& process : results.processes) {
    for (const std::string& text : process.notes) {
      const auto note = formats::parse_operations_note(text);
      if (!note) continue;
      for (const std::string& type : note->types) ran.add(type, {});
      for (const std::string& id : note->ids) ran.add({}, id);
    }
  }
  return ran;
}

/// Why ATB called, but no tensor was stored.
std::string why_no_tensor(const DumpRequest& request, const DumpResults& results) {
  const formats::ProbeCounters sum = formats::sum_of_counters(results.processes);
  if (sum.tensors_accepted > 0)  // why is told by the losses
    return counted(sum.tensors_accepted, "tensor") + " passed the filters, none was stored";
  const bool asked_nothing = sum.tensors_seen == 0 || sum.asked_in_dir_yes == 0;
  if (!request.config_path.empty() && asked_nothing)
    return why_configured_to_nothing(request.config_path, sum);
  if (sum.tensors_seen > 0) {
    if (sum.skipped_device == sum.tensors_seen)
      return "no tensor came from device " + request.device + " (--device-id)";
    if (sum.skipped_part == sum.tensors_seen) return "--save-tensor-part excludes every tensor";
    return "none of " + counted(sum.tensors_seen, "tensor") + " passed the filters";
  }
  if (sum.asked_need_save > 0 && sum.asked_need_save_yes == 0)
    return opcheck::no_operation_text(request.ids, request.operation_names,
                                      operations_that_ran(results));
  if (sum.asked_in_range > 0 && sum.asked_in_range_yes == 0)
    return "no step of an operation was in the range " + request.range + " (-er)";
  if (sum.asked_in_dir > 0 && sum.asked_in_dir_yes == 0 && !request.device.empty())
    return "no operation ran on device " + request.device + " (--device-id)";
  return "ATB handed over no tensor";
}

bool tensors_were_stored(const DumpResults& results) {
  const auto captured = [](const auto& report) { return report.captured(); };
  return std::any_of(results.processes.begin(), results.processes.end(),
                     [](const auto& process) { return tensors_stored(process) > 0; }) ||
         std::any_of(results.torch.begin(), results.torch.end(), captured) ||
         std::any_of(results.ggml.begin(), results.ggml.end(), captured);
}

/// What --modules and -opname could have named in a ggml run.
struct NodesOfRun {
  std::vector<std::string> names;
  std::vector<std::string> types;  // "mul_mat"
};

/// topology  that the probe wrote: "ffn_out-0::ggml.mul_mat.0" of type "ggml.mul_mat"
NodesOfRun nodes_of(const std::string& topology) {
  constexpr std::string_view kGgml = "ggml.";
  NodesOfRun nodes;
  std::ifstream file(topology);
  const ordered_json json = ordered_json::parse(file, nullptr, false);
  if (!json.is_object() || !json.contains("nodes")) return nodes;
  for (const ordered_json& node : json["nodes"]) {
    const auto text = [&](const char* key) {
      const bool has = node.is_object() && node.contains(key) && node[key].is_string();
      return has ? node[key].get<std::string>() : std::string();
    };
    const std::string name = text("opName");
    const std::string type = text("opType");
    nodes.names.emplace_back(module_of_node(name));
    if (type.starts_with(kGgml)) nodes.types.push_back(type.substr(kGgml.size()));
  }
  return nodes;
}

/// "ffn_out-12" -> "ffn_out-*": the pattern that means the node of every layer.
std::string for_all_layers(const std::string& name) {
  std::string pattern;
  for (const char c : name) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit) pattern += c;
    if (is_digit && !pattern.ends_with('*')) pattern += '*';
  }
  return pattern;
}

/// Of choices that match no node, what the first was probably meant to be: " --modules ffn_out-*".
std::string nearest_choice(const DumpRequest& request, const NodesOfRun& nodes) {
  for (const std::string& pattern : request.modules) {
    std::vector<std::string> known = nodes.names;
    if (pattern.find('*') != std::string::npos)
      std::ranges::transform(nodes.names, known.begin(), for_all_layers);
    if (std::string near = nearest_word(pattern, known); !near.empty())
      return " --modules '" + near + "'";
  }
  const std::string near = opcheck::nearest_operation(request.operation_names, nodes.types);
  return near.empty() ? near : " -opname " + near;
}

/// Why a ggml run has no node.
std::string why_no_node(const DumpRequest& request, const GgmlReport& report) {
  if (!report.message.empty()) return report.message;
  std::string asked;
  for (const std::string& name : request.modules)
    asked += (asked.empty() ? "--modules " : " ") + name;
  if (!request.operation_names.empty())
    asked += (asked.empty() ? "" : ", ") + ("-opname " + request.operation_names);
  if (report.steps == 0 || asked.empty())
    return "no graph was in the range " + request.range + " (--steps)";
  const std::string near = nearest_choice(request, nodes_of(report.output + "/topology.json"));
  return "no node of " + counted(report.steps, "graph") + " matches " + asked +
         (near.empty() ? "; " : "; did you mean" + near + "? ") + "'assay graph " + report.output +
         "/topology.json' lists them";
}

/// What every process has to say, where it is not the whole it was asked for.
void explain_processes(const DumpRequest& request, DumpResults* results) {
  const bool anything = results->captured_anything();
  for (const GgmlReport& report : results->ggml) {
    if (!report.captured() && (!anything || !report.output.empty()))
      results->warnings.push_back("no ggml node was captured in process " +
                                  std::to_string(report.pid) + ": " + why_no_node(request, report));
  }
  for (const TorchReport& report : results->torch) {
    if (report.message.empty() || (anything && report.idle)) continue;
    const std::string who = "process " + std::to_string(report.pid) + ": ";
    results->warnings.push_back((report.captured() ? "" : "nothing was captured in ") + who +
                                report.message);
  }
}

/// Ranks of --ranks that the job does not have.
void explain_ranks(const DumpRequest& request, DumpResults* results) {
  int64_t world_size = 0;
  for (const TorchReport& report : results->torch)
    world_size = std::max(world_size, report.world_size);
  if (request.ranks == "all" || world_size == 0) return;
  const std::vector<std::string_view> bounds = split(request.ranks, ',');
  std::string missing;
  for (size_t i = 0; i + 1 < bounds.size(); i += 2) {
    const int64_t first = std::max(parse_number<int64_t>(bounds[i]).value_or(0), world_size);
    const int64_t last = parse_number<int64_t>(bounds[i + 1]).value_or(0);
    if (first > last) continue;
    missing += (missing.empty() ? "" : ",") + std::to_string(first) +
               (first == last ? "" : "-" + std::to_string(last));
  }
  if (missing.empty()) return;
  results->warnings.push_back(
      "--ranks " + list_of_range(request.ranks) + ": the job has no rank " + missing +
      (world_size == 1 ? ", only rank 0" : ", only 0-" + std::to_string(world_size - 1)));
}

void explain_nothing(const DumpRequest& request, const DumpRun& run, DumpResults* results) {
  if (!results->processes.empty()) {
    if (!results->captured_anything()) {
      results->warnings.push_back("nothing was captured: " + why_no_tensor(request, *results));
    } else if (request.has_type("tensor") && !tensors_were_stored(*results)) {
      results->warnings.push_back("no tensor was captured: " + why_no_tensor(request, *results));
    }
  } else if (results->torch.empty() && results->ggml.empty() && !results->captured_anything()) {
    results->warnings.push_back("nothing was captured: " + why_no_process(request, run));
    results->is_other_host = request.captures_torch() && run.end.exit_status == 0 &&
                             !run.program_file.empty() && why_not_loaded(request, run).empty();
  }
  explain_processes(request, results);
  explain_ranks(request, results);
}

// ---- manifest.json ----

Status write_manifest(const DumpRequest& request, const DumpRun& run, const DumpResults& results) {
  ordered_json processes = ordered_json::array();
  ordered_json missed = ordered_json::array();
  uint64_t planned = 0;
  uint64_t captured = 0;
  for (const formats::ProbeSummary& process : results.processes) {
    const std::string path =
        results.root + "/probe_summary_" + std::to_string(process.pid) + ".json";
    if (const Result<std::string> text = read_text(path))
      processes.push_back(ordered_json::parse(*text, nullptr, false));
    captured += tensors_stored(process);
    planned += tensors_stored(process);
    for (const Loss& loss : losses_of(process)) {
      planned += loss.count;
      missed.push_back({{"node", "process " + std::to_string(process.pid)},
                        {"reason", loss.reason},
                        {"count", loss.count}});
    }
  }
  const ordered_json options = {{"type", request.types},
                                {"only_save_desc", request.description_only},
                                {"save_operation_ids", request.ids},
                                {"execute_range", request.range},
                                {"save_operation_child", request.child},
                                {"save_time", request.save_time},
                                {"operation_name", request.operation_names},
                                {"save_tiling", request.tiling},
                                {"save_tensor_part", request.tensor_part},
                                {"device_id", request.device},
                                {"enable_symlink", request.symlink},
                                {"config_path", request.config_path}};
  const ordered_json manifest = {{"format", "assay-atb-dump"},
                                 {"version", 1},
                                 {"tool", "assay " ASSAY_VERSION},
                                 {"command", request.command},
                                 {"options", options},
                                 {"started", iso_time(run.started)},
                                 {"ended", iso_time(std::time(nullptr))},
                                 {"exit_status", run.end.exit_status},
                                 {"processes", processes},
                                 {"planned", planned},
                                 {"captured", captured},
                                 {"missed", missed}};
  const std::string text =
      manifest.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  return write_file_atomically(results.root + "/manifest.json", as_bytes(text), kFileMode);
}

}  // namespace

namespace {

/// Behind what was captured: numbers of what a host has handed over say nothing of the disk.
std::string not_whole(const std::string& reason) {
  return reason.empty() ? "" : "; incomplete, not all of it is on disk: " + reason;
}

/// "process 12", of several with how it ended: "process 12 (ended with status 0)".
template <typename Report>
std::string named(const Report& report, const DumpResults& results) {
  const bool is_of_many = results.torch.size() + results.ggml.size() > 1;
  return "process " + std::to_string(report.pid) +
         (is_of_many && !report.end.empty() ? " (" + report.end + ")" : "");
}

void add_ranks_left_out(const DumpRequest& request, const DumpResults& results,
                        std::vector<std::string>* lines) {
  std::set<int64_t> ranks;
  for (const TorchReport& report : results.torch) {
    if (report.not_asked) ranks.insert(report.rank);
  }
  if (ranks.empty()) return;
  lines->push_back((ranks.size() == 1 ? "rank " : "ranks ") + number_list(ranks) + " here " +
                   (ranks.size() == 1 ? "was" : "were") + " not asked for (--ranks " +
                   list_of_range(request.ranks) + ")");
}

/// Beside processes with a run: those that had nothing to capture.
void add_idle_processes(const DumpResults& results, std::vector<std::string>* lines) {
  for (const TorchReport& report : results.torch) {
    if (report.idle && !report.end.empty() && results.captured_anything())
      lines->push_back("nothing of " + named(report, results) +
                       ": it imported torch and called no module");
  }
}

}  // namespace

std::string folder_of_run(const DumpResults& results) {
  const bool is_of_atb = !results.processes.empty() || results.files_without_summary > 0;
  if (is_of_atb && exists(results.root)) return results.root;
  const auto whole = [](const std::string& folder) {
    const size_t slash = folder.rfind('/');
    return folder.substr(slash + 1).starts_with("rank") ? folder.substr(0, slash) : folder;
  };
  for (const TorchReport& report : results.torch) {
    if (report.captured()) return whole(report.output);
  }
  for (const GgmlReport& report : results.ggml) {
    if (report.captured()) return whole(report.output);
  }
  return {};
}

bool DumpResults::captured_anything() const {
  if (files_without_summary > 0) return true;
  for (const TorchReport& report : torch) {
    if (report.captured()) return true;
  }
  for (const GgmlReport& report : ggml) {
    if (report.captured()) return true;
  }
  for (const formats::ProbeSummary& process : processes) {
    const formats::ProbeCounters& c = process.counters;
    if (tensors_stored(process) + c.tiling_files + c.param_files + c.layer_files + c.model_files +
            c.operation_rows + c.kernel_rows + c.statistic_lines >
        0)
      return true;
  }
  return false;
}

bool DumpResults::nothing_was_asked() const {
  return !captured_anything() && warnings.empty() &&
         std::ranges::any_of(torch, [](const TorchReport& report) { return report.not_asked; });
}

DumpResults finish_dump(const DumpRequest& request, const DumpPlaces& places, const DumpRun& run) {
  DumpResults results;
  results.root = places.output + "/" + places.dump_name;
  collect_summaries(run, &results);
  ProcessReports reports = read_reports(places, run);
  results.torch = std::move(reports.torch);
  results.ggml = std::move(reports.ggml);
  append(&results.warnings, std::move(reports.warnings));
  // The documents of `ait` promise a text, those of `msit` a table.
  if (request.has_type("cpu_profiling"))
    merge_statistics(request.name == DumpName::Ait, run, &results);
  if (request.has_type("onnx")) convert_topologies(places.scratch, &results);
  count_files_without_summary(run, &results);
  std::error_code error;
  fs::remove_all(places.scratch, error);
  if (error) results.warnings.push_back(places.scratch + ": " + error.message());
  add_loss_warnings(run, &results);
  explain_nothing(request, run, &results);
  if (exists(results.root)) {
    if (const Status written = write_manifest(request, run, results); !written)
      results.warnings.push_back(sentence(written.error()));
  }
  return results;
}

std::vector<std::string> summary_lines(const DumpRequest& request, const DumpResults& results) {
  std::vector<std::string> lines;
  const formats::ProbeCounters sum = formats::sum_of_counters(results.processes);
  if (!results.processes.empty()) {
    lines.push_back(counted(sum.tensors_written + sum.tensors_linked, "tensor") + " (" +
                    human_bytes(sum.payload_bytes) + ") of " +
                    counted(results.processes.size(), "process") + " in " + results.root);
    std::string rest;
    const auto add = [&](uint64_t count, std::string_view what) {
      if (count > 0) rest += (rest.empty() ? "" : ", ") + counted(count, what);
    };
    add(sum.layer_files, "layer file");
    add(sum.model_files, "model file");
    add(results.graphs.size(), "graph");
    add(sum.operation_rows, "operation row");
    add(sum.kernel_rows, "kernel row");
    // Lines of their own in the native layout, files in the others.
    if (sum.param_files > 0)
      rest +=
          (rest.empty() ? "" : ", ") + ("parameters of " + counted(sum.param_files, "operation"));
    add(sum.tiling_files, "tiling file");
    add(results.profiling_tables.size(), "profiling table");
    if (!rest.empty()) lines.push_back(rest);
    if (request.name == DumpName::Assay && results.processes.size() > 1) {
      for (const formats::ProbeSummary& process : results.processes) {
        if (process.complete)
          lines.push_back("process " + std::to_string(process.pid) +
                          " came to its end: " + counted(tensors_stored(process), "tensor"));
      }
    }
  }
  if (results.files_without_summary > 0)
    lines.push_back(counted(results.files_without_summary, "file") + " in " + results.root +
                    "; the probe that wrote them does not say whether that is all");
  for (const TorchReport& report : results.torch) {
    if (!report.captured()) continue;
    const bool only_first = request.range == "0,0" && report.ended && report.steps > 1;
    lines.push_back(
        counted(report.tensors, "tensor") + " of " +
        (report.ended ? counted(report.models, "PyTorch model") : counted(report.steps, "step")) +
        ", " + named(report, results) + ", in " + report.output +
        (only_first ? "; the first of " + counted(report.steps, "step") +
                          ", --steps all captures every one"
                    : "") +
        not_whole(report.stopped));
  }
  for (const GgmlReport& report : results.ggml) {
    if (!report.captured()) continue;
    const bool only_first = request.range == "0,0" && report.passed > 0;
    lines.push_back(
        counted(report.nodes, "ggml node") + " (" + human_bytes(report.bytes) + ") of " +
        counted(report.steps, "graph") + ", " + named(report, results) + ", in " + report.output +
        (only_first ? "; the first of " + counted(report.steps + report.passed, "graph") +
                          ", --steps all captures every one"
                    : "") +
        not_whole(report.message));
    for (const int64_t step : report.warm_ups) {
      lines.push_back("graph " + std::to_string(step) +
                      " was a warm-up: two tokens whose result the program threw away");
    }
  }
  add_idle_processes(results, &lines);
  add_ranks_left_out(request, results, &lines);
  return lines;
}

std::string next_command(const DumpRequest& request, const DumpResults& results) {
  if (results.nothing_was_asked()) return "assay help dump";
  if (results.is_other_host) return own_host_command();
  if (!results.captured_anything()) return "assay doctor";
  if (!request.next.empty()) return request.next;
  const std::string run = shell_quote(folder_of_run(results));
  const bool values =
      request.has_type("tensor") && !request.wants_statistics() && !request.description_only;
  if (!values || request.save_time == 0) return "assay show " + run;
  const bool modules = !results.torch.empty() && !request.operators;
  return (modules ? "assay compare GOLDEN " : "assay opcheck ") + run;
}

}  // namespace assay::cli
