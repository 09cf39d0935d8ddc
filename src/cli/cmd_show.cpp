// SPDX-License-Identifier: Apache-2.0
// `assay show RUN [NAME]`: a run as a tree, tensors as lines, one tensor with values and histogram.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "base/json_text.hpp"
#include "base/text.hpp"
#include "base/thread_pool.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "cli/ranges.hpp"
#include "cli/record_selection.hpp"
#include "cli/tensor_text.hpp"
#include "report/html/run_page.hpp"
#include "run/container.hpp"
#include "run/payload_check.hpp"
#include "run/run.hpp"
#include "tensor/block_types.hpp"

namespace assay::cli {
namespace {

struct ShowOptions {
  std::string run;
  RecordFilter filter;
  bool narrowed = false;  // a name, steps or ranks were given
  bool stats = false;
  bool values = false;
  bool all = false;
  bool histogram = false;
  bool json = false;
  bool list = false;
  std::string html;  // path of the page; empty: none
  int width = 0;     // columns; 0 asks the terminal
};

constexpr int64_t kEdgeValues = 12;
constexpr int kHistogramBins = 24;
// --values and --histogram of more tensors would bury the reader
constexpr size_t kMaxSeparateDetails = 20;

/// What is known of one chosen record after its file was looked at.
struct Shown {
  run::TensorRecord record;
  std::optional<stats::TensorStats> stats;
  bool computed = false;  // stats come from the values, not from the record
};

/// "float32"; of block-quantised values what they are stored as: "q8_0".
std::optional<BlockType> block_type(const run::TensorRecord& record) {
  return block_type_from_name(record.memory_format);
}
std::string dtype_text(const run::TensorRecord& record) {
  if (block_type(record)) return record.memory_format;
  return record.dtype ? std::string(name(*record.dtype)) : "?";
}

/// As they are stored.
uint64_t tensor_bytes(const run::TensorRecord& record) {
  if (!record.dtype || !record.shape) return 0;
  const std::optional<int64_t> count = element_count(*record.shape);
  if (!count) return 0;
  if (const auto blocks = block_type(record))
    return blocked_bytes(*blocks, *record.shape).value_or(0);
  return storage_bytes(*record.dtype, static_cast<uint64_t>(*count)).value_or(0);
}

// Up to this size all of a tensor is read even where only some values are printed: 0.1 s.
constexpr uint64_t kReadWholeBytes = uint64_t{256} << 20;

/// False when the user asked for some values of a large tensor only.
bool reads_all_values(const ShowOptions& options, const run::TensorRecord& record) {
  return options.stats || options.histogram || !options.values ||
         tensor_bytes(record) <= kReadWholeBytes;
}

/// Reads headers, and statistics where they are wanted, of all chosen records at once.
std::vector<Shown> look_at(const run::Run& run, const std::vector<size_t>& chosen,
                           const std::function<bool(const run::TensorRecord&)>& wants_stats) {
  std::vector<Shown> shown(chosen.size());
  parallel_for(chosen.size(), resolve_job_count(0), [&](size_t i) {
    Shown& item = shown[i];
    item.record = run.records[chosen[i]];
    item.stats = item.record.stats;
    if (!item.record.bytes || !item.record.problem.empty()) return;
    if (const Status header = run::load_header(item.record); !header) {
      item.record.problem = header.error().describe();
      return;
    }
    if (item.stats || !wants_stats(item.record)) return;
    const Result<Tensor> tensor = run::load_unchecked(item.record);
    if (!tensor) {
      item.record.problem = tensor.error().describe();
      return;
    }
    item.stats = stats::compute_stats(tensor->view);
    item.computed = true;
  });
  return shown;
}

std::string type_and_shape(const run::TensorRecord& record) {
  std::string text = dtype_text(record);
  if (record.shape) text += ' ' + list_text(record.shape->span());
  if (!record.memory_format.empty() && !block_type(record))
    text += ' ' + printable(record.memory_format);
  return text;
}

std::string stats_text(const stats::TensorStats& stats) {
  std::string text = "min " + short_number(stats.min) + "  max " + short_number(stats.max) +
                     "  mean " + short_number(stats.mean);
  // Tables of graph mode need not have the norm.
  if (!std::isnan(stats.l2_norm)) text += "  l2 " + short_number(stats.l2_norm);
  if (stats.has_non_finite()) {
    text += "  nan " + std::to_string(stats.nan_count) + "  +inf " +
            std::to_string(stats.positive_inf_count) + "  -inf " +
            std::to_string(stats.negative_inf_count);
  }
  return text;
}

// ---- the head -----------------------------------------------------------------------------------

/// "0-3, 7"
std::string numbers_text(const std::set<int64_t>& numbers) {
  std::string text;
  for (auto it = numbers.begin(); it != numbers.end();) {
    int64_t last = *it;
    const int64_t first = *it++;
    while (it != numbers.end() && *it == last + 1) last = *it++;
    text += (text.empty() ? "" : ", ") + std::to_string(first);
    if (last > first) text += "-" + std::to_string(last);
  }
  return text;
}

/// The first elements of a list, and how many it has when it was cut before: ["<s>", ...] (32000)
std::string shortened_list(const std::string& text, size_t max_bytes) {
  const size_t cut = text.rfind(", ", max_bytes);
  const size_t end = text.rfind("] (");
  std::string out = cut == std::string::npos ? "[" : text.substr(0, cut) + ", ";
  out += "...]";
  if (end != std::string::npos && text.ends_with(')')) out += text.substr(end + 1);
  return out;
}

/// One line a key of a GGUF file; long texts, such as chat templates, are cut.
void add_file_metadata(const run::Run& run, Output* out) {
  constexpr std::string_view kPrefix = "gguf:";
  constexpr size_t kMaxShownBytes = 100;
  size_t width = 0;
  for (const auto& [key, value] : run.properties) {
    if (key.starts_with(kPrefix)) width = std::max(width, key.size() - kPrefix.size());
  }
  for (const auto& [key, value] : run.properties) {
    if (!key.starts_with(kPrefix)) continue;
    std::string line = printable(std::string_view(key).substr(kPrefix.size()));
    line.resize(std::max(line.size(), std::min<size_t>(width, 48)), ' ');
    std::string text = printable(value);
    if (text.size() > kMaxShownBytes && text.starts_with('[')) {
      text = shortened_list(text, kMaxShownBytes);
    } else if (text.size() > kMaxShownBytes) {
      text = repair_utf8(std::string_view(text).substr(0, kMaxShownBytes)) + "... (" +
             std::to_string(value.size()) + " bytes)";
    }
    out->line("  " + line + "  " + text);
  }
}

/// One digest of all tensors of a file: of a line for each, by name, with its type, its shape and
/// the digest of its stored bytes. Metadata and places in the file take no part.
std::optional<std::string> weights_digest(const run::Run& run) {
  std::map<std::string, std::string> lines;
  for (const run::TensorRecord& record : run.records) {
    if (!record.bytes || !record.bytes->raw || !record.problem.empty() || !record.shape)
      return std::nullopt;
    const auto container = run::open_container(record.bytes->file);
    if (!container) return std::nullopt;
    ByteReader reader((*container)->bytes(), record.bytes->offset);
    const auto stored = reader.read_bytes(record.bytes->size_bytes);
    if (!stored) return std::nullopt;
    const ByteSpan bytes = *stored;
    const auto view = make_view(DType::UInt8, Dims{static_cast<int64_t>(bytes.size())}, bytes);
    if (!view) return std::nullopt;
    lines[record.slot] = dtype_text(record) + list_text(record.shape->span()) +
                         stats::digest_text(stats::digest(*view));
  }
  std::string text;
  for (const auto& [name, line] : lines) text += name + '\0' + line + '\n';
  const auto view =
      make_view(DType::UInt8, Dims{static_cast<int64_t>(text.size())}, as_bytes(text));
  if (!view) return std::nullopt;
  return stats::digest_text(stats::digest(*view));
}

void add_head(const run::Run& run, bool with_digest, Output* out) {
  std::set<int64_t> steps;
  std::set<int64_t> ranks;
  size_t weights = 0;
  for (const run::TensorRecord& record : run.records) {
    const bool is_weight = record.role == run::Role::Weight || record.role == run::Role::Buffer;
    weights += is_weight;
    if (!is_weight && record.step >= 0) steps.insert(record.step);
    ranks.insert(record.rank);
  }
  std::string line = printable(run.path) + ": " + std::string(run::layout_name(run.layout)) + ", " +
                     std::to_string(run.records.size()) + " records";
  if (!steps.empty() && !run.has(run::Trait::Files)) line += ", steps " + numbers_text(steps);
  if (ranks.size() > 1) line += ", ranks " + numbers_text(ranks);
  if (weights > 0) line += ", " + counted(weights, "weight");
  if (run.has(run::Trait::AtenOperators) && !run.operations.empty())
    line += ", " + counted(run.operations.size(), "operator");
  if (!run.coverage.complete) line += ", INCOMPLETE";
  if (!run.damage.empty()) line += ", DAMAGED";
  out->line(line);
  for (const char* key : {"tool", "host.torch", "config.level", "config.data", "config.engine",
                          "gguf.version", "config.decomposition_level"}) {
    const auto found = run.properties.find(key);
    if (found != run.properties.end())
      out->line("  " + std::string(key) + ": " + printable(found->second));
  }
  add_file_metadata(run, out);
  if (with_digest && run.properties.contains("gguf.version")) {
    if (const auto digest = weights_digest(run))
      out->line("  digest of all tensors: xxh3-128 " + *digest);
  }
  constexpr std::string_view kGraphs = "graphs.";
  for (const auto& [key, value] : run.properties) {
    if (key.starts_with(kGraphs))
      out->line("  " + printable(key.substr(kGraphs.size())) + ": " + printable(value));
  }
  if (run.coverage.planned > 0) {
    out->line("  captured " + std::to_string(run.coverage.captured) + " of " +
              std::to_string(run.coverage.planned) +
              (run.has(run::Trait::AtbOperations) ? " tensors" : " nodes"));
  }
  for (const native::MissedNode& missed : run.coverage.missed) {
    out->line("  missed " + std::to_string(missed.count) + " x " + printable(missed.node) + ": " +
              printable(missed.reason));
  }
  for (const std::string& finding : run.findings) out->line("  found: " + printable(finding));
  for (const std::string& warning : run.warnings) out->line("  warning: " + printable(warning));
}

// ---- the tree -----------------------------------------------------------------------------------

struct NodeSummary {
  std::string type;
  std::set<int64_t> steps;
  std::set<std::string> dtypes;
  size_t tensors = 0;
  size_t values = 0;
  size_t problems = 0;
  uint64_t size_bytes = 0;
};

std::string summary_text(const NodeSummary& node, bool with_steps) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (!node.type.empty()) text = printable(node.type) + ":";
  if (node.tensors > 0) text += (text.empty() ? "" : " ") + counted(node.tensors, "tensor");
  if (node.values > 0) add(counted(node.values, "value"));
  if (node.size_bytes > 0) add(human_bytes(node.size_bytes));
  for (const std::string& dtype : node.dtypes) add(dtype);
  if (with_steps && !node.steps.empty()) add("steps " + numbers_text(node.steps));
  if (node.problems > 0) add(counted(node.problems, "problem"));
  return text;
}

/// How a node's name shows where it is in the tree.
class NodeNames {
 public:
  /// separator   between the parts of a name; nothing when names have no parts
  explicit NodeNames(std::optional<char> separator) : separator_(separator) {}

