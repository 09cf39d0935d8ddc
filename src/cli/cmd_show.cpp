// SPDX-License-Identifier: Apache-2.0
// `assay show RUN [NAME]`: a run as a tree, tensors as lines, one tensor with values and histogram.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "base/display.hpp"
#include "base/json_text.hpp"
#include "base/shell_words.hpp"
#include "base/text.hpp"
#include "base/thread_pool.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "cli/ranges.hpp"
#include "cli/ray.hpp"
#include "cli/record_selection.hpp"
#include "cli/record_text.hpp"
#include "cli/run_tree.hpp"
#include "cli/tensor_text.hpp"
#include "report/html/run_page.hpp"
#include "report/terminal_text.hpp"
#include "run/container.hpp"
#include "run/load.hpp"
#include "run/open.hpp"
#include "run/payload_check.hpp"
#include "run/run.hpp"
#include "run/strided_payload.hpp"
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
  RayRequest ray;
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

/// Where the lines go, and how long they may be.
struct Screen {
  Output out;
  std::optional<int> width = {};  // columns; nothing in a pipe, where a line is as long as it is

  [[nodiscard]] int layout_width() const { return width.value_or(80); }
  /// A line that goes on below itself, `indent` columns from the left, where it is too long.
  void line(const std::string& text, size_t indent) {
    out.line(width ? report::hanging(text, indent, static_cast<size_t>(*width)) : text);
  }
  /// A tensor in a list: where it is, its name and its fields, with two blanks between them, where
  /// lines break. A name too long for a line is shortened.
  void tensor(const std::string& place, const std::string& name, const std::string& fields) {
    constexpr size_t kIndent = 4, kLeastName = 16;
    const auto columns = static_cast<size_t>(width.value_or(0));
    const size_t room =
        width ? std::max(kLeastName, columns - std::min(columns, place.size())) : SIZE_MAX;
    std::string text = place + report::shorten(name, room) + "  " + fields;
    for (size_t i = 1; width && i + 1 < text.size(); ++i) {
      if (text[i] == ' ' && text[i - 1] != ' ' && text[i + 1] != ' ') text[i] = report::kNoBreak;
    }
    line(text, kIndent);
  }
};

// Up to this size all of a tensor is read where nobody asked for it: 0.1 s.
constexpr uint64_t kReadWholeBytes = uint64_t{256} << 20;

/// False for a large tensor of which the user did not ask for what takes all of its values.
bool reads_all_values(const ShowOptions& options, const run::TensorRecord& record) {
  return options.stats || options.histogram || tensor_bytes(record) <= kReadWholeBytes;
}

