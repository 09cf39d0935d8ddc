// SPDX-License-Identifier: Apache-2.0
// The name of a text tells its kind, number, rank and time; of each number the newest text counts.
// The i-th text belongs to the i-th graph with data, or number N to graph_N where graphs are called
// so.
#include "run/sources/ge_texts.hpp"

#include <algorithm>

#include "base/mapped_file.hpp"
#include "formats/graph_text.hpp"
#include "run/natural_sort.hpp"
#include "run/sources/graph_folders.hpp"

namespace assay::run::sources {
namespace {

/// The first number in a name: of a dynamo text that of the graph.
int64_t first_number(std::string_view name) {
  const size_t start = std::min(name.find_first_of("0123456789"), name.size());
  const size_t end = std::min(name.find_first_not_of("0123456789", start), name.size());
  return parse_number<int64_t>(name.substr(start, end - start)).value_or(0);
}

/// "..._rank_3_pid_77_..." -> 3.
std::optional<int> rank_in_name(std::string_view name) {
  constexpr std::string_view kMark = "rank_";
  const size_t at = name.find(kMark);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = name.substr(at + kMark.size());
  return parse_number<int>(rest.substr(0, rest.find('_')));
}

/// "..._ts_20250102030405678901.txt" -> "20250102030405678901".
std::string_view time_in_name(std::string_view name) {
  constexpr std::string_view kMark = "_ts_";
  const size_t at = name.rfind(kMark);
  if (at == std::string_view::npos) return "";
  const std::string_view rest = name.substr(at + kMark.size());
  return rest.substr(0, rest.find('.'));
}

/// The engine writes its texts into a folder of their own; one inside a rank's folder is that
/// rank's.
std::optional<int> rank_of_build(const GraphTextFile& text) {
  const std::string real = real_path(text.path);
  return rank_of(components_of(real));
}

bool belongs_to(const GraphTextFile& text, int rank) {
  if (rank == -1) return true;
  if (text.kind == GraphTextKind::Build) return rank_of_build(text).value_or(rank) == rank;
  return rank_in_name(text.name) == rank;
}

/// By number, of each the newest.
std::vector<const GraphTextFile*> texts_of(const std::vector<GraphTextFile>& texts,
                                           GraphTextKind kind, int rank) {
  std::map<int64_t, const GraphTextFile*> newest;
  for (const GraphTextFile& text : texts) {
    if (text.kind != kind || !belongs_to(text, rank)) continue;
    const GraphTextFile*& known = newest[first_number(text.name)];
    const auto older = [&] {
      const std::string_view a = time_in_name(known->name);
      const std::string_view b = time_in_name(text.name);
      return a != b ? natural_less(a, b) : natural_less(known->path, text.path);
    };
    if (known == nullptr || older()) known = &text;
  }
  std::vector<const GraphTextFile*> list;
  for (const auto& [number, text] : newest) list.push_back(text);
  return list;
}

void assign(const std::vector<const GraphTextFile*>& texts, const RankGraphs& graphs,
            bool by_number, Run* run) {
  for (size_t i = 0; i < texts.size(); ++i) {
    std::optional<uint32_t> place;
    if (by_number) {
      const int64_t number = first_number(texts[i]->name);
      for (const uint32_t known : graphs.places) {
        if (int64_t{known} == number - 1) place = known;
      }
    } else if (i < graphs.places.size()) {
      place = graphs.places[i];
    }
    if (place) {
      run->graph_files.push_back({graphs.rank, *place, texts[i]->path});
    } else {
      run->warnings.push_back(texts[i]->path + ": there is no dump of this graph");
    }
  }
}

}  // namespace

std::optional<GraphTextKind> graph_text_kind(std::string_view name) {
  if (!name.ends_with(".txt") || name.find_first_of("0123456789") == std::string_view::npos)
    return std::nullopt;
  if (name.starts_with("dynamo_original_graph_")) return GraphTextKind::Original;
  if (name.starts_with("dynamo_optimized_graph_")) return GraphTextKind::Optimized;
  if (name.starts_with("ge_proto_") && name.ends_with("_Build.txt")) return GraphTextKind::Build;
  return std::nullopt;
}

void assign_graph_texts(const std::vector<GraphTextFile>& texts,
                        const std::vector<RankGraphs>& ranks, Run* run) {
  for (const RankGraphs& graphs : ranks) {
    for (const GraphTextKind kind :
         {GraphTextKind::Original, GraphTextKind::Optimized, GraphTextKind::Build}) {
      const bool by_number = kind != GraphTextKind::Build && graphs.named;
      assign(texts_of(texts, kind, graphs.rank), graphs, by_number, run);
    }
  }
}

void add_graph_topology(Run* run) {
  if (run->graph_files.empty()) return;
  const int rank = run->graph_files.front().rank;
  TopologyNode root{"", "graphs", {}};
  std::map<uint32_t, std::string> texts;
  for (const Run::GraphFile& file : run->graph_files) {
    // The text before the passes stands first.
    if (file.rank == rank) texts.try_emplace(file.graph, file.path);
  }
  for (const auto& [graph, path] : texts) {
    const Result<MappedFile> file = MappedFile::open(path);
    const auto read =
        file ? in_file(path, formats::read_graph_text(as_text(file->bytes()))) : fail(file.error());
    if (!read) {
      run->warnings.push_back(read.error().describe());
      continue;
    }
    TopologyNode node{"graph_" + std::to_string(graph + 1), "graph", {}};
    for (const formats::GraphText& text : *read) {
      for (const formats::GraphOp& op : text.ops) {
        node.children.push_back({op.name, op.type, {}});
        node.children.back().exec_order = static_cast<int64_t>(node.children.size()) - 1;
      }
    }
    root.children.push_back(std::move(node));
  }
  if (!root.children.empty()) run->topology = std::move(root);
}

}  // namespace assay::run::sources
