// SPDX-License-Identifier: Apache-2.0
// `assay graph FILE`: a topology or a graph's text as ONNX or Model Explorer JSON, and what differs
// between two of them.
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>

#include "base/atomic_file.hpp"
#include "base/mapped_file.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "cli/ranges.hpp"
#include "cli/topology_files.hpp"
#include "cli/visit_files.hpp"
#include "pair/graph_diff.hpp"
#include "run/folder.hpp"
#include "run/topology_file.hpp"
#include "topology/ge_graph.hpp"
#include "topology/model_explorer.hpp"
#include "topology/onnx_export.hpp"

namespace assay::cli {
namespace {

struct GraphOptions {
  std::string in;
  std::string out;
  int level = -1;
  std::string style;  // empty: by the ending of `out`
  bool share_functions = false;
  bool compat_attributes = false;
  std::string csv = "auto";
  std::string groups;  // the text behind fusion
  std::string other;   // --diff
  bool json = false;
};

Error usage(std::string message) { return {Errc::Usage, {}, std::nullopt, std::move(message)}; }

// ---- converting ---------------------------------------------------------------------------------

struct Style {
  std::string_view name;
  std::string_view suffix;
};
constexpr Style kStyles[] = {{"flat", ".onnx"}, {"hierarchical", ".hier.onnx"}, {"me", ".me.json"}};
constexpr Style kJson = {"json", ".graph.json"};  // of texts only, so not among "all"

std::vector<Style> wanted_styles(std::string_view name) {
  if (name == "onnx") name = "flat";
  if (name == "model-explorer") name = "me";
  if (name == kJson.name) return {kJson};
  std::vector<Style> wanted;
  for (const Style& style : kStyles) {
    if (name == "all" || name == style.name) wanted.push_back(style);
  }
  return wanted;
}

/// The style whose files end as `out` does; "x.json" is Model Explorer's form of a topology, which
/// is JSON already.
std::string style_of(const std::string& out, bool is_text) {
  for (const std::string_view name : {"hierarchical", "me"}) {
    if (out.ends_with(wanted_styles(name).front().suffix)) return std::string(name);
  }
  if (out.ends_with(".json")) return is_text ? "json" : "me";
  return "flat";
}

struct Written {
  std::string source;
  std::string path;
  std::string style;
  size_t nodes = 0;    // drawn at the chosen level
  size_t untyped = 0;  // tensors without type and shape
};

class Converter {
 public:
  explicit Converter(const GraphOptions& options) : options_(options) {}

  int run() {
    if (const Status found = find_files(); !found) return report_error(found.error(), hint_);
    if (const Status ready = choose_target(); !ready) return report_error(ready.error(), hint_);
    for (const std::string& file : files_) {
      if (const Status converted = convert(file); !converted) {
        (void)report_error(converted.error());
        ++failed_;
      }
    }
    if (const Status printed = print(); !printed) return report_error(printed.error());
    if (failed_ == 0) return kSame;
    if (files_.size() > 1)
      return report_error(std::to_string(failed_) + " of " + std::to_string(files_.size()) +
                          " files could not be converted");
    return kUsageOrInput;
  }

 private:
  /// One file, or every topology and text of a graph in a folder and the folders below it.
  Status find_files() {
    if (!run::is_folder(options_.in)) {
      files_.push_back(options_.in);
      return {};
    }
    Status listed;
    visit_files(options_.in,
                {[&](const run::FolderEntry& entry, const std::string&) {
                   if (is_topology_name(entry.name)) files_.push_back(entry.path);
                 },
                 [&](const std::string& sentence) { listed = fail(Errc::Io, sentence); },
                 {}});
    ASSAY_TRY_STATUS(std::move(listed));
    std::sort(files_.begin(), files_.end());
    if (files_.empty()) {
      hint_ =
          "a dump keeps them in layer/<pid>, model/<pid>, as model_tree.json, or as "
          "dynamo_original_graph_*.txt";
      return fail(Error{Errc::NotFound, options_.in, std::nullopt, "holds no topology file"});
    }
    return {};
  }

  static bool is_topology_name(const std::string& name) {
    // What we and the capture write ourselves beside topologies.
    if (name.ends_with(".me.json") || name.ends_with(kJson.suffix) || name == "manifest.json" ||
        name == "graphs.json" || name == "op_param.json" || name.starts_with("probe_summary"))
      return false;
    return name.ends_with(".json") || is_graph_text_name(name);
  }

  Status choose_target() {
    const std::string style = options_.style.empty()
                                  ? style_of(options_.out, !files_.front().ends_with(".json"))
                                  : options_.style;
    styles_ = wanted_styles(style);
    if (options_.out.empty()) return {};
    const bool is_one = files_.size() == 1 && styles_.size() == 1 && !run::is_folder(options_.in);
    to_folder_ = !is_one || options_.out.ends_with('/') || run::is_folder(options_.out);
    if (!to_folder_) return {};
    if (run::is_file(options_.out)) {
      hint_ = "name a folder";
      return fail(usage(options_.out + " is a file, and there are several to write"));
    }
    return make_directories(options_.out);
  }