/// Reads headers, and statistics where they are wanted, of all chosen records at once.
std::vector<Shown> look_at(const run::Run& run, const std::vector<size_t>& chosen,
                           const std::function<bool(const run::TensorRecord&)>& wants_stats) {
  std::vector<Shown> shown(chosen.size());
  parallel_for(chosen.size(), resolve_job_count(0), [&](size_t i) {
    Shown& item = shown[i];
    item.record = run.records[chosen[i]];
    item.stats = item.record.stats.without_sketch();
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
  return number_ranges(std::vector<int64_t>(numbers.begin(), numbers.end()), ", ");
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

/// A value of a GGUF file in at most `room` bytes; long texts, such as chat templates, are cut.
std::string metadata_text(const std::string& value, size_t room) {
  std::string text = printable(value);
  if (text.size() <= room) return text;
  if (text.starts_with('[')) return shortened_list(text, room - std::min<size_t>(room, 12));
  const std::string size = "... (" + std::to_string(value.size()) + " bytes)";
  return std::string(first_columns(text, room - std::min(room, size.size()))) + size;
}

/// One line a key of a GGUF file.
void add_file_metadata(const run::Run& run, Screen* screen) {
  constexpr std::string_view kPrefix = "gguf:";
  constexpr size_t kLeastRoom = 24, kWidestKey = 48;
  const auto width = static_cast<size_t>(screen->width.value_or(170));
  size_t key_width = 0;
  for (const auto& [key, value] : run.properties) {
    if (key.starts_with(kPrefix)) key_width = std::max(key_width, key.size() - kPrefix.size());
  }
  key_width = std::min({key_width, kWidestKey, width - std::min(width, kLeastRoom + 4)});
  for (const auto& [key, value] : run.properties) {
    if (!key.starts_with(kPrefix)) continue;
    const std::string name =
        report::pad_right(printable(std::string_view(key).substr(kPrefix.size())), key_width);
    const size_t used = display_columns(name) + 4;
    const size_t room = std::max(kLeastRoom, width - std::min(width, used));
    screen->out.line("  " + name + "  " + metadata_text(value, room));
  }
}

/// One digest of all tensors of a file: of a line for each, by name, with its type, its shape and
/// the digest of its stored bytes. Metadata and places in the file take no part.
std::optional<std::string> weights_digest(const run::Run& run) {
  std::map<std::string, std::string> lines;
  for (const run::TensorRecord& record : run.records) {
    if (!record.bytes || !record.bytes->raw || !record.problem.empty() || !record.shape ||
        run::is_strided(record))
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

void add_head(const run::Run& run, bool with_digest, Screen* screen) {
  std::set<int64_t> steps;
  std::set<int64_t> ranks;
  size_t weights = 0;
  for (const run::TensorRecord& record : run.records) {
    const bool is_weight = record.role == Role::Weight || record.role == Role::Buffer;
    weights += is_weight;
    if (!is_weight && record.step >= 0) steps.insert(record.step);
    ranks.insert(record.rank);
  }
  std::string line = printable(run.path) + ": " + std::string(run::layout_name(run.layout)) + ", " +
                     std::to_string(run.records.size()) + " records";
  if (!steps.empty() && !run.has(run::Trait::Files)) line += ", steps " + numbers_text(steps);
  // The folder of ait is used by one run after the other: their processes are no ranks of one.
  if (const auto runs = run.properties.find("runs"); runs != run.properties.end())
    line += ", " + printable(runs->second) + " runs of " + counted(ranks.size(), "process");
  else if (ranks.size() > 1)
    line += ", ranks " + numbers_text(ranks);
  if (weights > 0) line += ", " + counted(weights, "weight");
  if (run.has(run::Trait::AtenOperators) && !run.operations.empty())
    line += ", " + counted(run.operations.size(), "operator");
  if (!run.coverage.complete) line += ", INCOMPLETE";
  if (!run.damage.empty()) line += ", DAMAGED";
  screen->line(line, 4);
  for (const char* key :
       {"tool", "host.torch", "host.transformers", "host.watched_by", "config.level", "config.data",
        "config.engine", "gguf.version", "config.decomposition_level"}) {
    const auto found = run.properties.find(key);
    if (found != run.properties.end())
      screen->line("  " + std::string(key) + ": " + printable(found->second), 4);
  }
  add_file_metadata(run, screen);
  if (with_digest && run.properties.contains("gguf.version")) {
    if (const auto digest = weights_digest(run))
      screen->line("  digest of all tensors: xxh3-128 " + *digest, 4);
  }
  constexpr std::string_view kGraphs = "graphs.";
  for (const auto& [key, value] : run.properties) {
    if (key.starts_with(kGraphs))
      screen->line("  " + printable(key.substr(kGraphs.size())) + ": " + printable(value), 4);
  }
  if (run.coverage.planned > 0) {
    screen->line("  captured " + std::to_string(run.coverage.captured) + " of " +
                     std::to_string(run.coverage.planned) +
                     (run.has(run::Trait::AtbOperations) ? " tensors" : " nodes"),
                 4);
  }
  for (const native::MissedNode& missed : run.coverage.missed) {
    screen->line("  missed " + std::to_string(missed.count) + " x " + printable(missed.node) +
                     ": " + printable(missed.reason),
                 4);
  }
  for (const std::string& finding : run.findings) screen->line("  found: " + printable(finding), 4);
  for (const std::string& warning : run.warnings)
    screen->line("  warning: " + printable(warning), 4);
}

// ---- lines and details --------------------------------------------------------------------------

/// File and line of the code of the module that all records are of, or in; empty when there are
/// several, or when the run does not know.
std::string source_of(const run::Run& run, const std::vector<Shown>& shown) {
  if (!run.topology || shown.empty()) return {};
  const std::string_view module = module_of_node(shown[0].record.node);
  const bool is_one = std::all_of(shown.begin(), shown.end(), [&](const Shown& item) {
    return module_of_node(item.record.node) == module;
  });
  if (!is_one) return {};
  const auto sources = topology::module_sources(*run.topology);
  const auto found = sources.find(module);
  return found == sources.end() ? std::string() : std::string(found->second);
}

/// Which step, rank and graph a record is of, as far as the run has several.
std::string place_text(const run::Run& run, const run::TensorRecord& record, bool several_graphs) {
  if (!run.has(run::Trait::Steps)) return {};
  std::string text = "step " + printable(record.step_name) + "  ";
  if (record.rank > 0) text += "rank " + std::to_string(record.rank) + "  ";
  if (several_graphs) text += "graph_" + std::to_string(record.graph + 1) + "  ";
  return text;
}

std::string content_text(const Shown& item, bool with_stats) {
  const run::TensorRecord& record = item.record;
  if (!record.problem.empty()) return "problem: " + printable(record.problem);
  if (!record.value.empty()) return "value " + printable(record.value);
  std::string text = type_and_shape(record);
  if (record.bytes) {
    text += "  " + human_bytes(tensor_bytes(record));
  } else if (record.stats) {
    text += "  statistics only";
  }
  if (with_stats && item.stats) text += "  " + stats_text(*item.stats);
  return text;
}

void add_list(const run::Run& run, const std::vector<Shown>& shown, bool with_stats,
              Screen* screen) {
  const bool several_graphs =
      run.has(run::Trait::CompiledGraphs) &&
      std::any_of(run.records.begin(), run.records.end(),
                  [&](const auto& record) { return record.graph != run.records.front().graph; });
  for (const Shown& item : shown) {
    screen->tensor(place_text(run, item.record, several_graphs),
                   printable(record_label(run, item.record)), content_text(item, with_stats));
    if (screen->out.closed()) return;
  }
}

std::vector<const run::TensorRecord*> records_of(const std::vector<Shown>& shown) {
  std::vector<const run::TensorRecord*> records;
  for (const Shown& item : shown) records.push_back(&item.record);
  return records;
}

void add_folded_note(size_t folded, Screen* screen) {
  if (folded == 0) return;
  screen->line(counted(folded, "layer") +
                   (folded == 1 ? " that equals another is" : " that equal others are") +
                   " left out: --all shows every line",
               0);
}

/// A line a tensor of files; those of equal layers share one.
void add_files(const std::vector<Shown>& shown, Screen* screen) {
  bool folded = false;
  for (const FileLine& line : folded_files(records_of(shown))) {
    const std::string times = line.times > 1 ? "  (" + std::to_string(line.times) + " times)" : "";
    screen->tensor("", printable(line.label), content_text(shown[line.index], false) + times);
    folded |= line.times > 1;
    if (screen->out.closed()) return;
  }
  if (folded) screen->line("equal layers share a line: --all shows every line", 0);
}

void add_tree(const run::Run& run, const std::vector<Shown>& shown, bool fold, Screen* screen) {
  const TreeText tree = tree_text(run, records_of(shown), {.fold = fold, .width = screen->width});
  screen->out.add(tree.lines);
  add_folded_note(tree.folded, screen);
}

void add_values_and_histogram(const Shown& item, const ShowOptions& options, bool values,
                              bool histogram, Screen* screen) {
  if (!item.record.bytes) return;
  const Result<Tensor> tensor = run::load_unchecked(item.record);
  if (!tensor) {
    screen->line("problem: " + printable(tensor.error().describe()), 4);
    return;
  }
  if (item.record.check) {
    const std::string damage = item.record.check.problem(item.record, tensor->view);
    if (!damage.empty()) screen->line("damaged: " + printable(damage), 4);
  }
  const int width = screen->layout_width();
  if (values) screen->out.add(value_lines(tensor->view, options.all ? -1 : kEdgeValues, width));
  if (histogram) {
    screen->out.line("histogram");
    screen->out.add(
        histogram_lines(tensor->view, stats::compute_stats(tensor->view), kHistogramBins, width));
  }
}

void add_details(const run::Run& run, const Shown& item, const ShowOptions& options,
                 Screen* screen) {
  const run::TensorRecord& record = item.record;
  const auto field = [&](std::string_view key, const std::string& value) {
    std::string line(key);
    line.resize(10, ' ');
    screen->line(line + printable(value), 10);
  };
  screen->line(printable(record_label(run, record)), 4);
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
  const bool histogram = options.histogram || (!asked && reads_all_values(options, record));
  add_values_and_histogram(item, options, options.values || !asked, histogram, screen);
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
  json.add("role", role_name(record.role)).add("slot", record.slot);
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

/// Several tensors: what run they are of, then a tree or lines.
void add_run(const run::Run& run, const std::vector<Shown>& shown, const ShowOptions& options,
             Screen* screen) {
  add_head(run, options.stats, screen);
  const bool details = options.values || options.histogram;
  const bool wants_lines = options.list || options.stats || options.narrowed || details;
  if (wants_lines || (run.has(run::Trait::Files) && options.all)) {
    if (const std::string source = source_of(run, shown); options.narrowed && !source.empty())
      screen->line("  source: " + printable(source), 4);
    add_list(run, shown, options.stats, screen);
  } else if (run.has(run::Trait::Files)) {
    add_files(shown, screen);
  } else {
    add_tree(run, shown, !options.all, screen);
  }
  if (!details) return;
  Output& out = screen->out;
  for (size_t i = 0; i < std::min(shown.size(), kMaxSeparateDetails) && !out.closed(); ++i) {
    out.line("\n" + printable(record_label(run, shown[i].record)) + ", step " +
             printable(shown[i].record.step_name));
    add_values_and_histogram(shown[i], options, options.values, options.histogram, screen);
  }
  if (shown.size() > kMaxSeparateDetails) {
    out.line("\n" + std::to_string(shown.size() - kMaxSeparateDetails) +
             " more tensors: choose with NAME, --step, --rank");
  }
}

int run_show(const ShowOptions& options) {
  const Result<run::Run> run = run::open_run(options.run);
  if (!run)
    return report_error(
        run.error(),
        "assay show RUN takes a run folder, a step or module folder, or a tensor file");
  const std::vector<size_t> chosen = select_records(*run, options.filter);
  if (chosen.empty() && options.narrowed) {
    return report_usage("no record of " + options.run + " fits" +
                            (options.filter.name.empty() ? std::string(" these steps and ranks")
                                                         : " '" + options.filter.name + "'") +
                            guess(*run, options.filter.name),
                        "assay show " + shell_quote(options.run));
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

  Screen screen;
  screen.width = options.width > 0 ? options.width : terminal_columns(STDOUT_FILENO);
  Output& out = screen.out;
  if (options.json) {
    add_json(*run, shown, &out);
  } else if (one_tensor) {
    for (const std::string& warning : run->warnings)
      screen.line("warning: " + printable(warning), 4);
    add_details(*run, shown[0], options, &screen);
  } else {
    add_run(*run, shown, options, &screen);
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
  add_ray_options(command, options->ray, false);
  command.example =
      "assay show golden\n  assay show golden 'model.layers.*.mlp' --stats\n  assay show x.npy "
      "--values --all";
  command.run = [options](const ParsedArguments& parsed) {
    const bool named = !options->filter.name.empty();
    options->narrowed = named || parsed.given("--step") || parsed.given("--rank");
    options->filter.weights |= named;
    if (has_to_hand_over(options->ray))
      return hand_over_to_ray(options->ray, "show", parsed.all, {options->run});
    return run_show(*options);
  };
  return command;
}

}  // namespace assay::cli
