// SPDX-License-Identifier: Apache-2.0
// Reports: docs/design/inject.md, docs/design/ggml-probe.md
#include "cli/dump/process_reports.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "run/open.hpp"
#include "run/run.hpp"

namespace assay::cli {
namespace {

using nlohmann::ordered_json;

// The children of a program that a signal has ended get it at the same time, or a moment later.
constexpr auto kWaitForChildren = std::chrono::seconds(3);

std::vector<std::string> report_files(const std::string& scratch, std::string_view kind) {
  std::vector<std::string> files;
  for (const std::string& name : names_in(scratch)) {
    if (name.starts_with(kind) && name.ends_with(".json")) files.push_back(scratch + "/" + name);
  }
  return files;
}

TorchReport torch_report_of(const ordered_json& json, const std::string& output) {
  TorchReport report;
  report.pid = json.value("pid", int64_t{0});
  report.rank = json.value("rank", int64_t{0});
  report.world_size = json.value("world_size", int64_t{0});
  report.not_asked = json.value("not_asked", false);
  if (json.contains("folder") && json["folder"].is_string()) {
    report.output = output + "/" + json["folder"].get<std::string>();
  } else if (json.contains("output") && json["output"].is_string()) {
    report.output = json["output"];
  }
  report.message = json.value("message", "");
  report.stopped = json.value("stopped", "");
  report.idle = json.value("idle", report.output.empty());
  report.ended = json.value("ended", true);
  if (json.contains("models")) {
    for (const auto& model : json["models"]) {
      ++report.models;
      report.steps = std::max(report.steps, model.value("steps", uint64_t{0}));
      report.tensors += model.value("tensors", uint64_t{0});
    }
  }
  return report;
}

GgmlReport ggml_report_of(const ordered_json& json, const std::string& output) {
  GgmlReport report;
  report.pid = json.value("pid", int64_t{0});
  if (json.contains("output") && json["output"].is_string()) {
    // The name alone: what stands in front is ours, whatever its bytes are.
    const std::string path = json["output"];
    report.output = output + path.substr(path.rfind('/'));
  }
  report.steps = json.value("steps", uint64_t{0});
  report.passed = json.value("passed", uint64_t{0});
  report.nodes = json.value("nodes", uint64_t{0});
  report.bytes = json.value("bytes", uint64_t{0});
  report.warm_ups = json.value("warm_ups", std::vector<int64_t>());
  report.message = json.value("message", "");
  // The first report, made with the folder, has counted nothing yet.
  report.ended = report.output.empty() || report.steps + report.passed > 0;
  return report;
}

template <typename Report>
std::vector<Report> read_all(const std::string& scratch, std::string_view kind,
                             const std::string& output,
                             Report (*report_of)(const ordered_json&, const std::string&),
                             std::vector<std::string>* warnings) {
  std::vector<Report> reports;
  for (const std::string& path : report_files(scratch, kind)) {
    std::ifstream file(path);
    try {
      reports.push_back(report_of(ordered_json::parse(file), output));
    } catch (const nlohmann::json::exception& error) {
      warnings->push_back(path + ": " + error.what());
    }
  }
  return reports;
}

ProcessReports read_scratch(const DumpPlaces& places) {
  ProcessReports reports;
  reports.torch =
      read_all(places.scratch, "torch_", places.output, torch_report_of, &reports.warnings);
  reports.ggml =
      read_all(places.scratch, "ggml_", places.output, ggml_report_of, &reports.warnings);
  return reports;
}

bool somebody_goes_on(const ProcessReports& reports) {
  const auto goes_on = [](const auto& report) {
    return !report.ended && is_running(static_cast<pid_t>(report.pid));
  };
  return std::any_of(reports.torch.begin(), reports.torch.end(), goes_on) ||
         std::any_of(reports.ggml.begin(), reports.ggml.end(), goes_on);
}

// ---- runs that nobody has reported ----

/// The manifest of a rank's folder, or of the run that it is the first rank of; null when there is
/// none.
ordered_json manifest_of(const std::string& output, const std::string& rank) {
  for (const std::string& path :
       {output + "/" + rank + "/manifest.json", output + "/manifest.json"}) {
    std::ifstream file(path);
    ordered_json manifest = ordered_json::parse(file, nullptr, false);
    if (manifest.is_object() && manifest.contains("host") && manifest["host"].is_object())
      return manifest;
  }
  return nullptr;
}

int64_t writer_of(const std::string& output, const std::string& rank) {
  const ordered_json manifest = manifest_of(output, rank);
  const ordered_json pid =
      manifest.is_null() ? ordered_json() : manifest["host"].value("pid", ordered_json());
  return pid.is_number_integer() ? pid.get<int64_t>() : 0;
}

/// In nanoseconds since 1970; 0 when there is no such file.
int64_t written_at(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return 0;
  return int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

bool written_since(int64_t started, const std::string& path) {
  return written_at(path) >= started * 1'000'000'000;
}

void add_unreported_runs(const DumpPlaces& places, int64_t started, ProcessReports* reports) {
  std::set<std::string> reported;
  for (const TorchReport& report : reports->torch) reported.insert(report.output);
  for (const GgmlReport& report : reports->ggml) reported.insert(report.output);
  for (const std::string& name : names_in(places.output)) {
    const std::string folder = places.output + "/" + name;
    if (!name.starts_with("rank") || reported.contains(folder) ||
        !written_since(started, folder + "/records.jsonl"))
      continue;
    TorchReport report;
    report.pid = writer_of(places.output, name);
    report.output = folder;
    report.ended = false;
    reports->torch.push_back(std::move(report));
  }
}

// ---- what is in a run whose writer could not count it ----

struct Content {
  uint64_t records = 0;
  std::set<int64_t> steps;
  std::set<std::string> nodes;
  uint64_t bytes = 0;
};

Content content_of(const std::string& folder, std::vector<std::string>* warnings) {
  Content content;
  const Result<run::Run> opened = run::open_run(folder);
  if (!opened) {
    // A folder without any record yet is no run.
    if (opened.error().code != Errc::Unsupported) warnings->push_back(opened.error().describe());
    return content;
  }
  for (const run::TensorRecord& record : opened->records) {
    content.records += record.dtype.has_value() ? 1 : 0;
    if (record.step >= 0) content.steps.insert(record.step);
    content.nodes.insert(record.node);
    if (record.bytes) content.bytes += record.bytes->size_bytes;
  }
  return content;
}

void count_unfinished(ProcessReports* reports) {
  for (TorchReport& report : reports->torch) {
    if (report.ended || report.output.empty()) continue;
    const Content content = content_of(report.output, &reports->warnings);
    report.tensors = content.records;
    report.steps = content.steps.size();
  }
  for (GgmlReport& report : reports->ggml) {
    if (report.ended) continue;
    const Content content = content_of(report.output, &reports->warnings);
    report.nodes = content.nodes.size();
    report.steps = content.steps.size();
    report.bytes = content.bytes;
  }
}

/// What became of a process that has not said its last word, with what may be missing of its
/// capture.
template <typename Report>
void tell_the_end(Report* report, const char* nothing_yet, const DumpRun& run,
                  std::vector<std::string>* warnings) {
  if (report->ended) {
    report->end = how_it_came_to_its_end(report->pid, run);
    return;
  }
  if (is_running(static_cast<pid_t>(report->pid))) {
    warnings->push_back("process " + std::to_string(report->pid) +
                        " is still running: its capture goes on" +
                        (report->output.empty() ? "" : " in " + report->output));
  } else if (!report->output.empty()) {
    warnings->push_back(how_it_ended(report->pid, run) +
                        " before its capture was complete: what it computed last may be missing");
  }
  const bool nothing = report->output.empty() || !report->captured();
  if (nothing && report->message.empty())
    report->message = how_it_ended(report->pid, run) + nothing_yet;
}

}  // namespace

bool DumpRun::is_earlier(const std::string& path) const {
  const auto found = earlier.find(path);
  return found != earlier.end() && found->second == written_at(path);
}

bool DumpRun::wrote(const std::string& path) const { return written_since(started, path); }

std::map<std::string, int64_t> files_of_earlier_runs(const std::string& root) {
  std::map<std::string, int64_t> files;
  const auto note = [&](const std::filesystem::path& path) {
    const std::string name = path.filename().string();
    if (name.starts_with("probe_s") || name.starts_with("operation_statistic_"))
      files.emplace(path.string(), written_at(path.string()));
  };
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(root, error)) note(entry.path());
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(root + "/cpu_profiling", error))
    note(entry.path());
  return files;
}