  [[nodiscard]] std::string target(const std::string& file, const Style& style) const {
    if (options_.out.empty()) return beside(file, std::string(style.suffix));
    if (!to_folder_) return options_.out;
    std::string inside = run::base_name(file);
    if (run::is_folder(options_.in)) {
      inside = file.substr(options_.in.size());
      inside.erase(0, inside.find_first_not_of('/'));
    }
    return run::join_path(options_.out, beside(inside, std::string(style.suffix)));
  }

  Status add_shapes(const std::string& file, topology::Graph* graph) {
    if (options_.csv == "none" || graph->kind == topology::GraphKind::Engine) return {};
    if (options_.csv == "auto") {
      cache_.apply_beside(file, graph);
      return {};
    }
    ASSAY_TRY_STATUS(read_named_csv());
    named_csv_.apply(graph);
    return {};
  }

  Status read_named_csv() {
    if (named_csv_.operation_count() > 0) return {};
    ASSAY_TRY(const MappedFile csv, MappedFile::open(options_.csv));
    named_csv_.add_op_csv(as_text(csv.bytes()));
    if (named_csv_.operation_count() == 0)
      return fail(Error{Errc::Invalid, options_.csv, std::nullopt,
                        "holds no row of an operation list (21 columns, separator '|')"});
    return {};
  }

  Status convert(const std::string& file) {
    ASSAY_TRY(topology::Graph graph, run::read_topology_file(file));
    ASSAY_TRY_STATUS(add_shapes(file, &graph));
    if (!options_.groups.empty()) {
      ASSAY_TRY(const topology::Graph fused, run::read_topology_file(options_.groups));
      graph = topology::group_by_fusion(graph, fused);
    }
    for (const Style& style : styles_) {
      Written written{
          .source = file, .path = target(file, style), .style = std::string(style.name)};
      ASSAY_TRY(const std::string content, content_of(file, graph, style));
      const size_t slash = written.path.rfind('/');
      if (slash != std::string::npos && slash > 0)
        ASSAY_TRY_STATUS(make_directories(written.path.substr(0, slash)));
      ASSAY_TRY_STATUS(write_graph_file(written.path, content));
      count(graph, style, &written);
      written_.push_back(std::move(written));
    }
    for (const std::string& note : graph.notes) notes_.push_back(file + ": " + note);
    return {};
  }

  [[nodiscard]] Result<std::string> content_of(const std::string& file,
                                               const topology::Graph& graph,
                                               const Style& style) const {
    if (style.name == kJson.name) return graph_text_json(file);
    if (style.name == "me") return topology::model_explorer_json(graph, options_.level);
    topology::OnnxOptions options;
    options.level = options_.level;
    options.hierarchical = style.name == "hierarchical";
    options.share_functions = options_.share_functions;
    options.compat_attributes = options_.compat_attributes;
    options.document = document_of(file);
    return topology::onnx_model(graph, options);
  }

  void count(const topology::Graph& graph, const Style& style, Written* written) const {
    const int level = style.name == "hierarchical" ? -1 : options_.level;
    const topology::Wiring wiring = topology::wire_level(graph, level);
    written->nodes = wiring.nodes.size();
    written->untyped = untyped_count(graph, wiring);
  }

  Status print() {
    Output out;
    if (options_.json) {
      out.add("[");
      for (size_t i = 0; i < written_.size(); ++i) {
        const Written& file = written_[i];
        out.add(i > 0 ? ",\n " : "");
        out.add("{\"source\": " + json_quote(file.source) + ", \"path\": " + json_quote(file.path) +
                ", \"style\": " + json_quote(file.style) +
                ", \"nodes\": " + std::to_string(file.nodes) +
                ", \"untyped_tensors\": " + std::to_string(file.untyped) + "}");
      }
      out.line("]");
    } else {
      for (const Written& file : written_) {
        std::string line = printable(file.path) + "  " + counted(file.nodes, "node");
        if (file.untyped > 0) line += ", " + counted(file.untyped, "tensor") + " without shape";
        out.line(line);
      }
    }
    for (const std::string& note : notes_) say("note", note);
    return out.finish();
  }

