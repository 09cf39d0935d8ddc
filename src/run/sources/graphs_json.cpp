// SPDX-License-Identifier: Apache-2.0
// Each known key becomes coverage, a property, a finding or a warning of the run; in a job of
// several ranks the names of graphs get "rank N" in front.   docs/formats/ge-tree.md, "graphs.json"
#include "run/sources/graphs_json.hpp"

#include <nlohmann/json.hpp>

#include "base/mapped_file.hpp"
#include "formats/json_fields.hpp"
#include "formats/native/manifest.hpp"
#include "run/natural_sort.hpp"
#include "run/sources/graph_folders.hpp"

namespace assay::run::sources {
namespace {

using nlohmann::json;

using formats::count_of;
using formats::member;
using formats::objects_of;
using formats::text_of;
using formats::texts_of;

/// Text, number or truth as people read it.
void add_property(const json& object, const char* key, const std::string& name, Run* run) {
  const json* value = member(object, key);
  if (value == nullptr || value->is_structured()) return;
  run->properties[name] = formats::plain_text(*value);
}

std::string numbers_text(const json* list) {
  std::string text;
  if (list == nullptr || !list->is_array()) return text;
  for (const json& item : *list) {
    if (item.is_number_integer())
      text += (text.empty() ? "" : ", ") + std::to_string(item.get<int64_t>());
  }
  return text;
}

/// "inference, 120 operators, 80 of 80 planned, steps 0, 1"
std::string summary_of(const json& graph) {
  std::string text = text_of(graph, "kind");
  const auto add = [&text](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (const uint64_t parent = count_of(graph, "parent"); parent > 0)
    add("of graph_" + std::to_string(parent));
  add(std::to_string(count_of(graph, "operators")) + " operators");
  const uint64_t planned = count_of(graph, "planned");
  add(std::to_string(count_of(graph, "dumped")) +
      (planned > 0 ? " of " + std::to_string(planned) + " planned" : " dumped"));
  const std::string steps = numbers_text(member(graph, "steps"));
  add(steps.empty() ? "never dumped" : "steps " + steps);
  return text;
}

void add_graph(const json& graph, const std::string& prefix, Run* run) {
  std::string name = text_of(graph, "name");
  if (name.empty()) name = "graph_" + std::to_string(count_of(graph, "graph"));
  run->coverage.planned += count_of(graph, "planned");
  run->properties["graphs." + prefix + name] = summary_of(graph);
  const std::string reason = text_of(graph, "break_reason");
  const std::string place = text_of(graph, "break_place");
  if (!reason.empty() || !place.empty()) {
    run->findings.push_back("graph break at " + prefix + name +
                            (place.empty() ? "" : ", " + place) +
                            (reason.empty() ? "" : ": " + reason));
  }
  for (const std::string& warning : texts_of(graph, "warnings"))
    run->warnings.push_back(prefix + name + ": " + warning);
  for (native::MissedNode& missed : native::read_missed(graph)) {
    missed.node = prefix + name + " " + missed.node;
    run->coverage.missed.push_back(std::move(missed));
  }
}

/// Breaks that left no graph of their own.
void add_breaks(const json& document, Run* run) {
  for (const json* item : objects_of(document, "breaks")) {
    const uint64_t count = count_of(*item, "count");
    run->findings.push_back("graph break" +
                            (count > 1 ? " (" + std::to_string(count) + " times)" : "") + ": " +
                            text_of(*item, "reason"));
  }
}

void add_writer(const json& writer, Run* run) {
  if (const uint64_t dropped = count_of(writer, "dropped"); dropped > 0)
    run->warnings.push_back("the capture dropped " + std::to_string(dropped) +
                            " files because writing was too slow");
  if (const uint64_t failed = count_of(writer, "failed"); failed > 0)
    run->warnings.push_back(std::to_string(failed) + " files could not be written; the first: " +
                            text_of(writer, "first_error"));
}

}  // namespace

Result<bool> read_graphs_json(std::string_view text, Run* run) {
  ASSAY_TRY(const json document, formats::parse_json_object(text));
  const json* graphs = member(document, "graphs");
  if (graphs == nullptr || !graphs->is_array() || member(document, "assay") == nullptr)
    return false;
  const json* complete = member(document, "complete");
  if (complete == nullptr || *complete != true) run->coverage.complete = false;
  if (const std::string version = text_of(document, "assay"); !version.empty())
    run->properties["tool"] = "assay " + version;
  add_property(document, "torch", "host.torch", run);
  add_property(document, "device", "host.device", run);
  add_property(document, "world_size", "host.world_size", run);
  add_property(document, "time", "started", run);
  add_property(document, "engine", "config.engine", run);
  add_property(document, "decomposition_level", "config.decomposition_level", run);
  const std::string prefix = count_of(document, "world_size") > 1
                                 ? "rank " + std::to_string(count_of(document, "rank")) + " "
                                 : "";
  add_breaks(document, run);
  if (const json* writer = member(document, "writer")) add_writer(*writer, run);
  for (const json* graph : objects_of(document, "graphs")) add_graph(*graph, prefix, run);
  return true;
}

bool add_graphs_file(const std::string& path, Run* run) {
  const Result<MappedFile> file = MappedFile::open(path);
  const Result<bool> read =
      file ? in_file(path, read_graphs_json(as_text(file->bytes()), run)) : fail(file.error());
  if (read) return *read;
  run->coverage.complete = false;
  run->warnings.push_back(read.error().describe());
  return false;
}

void add_graph_coverage(const GraphSteps& graphs, const std::string& reason, Run* run) {
  for (const auto& [graph, steps] : graphs) {
    std::map<std::string, uint64_t, NaturalLess> times;
    for (const auto& [step, nodes] : steps) {
      for (const std::string& node : nodes) ++times[node];
    }
    run->coverage.captured += times.size();
    for (const auto& [node, count] : times) {
      if (count < steps.size())
        run->coverage.missed.push_back({node, reason, steps.size() - count});
    }
  }
}

Attempt read_graphs_alone(const std::string& path) {
  const auto is_sign = [](std::string_view name) { return name == kGraphsFile; };
  if (!is_folder(path) || !has_file_below(path, is_sign)) return std::nullopt;
  Run run;
  bool found = false;
  visit_folders(path, real_path(path), 0, &run.warnings,
                [&](const std::string&, const FolderEntries& entries) {
                  for (const FolderEntry& entry : entries) {
                    if (entry.name == kGraphsFile && entry.kind == FolderEntry::Kind::File)
                      found = add_graphs_file(entry.path, &run) || found;
                  }
                });
  if (!found) return std::nullopt;
  // Only dumps in the graph engine's form have folders of a time.
  const auto time = run.properties.find("started");
  run.layout =
      time == run.properties.end() || time->second.empty() ? Layout::FxTree : Layout::GeTree;
  run.warnings.push_back(path + ": no file of a graph is there yet");
  return Result<Run>(std::move(run));
}

}  // namespace assay::run::sources