int64_t unfinished_writer(const std::string& output, const std::string& rank) {
  const ordered_json manifest = manifest_of(output, rank);
  return manifest.is_null() || manifest.value("complete", ordered_json()) == true
             ? 0
             : writer_of(output, rank);
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

namespace {

/// Nothing when nobody can tell.
std::optional<std::string> known_end(int64_t pid, const DumpRun& run) {
  if (pid == run.end.pid) return end_text(run.end.exit_status, run.end.signal);
  return run.watch == nullptr ? std::nullopt : run.watch->how_ended(static_cast<pid_t>(pid));
}

}  // namespace

std::string how_it_came_to_its_end(int64_t pid, const DumpRun& run) {
  if (is_running(static_cast<pid_t>(pid))) return "is still running";
  return known_end(pid, run).value_or("came to its end");
}

std::string how_it_ended(int64_t pid, const DumpRun& run) {
  const std::string who = "process " + std::to_string(pid) + " ";
  if (is_running(static_cast<pid_t>(pid))) return who + "is still running";
  return who + known_end(pid, run).value_or("ended by a signal or by _exit");
}

ProcessReports read_reports(const DumpPlaces& places, const DumpRun& run) {
  const auto give_up = std::chrono::steady_clock::now() + kWaitForChildren;
  ProcessReports reports = read_scratch(places);
  while (somebody_goes_on(reports) && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    reports = read_scratch(places);
  }
  add_unreported_runs(places, run.started, &reports);
  count_unfinished(&reports);
  for (TorchReport& report : reports.torch) {
    if (report.not_asked) continue;
    tell_the_end(&report, "; it had imported torch, but recorded nothing", run, &reports.warnings);
  }
  for (GgmlReport& report : reports.ggml)
    tell_the_end(&report, "; it had begun with a ggml graph, but recorded nothing", run,
                 &reports.warnings);
  return reports;
}

}  // namespace assay::cli