  const GraphOptions& options_;
  std::vector<std::string> files_;
  std::vector<Style> styles_;
  bool to_folder_ = false;
  ShapeCache cache_;
  topology::ShapeTable named_csv_;
  std::vector<Written> written_;
  std::vector<std::string> notes_;
  size_t failed_ = 0;
  std::string hint_;
};

// ---- difference ---------------------------------------------------------------------------------

std::string sentence(const pair::Difference& difference) {
  using pair::DifferenceKind;
  const std::string type = difference.type.empty() ? "" : " (" + difference.type + ")";
  std::string text;
  switch (difference.kind) {
    case DifferenceKind::Added:
      return "+ " + difference.mine + type + " in " + difference.inside;
    case DifferenceKind::Removed:
      return "- " + difference.golden + type + " in " + difference.inside;
    case DifferenceKind::Rewired:
      return "~ " + difference.golden + type + ": " + difference.detail;
    case DifferenceKind::ChangedParameters:
      text = "~ " + difference.golden + type + ":";
  }
  for (size_t i = 0; i < difference.parameters.size(); ++i) {
    const pair::ParameterChange& change = difference.parameters[i];
    text += (i > 0 ? ", " : " ") + change.name + " ";
    text += (change.in_golden ? change.golden : "absent") + " -> " +
            (change.in_mine ? change.mine : "absent");
  }
  return text;
}

std::string json_of(const pair::Difference& difference) {
  std::string text = "{\"kind\": " + json_quote(pair::difference_name(difference.kind)) +
                     ", \"golden\": " + json_quote(difference.golden) +
                     ", \"mine\": " + json_quote(difference.mine) +
                     ", \"type\": " + json_quote(difference.type) +
                     ", \"inside\": " + json_quote(difference.inside) + ", \"parameters\": {";
  for (size_t i = 0; i < difference.parameters.size(); ++i) {
    const pair::ParameterChange& change = difference.parameters[i];
    text += (i > 0 ? ", " : "") + json_quote(change.name) + ": [" +
            (change.in_golden ? json_quote(change.golden) : "null") + ", " +
            (change.in_mine ? json_quote(change.mine) : "null") + "]";
  }
  return text + "}, \"detail\": " + json_quote(difference.detail) + "}";
}

int run_diff(const GraphOptions& options) {
  const Result<topology::Graph> golden = run::read_topology_file(options.in);
  if (!golden) return report_error(golden.error());
  const Result<topology::Graph> mine = run::read_topology_file(options.other);
  if (!mine) return report_error(mine.error());
  const pair::GraphDiff diff = pair::graph_diff(*golden, *mine);
  Output out;
  if (options.json) {
    out.add("{\"golden\": " + json_quote(options.in) + ", \"mine\": " + json_quote(options.other) +
            ", \"same_nodes\": " + std::to_string(diff.same_nodes.size()) + ", \"differences\": [");
    for (size_t i = 0; i < diff.differences.size(); ++i)
      out.add((i > 0 ? ",\n " : "\n ") + json_of(diff.differences[i]));
    out.line("]}");
  } else {
    for (const pair::Difference& difference : diff.differences)
      out.line(printable(sentence(difference)));
    out.line(diff.differences.empty()
                 ? "same structure, " + counted(diff.same_nodes.size(), "node")
                 : counted(diff.differences.size(), "difference") + ", " +
                       counted(diff.same_nodes.size(), "node") + " on both sides");
  }
  if (const Status printed = out.finish(); !printed) return report_error(printed.error());
  return diff.differences.empty() ? kSame : kDiffers;
}

int run_graph(const GraphOptions& options) {
  if (!options.other.empty()) return run_diff(options);
  return Converter(options).run();
}

}  // namespace

Command graph_command(const Caller& caller) {
  Command command(caller, "Turns a topology or a graph's text into ONNX or Model Explorer files");
  const auto options = std::make_shared<GraphOptions>();
  command.require("FILE", "Topology JSON, text of a graph, or a folder of them", options->in);
  command.add("--output, -o PATH", "File or folder to write; beside FILE by default", options->out);
  command.add("--level N", "-1 all leaves, 0 one node, N graphs at depth N as one node",
              options->level, whole_number(-1, 1'000'000));
  command
      .add("--style, --format {flat,hierarchical,me,json,all}",
           "flat, hierarchical, me, json (of texts) or all; by the ending of -o, else flat",
           options->style)
      .old_choices = {"onnx", "model-explorer"};
  command.add("--groups FILE",
              "Text behind fusion: its fused operators become groups of FILE's operators",
              options->groups);
  command.add("--share-functions", "Hierarchical: equal graphs share one function",
              options->share_functions);
  command.add("--compat-attributes", "Attributes as the original's: FLOATS and STRINGS only",
              options->compat_attributes);
  command.add("--csv VALUE",
              "Operation list for shapes: a file, auto (of the same process) or none",
              options->csv);
  command.add("--diff FILE", "Compare FILE's structure with this one's", options->other);
  command.add("--json", "Results as JSON for programs", options->json);
  command.example =
      "assay graph dump/msit_dump_20260105_100000/layer/4711/Decoder_layer_0.json\n"
      "  assay graph model.json --style hierarchical --share-functions -o model.onnx\n"
      "  assay graph golden.json --diff mine.json\n"
      "  assay graph dynamo_original_graph_1_rank_0_pid_77_ts_20250102030405678901.txt -o "
      "graph.me.json";
  command.run = [options](const ParsedArguments&) { return run_graph(*options); };
  return command;
}

}  // namespace assay::cli
