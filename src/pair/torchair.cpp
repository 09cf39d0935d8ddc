// SPDX-License-Identifier: Apache-2.0
// Ranks and graphs of two dumps, and the texts of each graph; its tensors are paired by
// graph_matcher.hpp.
#include "pair/torchair.hpp"

#include <algorithm>
#include <set>

#include "pair/graph_matcher.hpp"

namespace assay::pair {
namespace {

using run::Run;
using run::TensorRecord;

std::set<int> graph_ranks_of(const Run& run) {
  std::set<int> ranks;
  for (const TensorRecord& record : run.records) {
    if (record.kind == run::RecordKind::Operand) ranks.insert(record.rank);
  }
  return ranks;
}

std::vector<uint32_t> graphs_of(const Run& run, int rank) {
  std::set<uint32_t> graphs;
  for (const TensorRecord& record : run.records) {
    if (record.rank == rank && record.kind == run::RecordKind::Operand) graphs.insert(record.graph);
  }
  return {graphs.begin(), graphs.end()};
}

/// True when the dump has a folder for each rank.
bool has_rank_folders(const Run& run) {
  return std::any_of(run.graph_files.begin(), run.graph_files.end(),
                     [](const Run::GraphFile& file) { return file.rank >= 0; });
}

/// (golden, mine)
Result<std::vector<std::pair<int, int>>> common_ranks(const Run& golden, const Run& mine,
                                                      const UserRules& user,
                                                      std::vector<std::string>* warnings) {
  const std::set<int> golden_ranks = graph_ranks_of(golden);
  const std::set<int> mine_ranks = graph_ranks_of(mine);
  std::vector<std::pair<int, int>> ranks;
  for (const int rank : mine_ranks) {
    if (golden_ranks.contains(rank)) ranks.emplace_back(rank, rank);
  }
  if (!has_rank_folders(mine)) {
    if (!user.ranks.empty())
      warnings->push_back(
          "The directory structure of torchair data is old, the rank parameter will not take "
          "effect.");
    // The folder of one rank can be compared by itself with a dump without such folders.
    if (ranks.empty() && golden_ranks.size() == 1 && mine_ranks.size() == 1)
      ranks.emplace_back(*golden_ranks.begin(), *mine_ranks.begin());
  } else if (!user.ranks.empty()) {
    for (const int rank : user.ranks) {
      if (!golden_ranks.contains(rank) || !mine_ranks.contains(rank))
        return fail(Errc::Usage, "rank " + std::to_string(rank) + " is not present on both sides");
    }
    std::erase_if(ranks, [&user](const auto& rank) {
      return std::find(user.ranks.begin(), user.ranks.end(), rank.second) == user.ranks.end();
    });
  }
  if (ranks.empty()) return fail(Errc::Usage, "No common rank data in golden_path and my_path.");
  return ranks;
}

/// The graph of golden that belongs to one of mine: that of the same number, or, where the two
/// sides number them differently, that in the same place.
std::optional<uint32_t> golden_graph_of(const std::vector<uint32_t>& golden,
                                        const std::vector<uint32_t>& mine, size_t place) {
  if (std::find(golden.begin(), golden.end(), mine[place]) != golden.end() &&
      (golden == mine || golden.size() != mine.size()))
    return mine[place];
  if (golden.size() == mine.size()) return golden[place];
  return std::nullopt;
}

/// The tokens of golden that mine has, too; they are taken out of `golden`.
GraphTokens take_tokens(const GraphTokens& mine, GraphTokens* golden) {
  GraphTokens out;
  for (const auto& [token, operators] : mine) {
    if (auto node = golden->extract(token)) out.insert(std::move(node));
  }
  return out;
}

/// How many operators of mine golden knows: by their names or, in FX, by those of the values they
/// make.
size_t known_operators(const Operators& golden, const Operators& mine, const GeGraph& graph,
                       bool golden_is_fx) {
  size_t known = 0;
  for (const auto& [name, op] : mine) {
    const formats::GraphOp* maker = golden_is_fx ? graph.find(name) : nullptr;
    const auto value = maker == nullptr ? std::nullopt : fx_value_of(*maker, 0);
    known += golden_is_fx ? value && golden.contains(value->node) : golden.contains(name);
  }
  return known;
}

/// Tokens that the run under test's graph has and its counterpart has not: one side compiled the
/// same code anew. The graph of golden that ran in this token and shares most names takes its
/// place, if they are half of all: different code has a few names in common, the first operator of
/// each type.
void take_recompiled(const GraphTokens& mine, const GeGraph& graph, bool golden_is_fx,
                     std::map<uint32_t, GraphTokens>* golden, GraphTokens* counterpart,
                     std::vector<std::string>* warnings) {
  for (const auto& [token, operators] : mine) {
    if (counterpart->contains(token)) continue;
    GraphTokens* best = nullptr;
    size_t best_known = 0;
    for (auto& [number, tokens] : *golden) {
      const auto found = tokens.find(token);
      if (found == tokens.end()) continue;
      const size_t known = known_operators(found->second, operators, graph, golden_is_fx);
      if (known > best_known) {
        best = &tokens;
        best_known = known;
      }
    }
    if (best == nullptr || 2 * best_known < std::min(operators.size(), best->at(token).size()))
      continue;
    counterpart->insert(best->extract(token));
    warnings->push_back("step " + std::to_string(token) +
                        " ran in graphs of different numbers: paired by the names of operators");
  }
}

bool is_text_before_passes(const std::string& path) {
  return path.substr(path.rfind('/') + 1).starts_with("dynamo_original_");
}

/// What the texts of golden say about its fusion; nothing without them.
GeGraph read_metadata(const Run& golden, int rank, uint32_t graph,
                      std::vector<std::string>* warnings) {
  GeGraph out;
  for (const Run::GraphFile& file : golden.graph_files) {
    if ((file.rank >= 0 && file.rank != rank) || file.graph != graph ||
        is_text_before_passes(file.path))
      continue;
    if (const Status read = out.add_metadata(file.path); !read)
      warnings->push_back(read.error().describe());
  }
  return out;
}

}  // namespace

GeGraph read_graph(const Run& run, int rank, uint32_t graph, std::vector<std::string>* warnings) {
  std::vector<const Run::GraphFile*> files;
  for (const Run::GraphFile& file : run.graph_files) {
    if ((file.rank < 0 || file.rank == rank) && file.graph == graph) files.push_back(&file);
  }
  std::stable_partition(files.begin(), files.end(), [](const Run::GraphFile* file) {
    return is_text_before_passes(file->path);
  });
  GeGraph out;
  bool has_operators = false;
  for (const Run::GraphFile* file : files) {
    if (!has_operators) {
      Result<GeGraph> read = GeGraph::read(file->path);
      if (read) {
        out = *std::move(read);
        has_operators = true;
      } else {
        warnings->push_back(read.error().describe());
        continue;
      }
      if (is_text_before_passes(file->path)) continue;
    }
    if (const Status read = out.add_metadata(file->path); !read)
      warnings->push_back(read.error().describe());
  }
  if (!has_operators)
    warnings->push_back("graph " + std::to_string(graph) + ": there is no text of it");
  return out;
}

bool is_torchair_pair(const run::Run& golden, const run::Run& mine) {
  return mine.has(run::Trait::GeOperators) && !mine.graph_files.empty() &&
         (golden.has(run::Trait::FxNodes) || golden.has(run::Trait::GeOperators));
}

Result<std::vector<GraphMatching>> match_torchair(const run::Run& golden, const run::Run& mine,
                                                  const UserRules& user,
                                                  const MatchOptions& options) {
  std::vector<std::string> warnings;
  ASSAY_TRY(const auto ranks, common_ranks(golden, mine, user, &warnings));
  std::vector<GraphMatching> out;
  for (const auto& [golden_rank, mine_rank] : ranks) {
    const std::vector<uint32_t> golden_graphs = graphs_of(golden, golden_rank);
    const std::vector<uint32_t> mine_graphs = graphs_of(mine, mine_rank);
    if (golden_graphs.size() != mine_graphs.size())
      warnings.push_back("mine has " + std::to_string(mine_graphs.size()) + " graphs, golden " +
                         std::to_string(golden_graphs.size()));
    std::map<uint32_t, GraphTokens> golden_tokens;
    for (const uint32_t graph : golden_graphs)
      golden_tokens[graph] = group_by_token(golden, golden_rank, graph);
    std::vector<GraphTokens> mine_tokens;
    for (const uint32_t graph : mine_graphs)
      mine_tokens.push_back(group_by_token(mine, mine_rank, graph));
    std::vector<GraphTokens> counterparts;
    for (size_t i = 0; i < mine_graphs.size(); ++i) {
      const auto graph = golden_graph_of(golden_graphs, mine_graphs, i);
      counterparts.push_back(graph ? take_tokens(mine_tokens[i], &golden_tokens[*graph])
                                   : GraphTokens{});
    }
    std::vector<GeGraph> texts;
    for (const uint32_t graph : mine_graphs)
      texts.push_back(read_graph(mine, mine_rank, graph, &warnings));
    const bool golden_is_fx = golden.has(run::Trait::FxNodes);
    for (size_t i = 0; i < mine_graphs.size(); ++i)
      take_recompiled(mine_tokens[i], texts[i], golden_is_fx, &golden_tokens, &counterparts[i],
                      &warnings);
    // What is left of golden has no counterpart; it is listed with the graph of its number.
    for (size_t i = 0; i < mine_graphs.size(); ++i) {
      const auto graph = golden_graph_of(golden_graphs, mine_graphs, i);
      if (graph) counterparts[i].merge(golden_tokens[*graph]);
    }
    for (size_t i = 0; i < mine_graphs.size(); ++i) {
      const auto golden_graph = golden_graph_of(golden_graphs, mine_graphs, i);
      GeGraph golden_texts;
      if (golden_graph) golden_texts = read_metadata(golden, golden_rank, *golden_graph, &warnings);
      GraphMatcher matcher(golden, mine, user, options, texts[i], golden_texts);
      GraphMatching matching;
      matching.rank = has_rank_folders(mine) ? mine_rank : -1;
      matching.graph = static_cast<int>(mine_graphs[i]);
      matching.matching = matcher.match(counterparts[i], mine_tokens[i]);
      matching.matching.ranks = {mine_rank};
      out.push_back(std::move(matching));
    }
  }
  if (!out.empty()) {
    std::vector<std::string>& first = out[0].matching.warnings;
    first.insert(first.begin(), warnings.begin(), warnings.end());
  }
  return out;
}

}  // namespace assay::pair