  /// The nodes around one, outermost first.
  [[nodiscard]] std::vector<std::string> parents_of(const std::string& node) const {
    std::vector<std::string> parents;
    if (!separator_) return parents;
    const size_t mark = node.find(run::kOperatorMark);
    if (mark != std::string::npos && mark > 0) parents.push_back(node.substr(0, mark));
    for (size_t dot = node.rfind(*separator_, mark); dot != std::string::npos && dot > 0;
         dot = node.rfind(*separator_, dot - 1)) {
      parents.push_back(node.substr(0, dot));
    }
    std::reverse(parents.begin(), parents.end());
    return parents;
  }

  [[nodiscard]] std::string last_part(const std::string& node) const {
    if (!separator_) return node;
    if (const size_t mark = node.find(run::kOperatorMark); mark != std::string::npos)
      return node.substr(mark + run::kOperatorMark.size());
    return node.substr(node.rfind(*separator_) + 1);
  }

 private:
  std::optional<char> separator_;
};

/// One line a node, indented by its depth, nodes in the order of their first record.
/// separator   between the parts of a node's name; nothing when names have no parts
void add_tree(const std::vector<Shown>& shown, std::optional<char> separator, Output* out) {
  std::vector<std::string> order;
  std::map<std::string, NodeSummary> nodes;
  std::set<int64_t> steps;
  for (const Shown& item : shown) {
    const run::TensorRecord& record = item.record;
    auto [found, is_new] = nodes.try_emplace(record.node);
    if (is_new) order.push_back(record.node);
    NodeSummary& node = found->second;
    if (!record.op_type.empty() && record.value.empty()) node.type = record.op_type;
    if (!record.problem.empty()) {
      ++node.problems;
    } else if (!record.value.empty()) {
      ++node.values;
    } else {
      ++node.tensors;
      if (record.dtype) node.dtypes.insert(dtype_text(record));
      if (record.bytes) node.size_bytes += tensor_bytes(record);
    }
    if (record.step >= 0) {
      node.steps.insert(record.step);
      steps.insert(record.step);
    }
  }
  const NodeNames names(separator);
  std::set<std::string> printed;
  for (const std::string& node_name : order) {
    // Parents come first, with a line even when they have no records: the indentation tells the
    // truth.
    std::vector<std::string> missing = names.parents_of(node_name);
    missing.push_back(node_name);
    for (size_t depth = 0; depth < missing.size(); ++depth) {
      const std::string& line_name = missing[depth];
      if (!printed.insert(line_name).second) continue;
      const std::string last = names.last_part(line_name);
      std::string line(2 * depth, ' ');
      line += last.empty() ? "(model)" : printable(last);
      const auto found = nodes.find(line_name);
      if (found != nodes.end()) {
        line.resize(std::max<size_t>(line.size() + 2, 36), ' ');
        line += summary_text(found->second, steps.size() > 1);
      }
      out->line(line);
    }
    if (out->closed()) return;
  }
}

/// The operators of one graph after the other, with a heading where there are several.
void add_graphs(const std::vector<Shown>& shown, Output* out) {
  std::map<uint32_t, std::vector<Shown>> graphs;
  for (const Shown& item : shown) graphs[item.record.graph].push_back(item);
  for (const auto& [graph, items] : graphs) {
    if (graphs.size() > 1) out->line("graph_" + std::to_string(graph + 1));
    add_tree(items, std::nullopt, out);
    if (out->closed()) return;
  }
}

// ---- lines and details --------------------------------------------------------------------------

/// File and line of the code of the module that all records are of, or in; empty when there are
/// several, or when the run does not know.
std::string source_of(const run::Run& run, const std::vector<Shown>& shown) {
  if (!run.topology || shown.empty()) return {};
  const std::string_view module = run::module_of_node(shown[0].record.node);
  const bool is_one = std::all_of(shown.begin(), shown.end(), [&](const Shown& item) {
    return run::module_of_node(item.record.node) == module;
  });
  if (!is_one) return {};
  const auto sources = topology::module_sources(*run.topology);
  const auto found = sources.find(module);
  return found == sources.end() ? std::string() : std::string(found->second);
}

void add_list(const run::Run& run, const std::vector<Shown>& shown, bool with_stats, Output* out) {
  const bool several_graphs =
      run.has(run::Trait::CompiledGraphs) &&
      std::any_of(run.records.begin(), run.records.end(),
                  [&](const auto& record) { return record.graph != run.records.front().graph; });
  for (const Shown& item : shown) {
    const run::TensorRecord& record = item.record;
    std::string line;
    if (run.has(run::Trait::Steps)) {
      line = "step " + printable(record.step_name) + "  ";
      if (record.rank > 0) line += "rank " + std::to_string(record.rank) + "  ";
      if (several_graphs) line += "graph_" + std::to_string(record.graph + 1) + "  ";
    }
    line += printable(record_label(run, record)) + "  ";
    if (!record.problem.empty()) {
      line += "problem: " + printable(record.problem);
    } else if (!record.value.empty()) {
      line += "value " + printable(record.value);
    } else {
      line += type_and_shape(record);
      if (record.bytes) {
        line += "  " + human_bytes(tensor_bytes(record));
      } else if (record.stats) {
        line += "  statistics only";
      }
      if (with_stats && item.stats) line += "  " + stats_text(*item.stats);
    }
    out->line(line);
    if (out->closed()) return;
  }
}

void add_values_and_histogram(const Shown& item, const ShowOptions& options, int width, bool values,
                              bool histogram, Output* out) {
  if (!item.record.bytes) return;
  const Result<Tensor> tensor = run::load_unchecked(item.record);
  if (!tensor) {
    out->line("problem: " + printable(tensor.error().describe()));
    return;
  }
  if (item.record.check != nullptr) {
    const std::string damage = item.record.check->problem(item.record, tensor->view);
    if (!damage.empty()) out->line("damaged: " + printable(damage));
  }
  if (values) out->add(value_lines(tensor->view, options.all ? -1 : kEdgeValues, width));
  if (histogram) {
    out->line("histogram");
    out->add(
        histogram_lines(tensor->view, stats::compute_stats(tensor->view), kHistogramBins, width));
  }
}

void add_details(const run::Run& run, const Shown& item, const ShowOptions& options, int width,
                 Output* out) {
  const run::TensorRecord& record = item.record;
  const auto field = [&](std::string_view key, const std::string& value) {
    std::string line(key);
    line.resize(10, ' ');
    out->line(line + printable(value));
  };
  out->line(printable(record_label(run, record)));
  if (run.has(run::Trait::Steps))
    field("step",
          record.step_name + (record.rank > 0 ? ", rank " + std::to_string(record.rank) : ""));
  if (!record.op_type.empty()) field("type", record.op_type);
  if (const std::string source = source_of(run, {item}); !source.empty()) field("source", source);
  if (record.bytes) {
    std::string place = record.bytes->file;
    if (record.bytes->raw) place += " at byte " + std::to_string(record.bytes->offset);
    field("file", place);
  }
  if (!record.problem.empty()) {
    field("problem", record.problem);
    return;
  }
  if (!record.value.empty()) {
    field("value", record.value);
    return;
  }
  if (record.dtype) field("dtype", dtype_text(record));
  if (record.shape) field("shape", list_text(record.shape->span()));
  if (record.strides) field("strides", list_text(record.strides->span()));
  if (record.bytes) field("bytes", std::to_string(tensor_bytes(record)));
  if (record.digest) {
    field("digest", "xxh3-128 " + stats::digest_text(*record.digest));
  } else if (!reads_all_values(options, record)) {
    field("digest", "not computed, nor statistics: --stats reads all of it");
  } else if (const Result<Tensor> tensor = run::load_unchecked(record)) {
    field("digest", "xxh3-128 " + stats::digest_text(stats::digest(tensor->view)));
  }
  if (item.stats) {
    field("count", std::to_string(item.stats->count));
    field("stats", stats_text(*item.stats) + (item.computed ? "" : "  (recorded)"));
  }
  // One tensor is small enough a subject to show everything.
  const bool asked = options.values || options.histogram;
  add_values_and_histogram(item, options, width, options.values || !asked,
                           options.histogram || !asked, out);
}

// ---- json ---------------------------------------------------------------------------------------

std::string json_dims(const std::optional<Dims>& dims) {
  return dims ? list_text(dims->span()) : "null";
}

std::string json_stats(const stats::TensorStats& stats) {
  JsonObject json;
  json.add("count", stats.count).add("nan", stats.nan_count);
  json.add("pos_inf", stats.positive_inf_count).add("neg_inf", stats.negative_inf_count);
  json.add_json("min", json_number(stats.min)).add_json("max", json_number(stats.max));
  json.add_json("mean", json_number(stats.mean)).add_json("l2", json_number(stats.l2_norm));
  return json.text();
}

std::string json_record(const Shown& item) {
  const run::TensorRecord& record = item.record;
  JsonObject json;
  json.add("rank", record.rank).add("step", record.step).add("step_name", record.step_name);
  json.add("node", record.node).add("type", record.op_type);
  json.add("role", run::role_name(record.role)).add("slot", record.slot);
  json.add("call", record.call).add("order", record.order);
  json.add_json("dtype", record.dtype ? json_quote(name(*record.dtype)) : "null");
  json.add_json("shape", json_dims(record.shape)).add_json("strides", json_dims(record.strides));
  if (record.bytes) {
    json.add("file", record.bytes->file).add("member", record.bytes->member);
    if (record.bytes->raw) json.add("offset", record.bytes->offset);
    json.add("bytes", tensor_bytes(record));
  }
  if (const auto blocks = block_type(record)) {
    json.add("block_type", name(*blocks)).add("block", info(*blocks).block_values);
    json.add("block_bytes", info(*blocks).block_bytes);
  }
  if (item.stats)
    json.add_json("stats", json_stats(*item.stats)).add("stats_recorded", !item.computed);
  if (record.digest) json.add("digest", stats::digest_text(*record.digest));
  if (!record.value.empty()) json.add("value", record.value);
  if (!record.problem.empty()) json.add("problem", record.problem);
  return json.text();
}

void add_json(const run::Run& run, const std::vector<Shown>& shown, Output* out) {
  JsonObject coverage;
  coverage.add("complete", run.coverage.complete).add("planned", run.coverage.planned);
  coverage.add("captured", run.coverage.captured);
  coverage.add_json("missed", json_list(run.coverage.missed, [](const native::MissedNode& missed) {
                      JsonObject one;
                      one.add("node", missed.node).add("reason", missed.reason);
                      return one.add("count", missed.count).text();
                    }));
  JsonObject properties;
  for (const auto& [key, value] : run.properties) properties.add(key, value);
  JsonObject json;
  json.add("path", run.path).add("layout", run::layout_name(run.layout));
  json.add_json("coverage", coverage.text()).add_json("properties", properties.text());
  json.add_json("warnings", json_texts(run.warnings));
  json.add_json("findings", json_texts(run.findings));
  out->add(std::string(json.open_text()) + ",\"records\":[");
  const char* comma = "\n";
  for (const Shown& item : shown) {
    out->add(comma + json_record(item));
    comma = ",\n";
    if (out->closed()) return;
  }
  out->add("\n]}\n");
}

// ---- the command --------------------------------------------------------------------------------

int run_show(const ShowOptions& options) {
  const Result<run::Run> run = run::open_run(options.run);
  if (!run)
    return report_error(
        run.error(),
        "assay show RUN takes a run folder, a step or module folder, or a tensor file");
  const std::vector<size_t> chosen = select_records(*run, options.filter);
  if (chosen.empty() && options.narrowed) {
    std::string hint = "assay show " + options.run + " lists what there is";
    const std::vector<std::string> similar = similar_names(*run, options.filter.name, 3);
    for (size_t i = 0; i < similar.size(); ++i)
      hint += (i == 0 ? "; similar: " : ", ") + printable(similar[i]);
    return report_error("no record of " + options.run + " fits" +
                            (options.filter.name.empty() ? std::string(" these steps and ranks")
                                                         : " '" + options.filter.name + "'"),
                        hint);
  }
  if (!options.html.empty()) {
    const Status written =
        report::html::write_page(report::html::run_page(*run, chosen), options.html);
    if (!written) return report_error(written.error());
    return print_result("page: " + printable(options.html) + "\n", kSame);
  }
  const bool one_tensor = chosen.size() == 1 && (options.narrowed || run->has(run::Trait::OneFile));
  const std::vector<Shown> shown = look_at(*run, chosen, [&](const run::TensorRecord& record) {
    return options.stats || (one_tensor && reads_all_values(options, record));
  });

  const int width = options.width > 0 ? options.width : terminal_width(STDOUT_FILENO);
  Output out;
  if (options.json) {
    add_json(*run, shown, &out);
  } else if (one_tensor) {
    for (const std::string& warning : run->warnings) out.line("warning: " + printable(warning));
    add_details(*run, shown[0], options, width, &out);
  } else {
    add_head(*run, options.stats, &out);
    const bool wants_lines = options.list || options.stats || options.values || options.histogram ||
                             options.narrowed || run->has(run::Trait::Files);
    if (wants_lines) {
      if (const std::string source = source_of(*run, shown); options.narrowed && !source.empty())
        out.line("  source: " + printable(source));
      add_list(*run, shown, options.stats, &out);
    } else {
      if (run->has(run::Trait::CompiledGraphs)) {
        add_graphs(shown, &out);
      } else {
        add_tree(shown, run->has(run::Trait::AtbOperations) ? '/' : '.', &out);
      }
    }
    if (options.values || options.histogram) {
      for (size_t i = 0; i < std::min(shown.size(), kMaxSeparateDetails) && !out.closed(); ++i) {
        out.line("\n" + printable(record_label(*run, shown[i].record)) + ", step " +
                 printable(shown[i].record.step_name));
        add_values_and_histogram(shown[i], options, width, options.values, options.histogram, &out);
      }
      if (shown.size() > kMaxSeparateDetails) {
        out.line("\n" + std::to_string(shown.size() - kMaxSeparateDetails) +
                 " more tensors: choose with NAME, --step, --rank");
      }
    }
  }
  if (const Status written = out.finish(); !written) return report_error(written.error());
  return kSame;
}

}  // namespace

