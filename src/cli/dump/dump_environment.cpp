// SPDX-License-Identifier: Apache-2.0
// ATB's probe is told by variables of its own, those of PyTorch and ggml by one variable each that
// holds JSON. Variables set before are unset where the request does not want them.
#include "cli/dump/dump_environment.hpp"

#include "base/ascii.hpp"
#include "base/json_text.hpp"
#include "base/text.hpp"
#include "cli/dump/started_command.hpp"

namespace assay::cli {
namespace {

std::string flag(bool value) { return value ? "1" : "0"; }

std::optional<std::string> set_if(bool wanted, std::string value) {
  if (!wanted) return std::nullopt;
  return value;
}

std::string joined(const std::vector<std::string>& words, char separator) {
  std::string text;
  for (const std::string& word : words)
    text += (text.empty() ? "" : std::string(1, separator)) + word;
  return text;
}

// The default of --queue is meant for a queue of copies that come and go. A buffer is touched as a
// whole at the start and holds no more than a step's tensors: a quarter of the default is enough.
uint64_t buffer_bytes(const DumpRequest& request) {
  return request.queue_bytes == DumpRequest{}.queue_bytes ? request.queue_bytes / 4
                                                          : request.queue_bytes;
}

std::vector<EnvironmentChange> atb_variables(const DumpRequest& request, const DumpPlaces& places) {
  const bool topology = request.has_type("model") || request.has_type("layer");
  // The old names, and texts as the original wrote them, mean its files.
  const bool native = request.name == DumpName::Assay && !request.strict && !request.compat_text;
  return {
      {"ATB_OUTPUT_DIR", places.output + "/"},
      {"ATB_TIMESTAMP", set_if(!places.timestamp.empty(), places.timestamp)},
      {"ASSAY_ATB_DUMP_NAME", places.dump_name},
      {"ATB_DUMP_TYPE", joined(request.types, '|')},
      {"ATB_SAVE_CPU_PROFILING", flag(request.has_type("cpu_profiling"))},
      {"ATB_SAVE_TENSOR", request.description_only ? "2" : "1"},
      {"ATB_SAVE_TENSOR_TIME", std::to_string(request.save_time == 3 ? 1 : request.save_time)},
      {"ATB_SAVE_TENSOR_IN_BEFORE_OUT_AFTER", flag(request.save_time == 3)},
      {"ATB_SAVE_TENSOR_IDS", set_if(!request.ids.empty(), request.ids)},
      {"ATB_SAVE_TENSOR_RUNNER",
       set_if(!request.operation_names.empty(), lower_case(request.operation_names))},
      {"ATB_SAVE_CHILD", flag(request.child)},
      {"ATB_SAVE_TENSOR_RANGE", request.range},
      {"ATB_SAVE_TENSOR_PART", std::to_string(request.tensor_part)},
      {"ATB_SAVE_TILING", flag(request.tiling)},
      {"ATB_SAVE_TENSOR_STATISTICS", set_if(request.wants_statistics(), "1")},
      {"ATB_SAVE_SYMLINK", flag(request.symlink)},
      {"ATB_DEVICE_ID", set_if(!request.device.empty(), request.device)},
      {"ATB_AIT_LOG_LEVEL", probe_log_level(request.log_level)},
      {"ATB_DUMP_SUB_PROC_INFO_SAVE_PATH",
       set_if(request.has_type("onnx") && topology, places.scratch)},
      {"ATB_DUMP_CONFIG", set_if(!places.config_path.empty(), places.config_path)},
      {"ATB_CHECK_TYPE", std::nullopt},
      {"ATB_EXIT", std::nullopt},
      {"ASSAY_PROBE_LAYOUT", set_if(native, "native")},
      {"ASSAY_PROBE_DIGEST", set_if(request.digest, "1")},
      {"ASSAY_PROBE_QUEUE_BYTES",
       std::to_string(native ? buffer_bytes(request) : request.queue_bytes)},
      {"ASSAY_PROBE_ON_FULL", request.drop_when_full ? "drop" : "wait"},
      {"ASSAY_PROBE_FILTER_ROWS", set_if(request.filter_rows, "1")},
      {"ASSAY_PROBE_SYNC", set_if(request.synchronous, "1")},
      {"ASSAY_PROBE_STATISTICS_TEXT", set_if(request.compat_text, "f")},
  };
}

std::string torch_settings(const DumpRequest& request, const DumpPlaces& places) {
  std::vector<std::string> patterns = request.modules;
  if (!request.operation_names.empty()) {
    for (const std::string_view name : split(request.operation_names, ',')) {
      if (!name.empty()) patterns.emplace_back(name);
    }
  }
  const bool statistics = request.wants_statistics();
  const bool full = request.has_type("tensor") && !statistics && !request.description_only;
  JsonObject json;
  json.add("output", places.output).add("layout", request.strict ? "strict" : "native");
  json.add("level", request.operators ? "operator" : "module").add("weights", request.weights);
  json.add("steps", list_of_range(request.range)).add_json("modules", json_texts(patterns));
  json.add("statistics", statistics).add("full", full).add("digest", request.digest);
  json.add("report_dir", places.scratch);
  json.add("ranks", list_of_range(request.ranks)).add("parallel", request.parallel);
  json.add("node_memory", request.node_memory).add("disk_budget", request.disk_budget);
  json.add_json("seed", request.seed ? std::to_string(*request.seed) : "null");
  return json.text();
}

// Keys: docs/design/ggml-probe.md
std::string ggml_settings(const DumpRequest& request, const DumpPlaces& places) {
  std::vector<std::string> types;
  if (!request.operation_names.empty()) {
    for (const std::string_view name : split(request.operation_names, ',')) {
      if (!name.empty()) types.push_back(lower_case(name));
    }
  }
  const bool statistics = request.wants_statistics();
  const bool full = request.has_type("tensor") && !statistics && !request.description_only;
  JsonObject json;
  json.add("output", places.output).add("steps", request.range);
  json.add("first_only", !request.range_given).add_json("names", json_texts(request.modules));
  json.add_json("exclude", json_texts(request.exclude)).add_json("types", json_texts(types));
  json.add("full", full).add("statistics", statistics).add("digest", request.digest);
  json.add("inputs", request.tensor_part != 1).add("outputs", request.tensor_part != 0);
  json.add("weights", request.weights).add("caches", request.caches);
  json.add("report_dir", places.scratch).add("config", places.config_path);
  json.add("queue_bytes", buffer_bytes(request)).add("drop_when_full", request.drop_when_full);
  json.add("sync", request.synchronous);
  return json.text();
}

}  // namespace

std::string probe_log_level(std::string_view name) {
  constexpr std::string_view kLevels[] = {"debug", "info", "warning", "error", "fatal", "critical"};
  for (size_t i = 0; i < std::size(kLevels); ++i) {
    if (kLevels[i] == name) return std::to_string(i);
  }
  return "1";
}

std::string preload_value(std::string_view library, std::string_view before) {
  return std::string(library) + (before.empty() ? "" : ":" + std::string(before));
}

std::vector<EnvironmentChange> dump_environment(const DumpRequest& request,
                                                const DumpPlaces& places,
                                                const DumpLibraries& libraries,
                                                std::string_view preload,
                                                std::string_view python_path) {
  std::vector<EnvironmentChange> changes;
  if (!libraries.probe.empty()) changes = atb_variables(request, places);
  std::string preloaded(preload);
  for (const std::string& probe : {libraries.ggml_probe, libraries.probe}) {
    if (!probe.empty()) preloaded = preload_value(probe, preloaded);
  }
  if (preloaded != preload) changes.emplace_back("LD_PRELOAD", preloaded);
  changes.emplace_back("ASSAY_GGML_DUMP",
                       set_if(!libraries.ggml_probe.empty(), ggml_settings(request, places)));
  // JSON is text; a folder's name may be any bytes.
  changes.emplace_back("ASSAY_DUMP_OUTPUT",
                       set_if(repair_utf8(places.output) != places.output, places.output));
  const bool captures = !libraries.ggml_probe.empty() || !libraries.python_folder.empty();
  changes.emplace_back(
      "ASSAY_DUMP_COMMAND",
      set_if(captures, captures ? started_command(request.command, request.assignments) : ""));
  changes.emplace_back("ASSAY_TORCH_DUMP", std::nullopt);
  if (!libraries.python_folder.empty()) {
    changes.back().second = torch_settings(request, places);
    changes.emplace_back("PYTHONPATH", preload_value(libraries.python_folder, python_path));
  }
  if (request.seed) {
    changes.emplace_back("LCCL_DETERMINISTIC", "1");
    changes.emplace_back("HCCL_DETERMINISTIC", "true");
    changes.emplace_back("ATB_MATMUL_SHUFFLE_K_ENABLE", "0");
    changes.emplace_back("ATB_LLM_LCOC_ENABLE", "0");
    changes.emplace_back("PYTHONHASHSEED", std::to_string(*request.seed));
  }
  return changes;
}

}  // namespace assay::cli