Command show_command(const Caller& caller) {
  Command command(caller, "Lists a run; shows one tensor's values, statistics and histogram");
  const auto options = std::make_shared<ShowOptions>();
  options->filter.weights = false;
  command.require("RUN", "Run folder of any layout, a step or module folder, or a tensor file",
                  options->run);
  command.add("NAME", "Node or tensor: 'root.lm_head', 'norm.output', or a pattern: '*.mlp'",
              options->filter.name);
  command.add("--step VALUE", "Only these steps: 0,2-4",
              parsed_into(options->filter.steps, parse_number_set));
  command.add("--rank VALUE", "Only these ranks",
              parsed_into(options->filter.ranks, parse_number_set));
  command.add("--list", "One line a tensor instead of the tree", options->list);
  command.add("--stats", "Statistics: as recorded, otherwise computed", options->stats)
      .old_names = {"-st"};
  command.add("--values", "First and last values", options->values);
  command.add("--all", "With --values: every value", options->all);
  command.add("--histogram", "Histogram of the values", options->histogram);
  command.add("--weights", "Weights and buffers too", options->filter.weights);
  command.add("--json", "One JSON object for programs", options->json);
  command.add("--html FILE", "One page to open in a browser, without a network", options->html);
  command.add("--width N", "Columns to use; the terminal's by default", options->width,
              whole_number(20, 1000));
  command.example =
      "assay show golden\n  assay show golden 'model.layers.*.mlp' --stats\n  assay show x.npy "
      "--values --all";
  command.run = [options](const ParsedArguments& parsed) {
    const bool named = !options->filter.name.empty();
    options->narrowed = named || parsed.given("--step") || parsed.given("--rank");
    options->filter.weights |= named;
    return run_show(*options);
  };
  return command;
}

}  // namespace assay::cli
