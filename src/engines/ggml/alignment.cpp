// SPDX-License-Identifier: Apache-2.0
// GgmlSide and HfSide index the records of the two runs. Aligner finds the graphs that computed the
// tokens of each step, then the node of each tensor and the rows that both sides have. Last, the
// recipes that bring a pair to one shape.   docs/design/ggml-pairs.md
#include "engines/ggml/alignment.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

#include "base/numbers.hpp"
#include "base/text.hpp"
#include "pair/slices.hpp"
#include "pair/step_tokens.hpp"

namespace assay::engines::ggml {
namespace {

using pair::hold_sequences;
using pair::integer_values;
using pair::Merge;
using pair::PlacedToken;
using pair::Recipe;
using pair::RecipeStep;
using pair::sequence_keys;
using pair::shape_of_record;
using pair::StepTokens;
using pair::token_keys;
using pair::TokenKeys;
using pair::torch_steps;
using run::Run;
using run::TensorRecord;

constexpr std::string_view kRotated = "::aten.add.Tensor.";  // x cos + rotated(x) sin
constexpr std::string_view kCached = "::aten.cat.default.";  // what was cached, and the new
// Experts of a layer in one parameter: rows are sorted by their expert, then multiplied group by
// group.
constexpr std::string_view kSorted = "::aten.sort.default.0";
constexpr std::string_view kGateUp = "::aten._grouped_mm.default.0";
constexpr std::string_view kDown = "::aten._grouped_mm.default.1";

/// The strict torch dump puts `root` in front of every path.
std::string_view module_path(std::string_view node) {
  if (node == "root") return {};
  return node.starts_with("root.") ? node.substr(5) : node;
}

bool is_first_input(std::string_view slot) {
  return slot == "0" || slot == "kwargs.hidden_states" || slot == "kwargs.input" || slot == "input";
}

bool is_first_output(std::string_view slot) { return slot.empty() || slot == "0"; }

/// "model.layers.3.self_attn" -> "3"; "" outside of layers.
std::string layer_in(std::string_view module) {
  const size_t at = module.rfind("layers.");
  if (at == std::string_view::npos) return {};
  const std::string_view rest = module.substr(at + 7);
  return std::string(rest.substr(0, rest.find('.')));
}

int64_t product(std::span<const int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

/// A norm of each head by itself: [1, tokens, heads, channels].
bool is_by_head(const TensorPair& pair, const Dims& shape) {
  const std::string& module = pair.tensor.module;
  return shape.size() == 4 && shape[0] == 1 && !is_rotated(pair.tensor.place) &&
         (module.ends_with("q_norm") || module.ends_with("k_norm"));
}

std::vector<int64_t> counted(int64_t count) {
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  return numbers;
}

// ---- the ggml side ----

class GgmlSide {
 public:
  explicit GgmlSide(const Run& run) : run_(run) {
    for (size_t i = 0; i < run.records.size(); ++i) {
      const TensorRecord& record = run.records[i];
      if (record.role == Role::Input) {
        if (!record.leaf.empty()) leaves_.try_emplace({record.step, kind_of(record.leaf)}, i);
        if (const auto node = parse_node(record.node))
          sources_.try_emplace(
              {record.step, std::string(node->name), std::string(node->op), record.slot}, i);
      } else if (record.role == Role::Output) {
        if (const auto node = parse_node(record.node))
          nodes_.try_emplace({record.step, std::string(node->name), std::string(node->op)}, i);
      }
      steps_.insert(record.step);
    }
    for (const run::OperationRecord& operation : run.operations) read_rope(operation);
  }

  /// Graphs that compute tokens, in order.
  [[nodiscard]] std::vector<StepTokens> tokens() const {
    std::vector<StepTokens> out;
    for (const int64_t step : steps_) {
      const auto positions = leaf(step, "pos");
      const auto ids = leaf(step, "tokens");
      if (!positions && !ids) continue;
      StepTokens tokens{.step = step, .ids = ids.has_value()};
      tokens.tokens.resize(ids ? ids->size() : positions->size());
      for (size_t i = 0; i < tokens.tokens.size(); ++i) {
        if (positions && i < positions->size()) tokens.tokens[i].position = (*positions)[i];
        if (ids) tokens.tokens[i].token = (*ids)[i];
      }
      out.push_back(std::move(tokens));
    }
    return out;
  }

  [[nodiscard]] std::optional<size_t> find(int64_t step, const GraphNode& node) const {
    const auto found = nodes_.find({step, node.name, std::string(node.op)});
    return found == nodes_.end() ? std::nullopt : std::optional(found->second);
  }

  /// A source of a node: "src1" of a product is what it multiplies its weight with.
  [[nodiscard]] std::optional<size_t> find_source(int64_t step, const std::string& name,
                                                  const std::string& op,
                                                  const std::string& slot) const {
    const auto found = sources_.find({step, name, op, slot});
    return found == sources_.end() ? std::nullopt : std::optional(found->second);
  }

  /// A source of a layer's flash attention. The node has no name of its own, but that of a source,
  /// in which the layer stands.
  [[nodiscard]] std::optional<size_t> find_attended(int64_t step, const std::string& layer,
                                                    const std::string& slot) const {
    for (const auto& [key, record] : sources_) {
      const auto& [at, name, op, source] = key;
      if (at == step && op == "flash_attn_ext" && source == slot &&
          (name.ends_with("-" + layer) || name.find("-" + layer + ")") != std::string::npos ||
           name.find("-" + layer + " ") != std::string::npos))
        return record;
    }
    return std::nullopt;
  }

  /// Where a graph writes the keys of its tokens.
  [[nodiscard]] std::optional<std::vector<int64_t>> written_cells(int64_t step) const {
    return leaf(step, "cells");
  }

  /// With a cache of blocks attention works on rotated values, and `kqv_out` is rotated, too.
  [[nodiscard]] bool rotates_attention(int64_t step) const {
    return leaves_.contains({step, "attention rotation"});
  }

  /// Numbers of the experts that each row of a layer goes to, [rows, chosen].
  [[nodiscard]] std::optional<std::vector<int64_t>> choices(int64_t step, const std::string& layer,
                                                            int64_t chosen) const {
    auto found = find(step, {.name = "ffn_moe_topk-" + layer, .op = "top_k"});
    if (!found) found = find(step, {.name = "ffn_moe_argsort-" + layer, .op = "argsort"});
    if (!found || !run_.records[*found].shape || run_.records[*found].shape->empty())
      return std::nullopt;
    const Dims& shape = *run_.records[*found].shape;
    const int64_t experts = shape[shape.size() - 1];
    const auto sorted = integer_values(run_.records[*found]);
    if (!sorted || chosen > experts) return std::nullopt;
    std::vector<int64_t> first;
    for (size_t row = 0; row < sorted->size(); row += static_cast<size_t>(experts))
      first.insert(first.end(), sorted->begin() + static_cast<std::ptrdiff_t>(row),
                   sorted->begin() + static_cast<std::ptrdiff_t>(row) + chosen);
    return first;
  }

  /// Which tokens of a graph have rows behind the choice of those whose logits are wanted.
  [[nodiscard]] std::optional<std::vector<int64_t>> requested(int64_t step) const {
    return leaf(step, "out_ids");
  }

  /// Channels of a head among which rope turns neighbours; 0 where it turns halves, or not known.
  [[nodiscard]] int64_t head_size(const std::string& layer, int64_t step) const {
    if (!neighbours_) return 0;
    for (const std::string_view name : {"Qcur-", "Kcur-"}) {
      const auto rope = find(step, {.name = std::string(name) + layer, .op = "rope"});
      if (!rope || !run_.records[*rope].shape) continue;
      const Dims& shape = *run_.records[*rope].shape;
      if (!shape.empty() && shape[shape.size() - 1] % 2 == 0) return shape[shape.size() - 1];
    }
    return 0;
  }

 private:
  /// What a leaf holds, by the end of its name: engines differ in what stands before it.
  static std::string kind_of(std::string_view leaf) {
    if (leaf.ends_with("out_ids")) return "out_ids";
    if (leaf.ends_with("inp_pos")) return "pos";
    if (leaf.ends_with("inp_tokens")) return "tokens";
    if (leaf.ends_with("v_rot")) return "attention rotation";
    if (leaf.ends_with("k_idxs")) return "cells";
    return std::string(leaf);
  }

  [[nodiscard]] std::optional<std::vector<int64_t>> leaf(int64_t step, const char* kind) const {
    const auto found = leaves_.find({step, kind});
    return found == leaves_.end() ? std::nullopt : integer_values(run_.records[found->second]);
  }

  /// Mode 0 turns neighbours; mode 2 turns halves, and modes 8, 24 and 40 sections of halves.
  void read_rope(const run::OperationRecord& operation) {
    if (operation.op_type != "ggml.rope" || neighbours_known_) return;
    const auto arguments =
        nlohmann::json::parse(operation.parameters, nullptr, /*allow_exceptions=*/false);
    if (!arguments.is_object()) return;
    const auto mode = arguments.find("mode");
    if (mode == arguments.end() || !mode->is_number_integer()) return;
    neighbours_known_ = true;
    neighbours_ = mode->get<int64_t>() == 0;
  }

  const Run& run_;
  std::map<std::tuple<int64_t, std::string, std::string>, size_t> nodes_;  // first of that name
  std::map<std::pair<int64_t, std::string>, size_t> leaves_;
  std::map<std::tuple<int64_t, std::string, std::string, std::string>, size_t> sources_;
  std::set<int64_t> steps_;
  bool neighbours_ = false;
  bool neighbours_known_ = false;
};

// ---- the Hugging Face side ----

/// A record and the tensor of a module that it is: node_names.cpp may know nodes for that.
struct HfPlace {
  size_t record = 0;
  ModuleTensor tensor;
};

class HfSide {
 public:
  explicit HfSide(const Run& run) : run_(run) {
    using Module = std::tuple<int64_t, uint32_t, std::string>;  // step, call, path
    std::map<Module, std::vector<size_t>> sums;
    std::map<Module, std::vector<size_t>> caches;
    for (size_t i = 0; i < run.records.size(); ++i) {
      const TensorRecord& record = run.records[i];
      if (record.kind != run::RecordKind::Operand || !record.value.empty()) continue;
      if (record.role != Role::Input && record.role != Role::Output) continue;
      const size_t mark = record.node.find(kOperatorMark);
      if (mark == std::string::npos) {
        add_module(i);
      } else if (std::string_view(record.node).substr(0, mark).ends_with(".experts")) {
        add_to_experts(i, mark);
      } else if (record.role == Role::Output && record.shape && record.shape->size() == 4) {
        Module module{record.step, record.call, record.node.substr(0, mark)};
        if (record.node.find(kRotated) == mark)
          sums[std::move(module)].push_back(i);
        else if (record.node.find(kCached) == mark)
          caches[std::move(module)].push_back(i);
      }
    }
    for (const auto& [key, records] : sums) {
      if (!add_rotated(std::get<2>(key), records)) continue;
      if (const auto found = caches.find(key); found != caches.end())
        add_cached(std::get<2>(key), *run.records[records[1]].shape, found->second);
    }
    for (const auto& [key, experts] : experts_) {
      const std::string& module = key.second;
      if (!experts.order || !experts.gate_up || !experts.product || !experts.down) continue;
      places_.push_back({*experts.gate_up, {module, ModulePlace::ExpertGate}});
      places_.push_back({*experts.gate_up, {module, ModulePlace::ExpertUp}});
      places_.push_back({*experts.product, {module, ModulePlace::ExpertProduct}});
      places_.push_back({*experts.down, {module, ModulePlace::ExpertDown}});
    }
    std::ranges::stable_sort(places_, {}, &HfPlace::record);
  }

  [[nodiscard]] const std::vector<HfPlace>& places() const { return places_; }

  [[nodiscard]] std::vector<StepTokens> tokens() const { return torch_steps(run_); }

  /// What the rows of a module of experts are.
  struct ExpertRows {
    std::vector<int64_t> order;    // token * chosen + place among the chosen
    std::vector<int64_t> choices;  // numbers of experts, [tokens, chosen]
    int64_t chosen = 0;            // experts of each token
  };
  [[nodiscard]] std::optional<ExpertRows> expert_rows(int64_t step,
                                                      const std::string& module) const {
    const auto found = experts_.find({step, module});
    const auto router = choices_.find({step, module.substr(0, module.rfind('.')) + ".gate"});
    if (found == experts_.end() || !found->second.order || router == choices_.end())
      return std::nullopt;
    const std::optional<Dims> shape = shape_of_record(run_.records[router->second]);
    auto order = integer_values(run_.records[*found->second.order]);
    auto choices = integer_values(run_.records[router->second]);
    if (!order || !choices || !shape || shape->empty() || order->size() != choices->size())
      return std::nullopt;
    const auto count = static_cast<int64_t>(order->size());
    const int64_t chosen = (*shape)[shape->size() - 1];
    const bool inside =
        std::ranges::all_of(*order, [&](int64_t place) { return place >= 0 && place < count; });
    if (chosen == 0 || !inside) return std::nullopt;
    return ExpertRows{*std::move(order), *std::move(choices), chosen};
  }

  /// Channels of the module's output in that step; 0: not known.
  [[nodiscard]] int64_t width(int64_t step, const std::string& module) const {
    const auto found = widths_.find({step, module});
    return found == widths_.end() ? 0 : found->second;
  }

 private:
  /// Records of operators in a module of experts.
  struct Experts {
    std::optional<size_t> order, gate_up, product, down;
  };
  void add_module(size_t index) {
    const TensorRecord& record = run_.records[index];
    const std::string_view module = module_path(record.node);
    const bool input = record.role == Role::Input;
    if (record.call > 0) return;
    if (!input && (record.slot == "1" || record.slot == "2")) {
      places_.push_back({index,
                         {.module = std::string(module),
                          .place = record.slot == "1" ? ModulePlace::RouterWeights
                                                      : ModulePlace::RouterChoices}});
      if (record.slot == "2") choices_.try_emplace({record.step, std::string(module)}, index);
      return;
    }
    if (!(input ? is_first_input(record.slot) : is_first_output(record.slot))) return;
    if (!input) {
      const std::optional<Dims> shape = shape_of_record(record);
      if (shape && !shape->empty())
        widths_.try_emplace({record.step, std::string(module)}, (*shape)[shape->size() - 1]);
    }
    places_.push_back({index,
                       {.module = std::string(module),
                        .place = input ? ModulePlace::Input : ModulePlace::Output}});
  }

  void add_to_experts(size_t index, size_t mark) {
    const TensorRecord& record = run_.records[index];
    const std::string_view operation = std::string_view(record.node).substr(mark);
    const std::string module(module_path(std::string_view(record.node).substr(0, mark)));
    Experts& experts = experts_[{record.step, module}];
    const bool input = record.role == Role::Input;
    if (record.call > 0) return;
    if (operation == kSorted && !input && record.slot == "1") experts.order = index;
    if (operation == kGateUp && !input) experts.gate_up = index;
    if (operation == kDown && input && record.slot == "self") experts.product = index;
    if (operation == kDown && !input) experts.down = index;
  }

  /// Of attention's sums the first two of equal heads are queries and keys behind the rotary
  /// embedding.
  bool add_rotated(const std::string& module, const std::vector<size_t>& sums) {
    if (sums.size() < 2 || !module.ends_with("self_attn")) return false;
    const Dims& query = *run_.records[sums[0]].shape;
    const Dims& key = *run_.records[sums[1]].shape;
    if (query[2] != key[2] || query[3] != key[3] || key[1] == 0 || query[1] % key[1] != 0)
      return false;
    places_.push_back({sums[0], {module, ModulePlace::RotatedQuery}});
    places_.push_back({sums[1], {module, ModulePlace::RotatedKey}});
    return true;
  }

  /// The last two of a layer's concatenations that have the keys' heads. Those before them join the
  /// halves of a head for the rotary embedding.
  void add_cached(const std::string& module, const Dims& key, std::vector<size_t> joined) {
    std::erase_if(joined, [&](size_t record) {
      const Dims& shape = *run_.records[record].shape;
      return shape[0] != 1 || shape[1] != key[1] || shape[2] < key[2] || shape[3] != key[3];
    });
    const size_t count = joined.size();
    if (count < 2) return;
    const Dims& keys = *run_.records[joined[count - 2]].shape;
    const Dims& values = *run_.records[joined[count - 1]].shape;
    if (!(keys == values)) return;
    places_.push_back({joined[count - 2], {module, ModulePlace::CachedKeys}});
    places_.push_back({joined[count - 1], {module, ModulePlace::CachedValues}});
  }

  const Run& run_;
  std::vector<HfPlace> places_;
  std::map<std::pair<int64_t, std::string>, Experts> experts_;  // by step and module
  std::map<std::pair<int64_t, std::string>, size_t> choices_;   // by step and router
  std::map<std::pair<int64_t, std::string>, int64_t> widths_;
};

// ---- both ----

class Aligner {
 public:
  Aligner(const Run& hf, const Run& ggml) : hf_run_(hf), ggml_run_(ggml), hf_(hf), ggml_(ggml) {}

  Result<Alignment> align(const std::vector<std::pair<int64_t, int64_t>>& steps) {
    if (steps.empty() && (hold_sequences(hf_.tokens()) || hold_sequences(ggml_.tokens()))) {
      ASSAY_TRY_STATUS(find_sequences());
    } else if (steps.empty()) {
      find_spans();
    } else {
      take_spans(steps);
    }
    if (out_.spans.empty())
      return fail(Errc::Usage,
                  "no graph of the ggml run computes tokens of the Hugging Face run at their "
                  "positions: were both given the same prompt?");
    for (size_t i = 0; i < out_.spans.size(); ++i) span_of_.emplace(out_.spans[i].hf_step, i);
    for (const HfPlace& place : hf_.places()) pair(place);
    return std::move(out_);
  }

 private:
  /// Each step of Hugging Face takes the next graphs whose tokens, one graph after the other, are
  /// its own: all of them, or those behind what was taken from a cache.
  void find_spans() {
    const std::vector<StepTokens> wanted = hf_.tokens();
    const std::vector<StepTokens> graphs = ggml_.tokens();
    const bool are_known = std::ranges::all_of(graphs, is_known);
    size_t next = 0;
    std::optional<int64_t> lost;  // first step without graphs
    for (size_t i = 0; i < wanted.size(); ++i) {
      const StepTokens& step = wanted[i];
      size_t cached = 0;
      auto found = find_graphs(step, 0, graphs, next);
      while (!found && are_known && is_known(step) && ++cached < step.tokens.size())
        found = find_graphs(step, cached, graphs, next);
      if (!found) {
        if (!lost) lost = step.step;
        continue;
      }
      next = found->second;
      if (cached > 0) {
        add_cached(wanted, i, cached, graphs, *found);
        continue;
      }
      TokenSpan span{.hf_step = step.step, .tokens = static_cast<int64_t>(step.tokens.size())};
      for (size_t graph = found->first; graph < found->second; ++graph)
        span.ggml_steps.push_back(graphs[graph].step);
      out_.spans.push_back(std::move(span));
    }
    describe_spans(lost, graphs);
  }

  /// A step whose first tokens no graph of its own computed: they are compared where graphs of an
  /// earlier request have them; where none has, the step is not compared.
  ///
  /// own   the graphs, [first, last), of its other tokens
  void add_cached(const std::vector<StepTokens>& wanted, size_t i, size_t cached,
                  const std::vector<StepTokens>& graphs, std::pair<size_t, size_t> own) {
    const TokenKeys of_hf = token_keys(wanted);
    const std::set<uint64_t> keys(of_hf.steps[i].begin(), of_hf.steps[i].end());
    const TokenKeys of_ggml = sequence_keys(graphs, keys);
    // Where each token was computed last, no later than in the step's own graphs.
    std::map<uint64_t, std::pair<size_t, size_t>> places;  // graph and row; the last before it
    for (size_t graph = 0; of_hf.from_start && graph < own.second; ++graph) {
      for (size_t row = 0; row < of_ggml.steps[graph].size(); ++row)
        places.insert_or_assign(of_ggml.steps[graph][row], std::pair(graph, row));
    }
    const bool is_there =
        std::ranges::all_of(of_hf.steps[i], [&](uint64_t key) { return places.contains(key); });
    const std::string what = "the first " + assay::counted(cached, "token") + " of " +
                             std::to_string(wanted[i].tokens.size()) + " of Hugging Face's step " +
                             std::to_string(wanted[i].step) + " were taken from a cache";
    if (is_there) {
      add_span(wanted[i], of_hf.steps[i], graphs, places);
      out_.notes.push_back(what + ": they are compared where an earlier request computed them");
    } else {
      out_.missing = what + ", which no graph of the run filled: that step is not compared";
      out_.notes.push_back(out_.missing);
    }
  }

  static bool is_known(const StepTokens& step) {
    return step.ids && std::ranges::all_of(
                           step.tokens, [](const PlacedToken& one) { return one.position >= 0; });
  }

  /// Several sequences in a graph or a batch: each token where its own sequence has it.
  Status find_sequences() {
    const std::vector<StepTokens> wanted = hf_.tokens();
    const std::vector<StepTokens> graphs = ggml_.tokens();
    if (!std::ranges::all_of(wanted, is_known) || !std::ranges::all_of(graphs, is_known))
      return fail(Errc::Usage,
                  "graphs of the ggml run or steps of the Hugging Face run hold several sequences, "
                  "which only the tokens' ids and positions can tell apart; they were not captured "
                  "(--token-map HF:GGML pairs steps by hand)");
    const TokenKeys of_hf = token_keys(wanted);
    if (!of_hf.from_start)
      return fail(Errc::Usage,
                  "several sequences in one graph or step are told apart by their texts from the "
                  "start, and the Hugging Face run was captured from a later step on");
    std::set<uint64_t> keys;
    for (const auto& step : of_hf.steps) keys.insert(step.begin(), step.end());
    const TokenKeys of_ggml = sequence_keys(graphs, keys);
    std::map<uint64_t, std::pair<size_t, size_t>> places;  // graph and row
    size_t others = 0;
    for (size_t graph = 0; graph < graphs.size(); ++graph) {
      for (size_t row = 0; row < of_ggml.steps[graph].size(); ++row) {
        places.try_emplace(of_ggml.steps[graph][row], graph, row);
        others += keys.contains(of_ggml.steps[graph][row]) ? 0 : 1;
      }
    }
    size_t missing = 0;
    size_t all = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      all += wanted[i].tokens.size();
      missing += add_span(wanted[i], of_hf.steps[i], graphs, places);
    }
    out_.notes.push_back(
        "several sequences stand in one graph or step: tokens are paired by their sequence, "
        "position and id" +
        (others == 0 ? std::string()
                     : ", " + std::to_string(others) +
                           " tokens of other sequences in ggml's graphs are not compared"));
    if (missing > 0 && missing < all) {
      out_.missing = std::to_string(missing) + " of Hugging Face's " + std::to_string(all) +
                     " tokens were computed by no graph of ggml in their sequence";
      out_.notes.push_back(out_.missing);
    }
    return {};
  }

  /// returns  tokens of the step that no graph computed
  size_t add_span(const StepTokens& step, const std::vector<uint64_t>& keys,
                  const std::vector<StepTokens>& graphs,
                  const std::map<uint64_t, std::pair<size_t, size_t>>& places) {
    TokenSpan span{.hf_step = step.step,
                   .tokens = static_cast<int64_t>(step.tokens.size()),
                   .sequences = step.sequences};
    std::map<size_t, std::map<size_t, int64_t>> rows;  // by graph: of Hugging Face by row
    size_t missing = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto found = places.find(keys[i]);
      if (found == places.end()) {
        ++missing;
      } else {
        rows[found->second.first].emplace(found->second.second, static_cast<int64_t>(i));
      }
    }
    for (const auto& [graph, of_graph] : rows) {
      span.ggml_steps.push_back(graphs[graph].step);
      const size_t first = span.token_of.size();
      span.token_of.resize(first + graphs[graph].tokens.size(), -1);
      for (const auto& [row, token] : of_graph) span.token_of[first + row] = token;
    }
    if (!rows.empty()) out_.spans.push_back(std::move(span));
    return missing;
  }

  /// from   the step's first token that is looked for
  static std::optional<std::pair<size_t, size_t>> find_graphs(const StepTokens& step, size_t from,
                                                              const std::vector<StepTokens>& graphs,
                                                              size_t next) {
    for (size_t first = next; first < graphs.size(); ++first) {
      size_t count = from;
      size_t last = first;
      while (last < graphs.size() && count < step.tokens.size() &&
             fits(step, count, graphs[last])) {
        count += graphs[last].tokens.size();
        ++last;
      }
      if (count == step.tokens.size() && last > first) return std::pair(first, last);
    }
    return std::nullopt;
  }

  static bool fits(const StepTokens& step, size_t first, const StepTokens& graph) {
    if (graph.tokens.empty() || first + graph.tokens.size() > step.tokens.size()) return false;
    for (size_t i = 0; i < graph.tokens.size(); ++i) {
      const PlacedToken& wanted = step.tokens[first + i];
      const PlacedToken& have = graph.tokens[i];
      if (wanted.position >= 0 && have.position >= 0 && wanted.position != have.position)
        return false;
      if (step.ids && graph.ids && wanted.token != have.token) return false;
    }
    return true;
  }

  void describe_spans(const std::optional<int64_t>& lost, const std::vector<StepTokens>& graphs) {
    std::set<int64_t> used;
    for (const TokenSpan& span : out_.spans)
      used.insert(span.ggml_steps.begin(), span.ggml_steps.end());
    const size_t others = graphs.size() - used.size();
    for (const TokenSpan& span : out_.spans) {
      if (span.ggml_steps.size() < 2 || !span.token_of.empty()) continue;
      out_.notes.push_back("the " + std::to_string(span.tokens) +
                           " tokens of Hugging Face's step " + std::to_string(span.hf_step) +
                           " are those of " + std::to_string(span.ggml_steps.size()) +
                           " graphs of ggml, " + std::to_string(span.ggml_steps.front()) + " to " +
                           std::to_string(span.ggml_steps.back()));
      break;
    }
    if (!out_.spans.empty() && out_.spans.front().token_of.empty() &&
        out_.spans.front().hf_step != out_.spans.front().ggml_steps.front())
      out_.notes.push_back("Hugging Face's step " + std::to_string(out_.spans.front().hf_step) +
                           " is graph " + std::to_string(out_.spans.front().ggml_steps.front()) +
                           " of ggml, by positions and tokens");
    if (others > 0)
      out_.notes.push_back(assay::counted(others, "graph") +
                           " of ggml computed other tokens (a warm-up, say) and " +
                           (others == 1 ? "is" : "are") + " not compared");
    if (lost)
      out_.notes.push_back("from Hugging Face's step " + std::to_string(*lost) +
                           " on there are steps whose tokens no graph of ggml computed at their "
                           "positions: the runs went on with other tokens, or ended");
  }

  void take_spans(const std::vector<std::pair<int64_t, int64_t>>& steps) {
    std::map<int64_t, std::vector<int64_t>> graphs;
    for (const auto& [hf, ggml] : steps) graphs[hf].push_back(ggml);
    for (auto& [hf, ggml] : graphs) {
      TokenSpan span{.hf_step = hf, .ggml_steps = std::move(ggml)};
      for (const StepTokens& step : hf_.tokens()) {
        if (step.step == hf) span.tokens = static_cast<int64_t>(step.tokens.size());
      }
      out_.spans.push_back(std::move(span));
    }
  }

  /// Channels of a fused tensor.
  struct Part {
    int64_t hf_first = 0, hf_last = 0;
    int64_t ggml_first = 0, ggml_last = 0;
  };

  void pair(const HfPlace& place) {
    const TensorRecord& record = hf_run_.records[place.record];
    const auto span = span_of_.find(record.step);
    if (span == span_of_.end()) return;
    if (place.tensor.place == ModulePlace::CachedKeys ||
        place.tensor.place == ModulePlace::CachedValues) {
      add_cache(place, span->second);
      return;
    }
    if (is_of_experts(place.tensor.place)) {
      add_experts(place, span->second);
      return;
    }
    std::string why = "ggml has no node of its own for it";
    ModuleTensor tensor = place.tensor;
    const bool rotates = tensor.place == ModulePlace::Input && tensor.module.ends_with("o_proj") &&
                         ggml_.rotates_attention(out_.spans[span->second].ggml_steps.front());
    if (rotates) tensor.place = ModulePlace::Output;  // what its product multiplies
    Part part;
    if (tensor.place == ModulePlace::RouterChoices) {
      // ggml sorts all experts of a token and uses the first.
      const std::optional<Dims> shape = shape_of_record(record);
      if (!shape || shape->empty()) return;
      part.ggml_last = (*shape)[shape->size() - 1];
    }
    for (const GraphNode& node : nodes_of(tensor)) {
      if (add(place, span->second, node, part, &why, rotates)) return;
    }
    if (add_fused(place, span->second, &why)) return;
    if (place.tensor.place == ModulePlace::Output && record.slot.empty())
      out_.hf_alone.emplace_back(place.record, std::move(why));
  }

  /// What attention reads of the cache, where the capture copied it: the cells of the tokens so
  /// far.
  void add_cache(const HfPlace& place, size_t span) {
    // Which cells are whose is not known where several sequences share a cache.
    for (size_t i = 0; i <= span; ++i)
      if (!out_.spans[i].token_of.empty()) return;
    const bool keys = place.tensor.place == ModulePlace::CachedKeys;
    const std::string layer = layer_in(place.tensor.module);
    const int64_t step = out_.spans[span].ggml_steps.back();
    TensorPair pair{.hf = place.record, .tensor = place.tensor, .span = span};
    auto found = ggml_.find_source(step, (keys ? "kq-" : "kqv-") + layer, "mul_mat", "src0");
    pair.node = (keys ? "kq-" : "kqv-") + layer + " mul_mat src0";
    pair.cells_last = found && !keys;
    if (!found) {
      found = ggml_.find_attended(step, layer, keys ? "src1" : "src2");
      pair.node = std::string("flash_attn_ext ") + (keys ? "src1" : "src2");
    }
    if (!found) return;
    const TensorRecord& record = ggml_run_.records[*found];
    const Dims& shape = *hf_run_.records[place.record].shape;  // [1, heads, tokens, channels]
    if (!record.bytes || !record.shape || record.shape->size() != 3) return;
    for (size_t i = 0; i <= span; ++i) {
      for (const int64_t graph : out_.spans[i].ggml_steps) {
        const auto cells = ggml_.written_cells(graph);
        if (!cells) return;
        pair.cells.insert(pair.cells.end(), cells->begin(), cells->end());
      }
    }
    const int64_t cell_count = (*record.shape)[pair.cells_last ? 2 : 1];
    const int64_t channels = (*record.shape)[pair.cells_last ? 1 : 2];
    const bool fits = (*record.shape)[0] == shape[1] && channels == shape[3] &&
                      static_cast<int64_t>(pair.cells.size()) == shape[2] &&
                      std::ranges::all_of(
                          pair.cells, [&](int64_t cell) { return cell >= 0 && cell < cell_count; });
    if (!fits) return;
    pair.ggml = {*found};
    pair.hf_row_count = pair.row_count = shape[2];
    pair.hf_rows = pair.ggml_rows = counted(shape[2]);
    if (keys) pair.head_size = ggml_.head_size(layer, step);
    out_.pairs.push_back(std::move(pair));
  }

  /// What experts make of the tokens that chose them: Hugging Face sorts by expert, ggml by token.
  /// Where the engines chose other experts for a token, the rows of those that both chose are
  /// compared.
  void add_experts(const HfPlace& place, size_t span) {
    const TensorRecord& record = hf_run_.records[place.record];
    const auto rows = hf_.expert_rows(record.step, place.tensor.module);
    const std::optional<Dims> shape = shape_of_record(record);
    if (!rows || !shape || shape->size() != 2) return;
    for (const GraphNode& node : nodes_of(place.tensor)) {
      TensorPair pair{.hf = place.record, .tensor = place.tensor, .span = span};
      pair.node = node.name + " " + std::string(node.op);
      std::map<std::pair<int64_t, int64_t>, int64_t> row_of;  // by token and expert
      int64_t first_token = 0;
      int64_t width = 0;
      for (const int64_t step : out_.spans[span].ggml_steps) {
        const auto found = ggml_.find(step, node);
        const auto tokens = tokens_of(step);
        if (!found || !tokens) break;
        const TensorRecord& made = ggml_run_.records[*found];  // [tokens, chosen, channels]
        const auto choices = ggml_.choices(step, layer_in(place.tensor.module), rows->chosen);
        if (!choices || !made.shape || made.shape->size() < 2) break;
        width = (*made.shape)[made.shape->size() - 1];
        const auto count = static_cast<int64_t>(choices->size());
        if (width == 0 || product(made.shape->span()) != count * width ||
            count / rows->chosen > *tokens)
          break;
        const std::vector<int64_t> computed = computed_tokens(step, count / rows->chosen, *tokens);
        for (int64_t i = 0; i < count; ++i) {
          const int64_t token = hf_token(
              out_.spans[span], first_token + computed[static_cast<size_t>(i / rows->chosen)]);
          row_of.emplace(std::pair(token, (*choices)[static_cast<size_t>(i)]), pair.row_count + i);
        }
        pair.row_count += count;
        pair.ggml.push_back(*found);
        first_token += *tokens;
      }
      if (pair.ggml.size() != out_.spans[span].ggml_steps.size()) continue;
      pair.hf_row_count = static_cast<int64_t>(rows->order.size());
      const int64_t channels = (*shape)[1];
      const bool halved = place.tensor.place == ModulePlace::ExpertGate ||
                          place.tensor.place == ModulePlace::ExpertUp;
      if ((*shape)[0] != pair.hf_row_count || channels != (halved ? 2 * width : width)) continue;
      if (halved) {
        pair.hf_first = place.tensor.place == ModulePlace::ExpertUp ? width : 0;
        pair.hf_last = pair.hf_first + width;
      }
      for (int64_t row = 0; row < pair.hf_row_count; ++row) {
        const int64_t chosen = rows->order[static_cast<size_t>(row)];
        const auto found =
            row_of.find({chosen / rows->chosen, rows->choices[static_cast<size_t>(chosen)]});
        if (found == row_of.end()) continue;
        pair.hf_rows.push_back(row);
        pair.ggml_rows.push_back(found->second);
      }
      if (pair.hf_rows.empty()) continue;
      pair.all_rows = false;
      out_.pairs.push_back(std::move(pair));
      return;
    }
  }

  /// Projections that one of the engines has in one piece.
  bool add_fused(const HfPlace& place, size_t span, std::string* why) {
    if (place.tensor.place != ModulePlace::Output) return false;
    const std::string& module = place.tensor.module;
    const std::string layer = layer_in(module);
    const size_t dot = module.rfind('.');
    if (layer.empty() || dot == std::string::npos) return false;
    const std::string around = module.substr(0, dot + 1);
    const std::string_view name = std::string_view(module).substr(dot + 1);
    const int64_t step = out_.spans[span].hf_step;
    if (name == "qkv_proj") return add_pieces(place, span, {"Qcur-", "Kcur-", "Vcur-"}, why);
    if (name == "gate_up_proj") {
      return add(place, span, {.name = "ffn_up-" + layer, .op = "mul_mat"}, {}, why) ||
             add_pieces(place, span, {"ffn_gate-", "ffn_up-"}, why);
    }
    int64_t first = 0;
    for (const std::string_view which : {"q_proj", "k_proj", "v_proj"}) {
      const int64_t width = hf_.width(step, around + std::string(which));
      if (width == 0) return false;
      if (which == name) {
        const Heads heads = which == "q_proj"   ? Heads::Queries
                            : which == "k_proj" ? Heads::Keys
                                                : Heads::None;
        for (const std::string_view op : {"add", "mul_mat"}) {
          if (add(place, span, {.name = "wqkv-" + layer, .op = op, .heads = heads},
                  {.ggml_first = first, .ggml_last = first + width}, why))
            return true;
        }
      }
      first += width;
    }
    return false;
  }

  /// One tensor of Hugging Face against nodes that hold its channels one after the other.
  bool add_pieces(const HfPlace& place, size_t span, const std::vector<std::string_view>& names,
                  std::string* why) {
    const std::string layer = layer_in(place.tensor.module);
    const int64_t step = out_.spans[span].ggml_steps.front();
    int64_t first = 0;
    std::vector<std::pair<GraphNode, Part>> pieces;
    for (const std::string_view name : names) {
      const Heads heads = name == "Qcur-"   ? Heads::Queries
                          : name == "Kcur-" ? Heads::Keys
                                            : Heads::None;
      std::optional<GraphNode> node;
      for (const std::string_view op : {"add", "mul_mat"}) {
        const GraphNode one{.name = std::string(name) + layer, .op = op, .heads = heads};
        if (!node && ggml_.find(step, one)) node = one;
      }
      if (!node) return false;
      const TensorRecord& record = ggml_run_.records[*ggml_.find(step, *node)];
      if (!record.shape || record.shape->empty()) return false;
      const int64_t width = (*record.shape)[record.shape->size() - 1];
      pieces.emplace_back(*node, Part{.hf_first = first, .hf_last = first + width});
      first += width;
    }
    bool any = false;
    for (const auto& [node, part] : pieces) any = add(place, span, node, part, why) || any;
    return any;
  }

  /// False when the graphs lack the node, or its sizes are not the tensor's; `why` says so then.
  /// multiplied  what the node, a product, multiplies its weight with, instead of the node itself
  bool add(const HfPlace& place, size_t span, const GraphNode& node, Part part, std::string* why,
           bool multiplied = false) {
    TensorPair pair{.hf = place.record, .tensor = place.tensor, .span = span};
    pair.node = node.name + " " + std::string(node.op);
    const std::string layer = layer_in(place.tensor.module);
    const int64_t head_size = ggml_.head_size(layer, out_.spans[span].ggml_steps.front());
    // Channels of its queries and keys would have to change their order, those of its values not:
    // such a tensor is compared piece by piece (add_pieces).
    if (head_size > 0 && place.tensor.module.ends_with("qkv_proj") && part.hf_last == 0)
      return false;
    pair.hf_first = part.hf_first;
    pair.hf_last = part.hf_last;
    pair.ggml_first = part.ggml_first;
    pair.ggml_last = part.ggml_last;
    for (const int64_t step : out_.spans[span].ggml_steps) {
      const auto found = multiplied ? ggml_.find_source(step, node.name, "mul_mat", "src1")
                                    : ggml_.find(step, node);
      if (!found) return false;
      pair.ggml.push_back(*found);
    }
    if (node.heads != Heads::None) pair.head_size = head_size;
    if (!find_rows(&pair)) {
      *why = pair.node + " has another shape";
      return false;
    }
    out_.pairs.push_back(std::move(pair));
    return true;
  }

  bool find_rows(TensorPair* pair) const {
    const std::optional<Dims> shape = shape_of_record(hf_run_.records[pair->hf]);
    if (!shape || shape->size() < 2) return false;
    const bool rotated = is_rotated(pair->tensor.place);
    if (rotated && (shape->size() != 4 || (*shape)[0] != 1)) return false;
    const int64_t elements = product(shape->span());
    const bool by_head = is_by_head(*pair, *shape);
    const int64_t channels = rotated   ? (*shape)[1] * (*shape)[3]
                             : by_head ? (*shape)[2] * (*shape)[3]
                                       : (*shape)[shape->size() - 1];
    if (channels == 0 || elements == 0) return false;
    pair->hf_row_count = elements / channels;
    const int64_t width = pair->hf_last > 0 ? pair->hf_last - pair->hf_first : channels;
    const int64_t in_ggml = pair->ggml_last > 0 ? 0 : width;

    // Tokens of each row, counted from the span's first.
    std::vector<int64_t> ggml_tokens;
    int64_t first_token = 0;
    for (size_t i = 0; i < pair->ggml.size(); ++i) {
      const TensorRecord& record = ggml_run_.records[pair->ggml[i]];
      if (!record.shape || record.shape->empty()) return false;
      const int64_t row = in_ggml > 0 ? in_ggml : (*record.shape)[record.shape->size() - 1];
      const int64_t size = product(record.shape->span());
      if (row == 0 || size % row != 0 || row < pair->ggml_last) return false;
      const int64_t step = out_.spans[pair->span].ggml_steps[i];
      const int64_t tokens = tokens_of(step).value_or(size / row);
      if (size / row > tokens) return false;
      for (const int64_t one : computed_tokens(step, size / row, tokens))
        ggml_tokens.push_back(first_token + one);
      first_token += tokens;
    }
    pair->row_count = static_cast<int64_t>(ggml_tokens.size());
    const TokenSpan& span = out_.spans[pair->span];
    if (rotated && span.sequences > 1) return false;
    // The model's head may have computed the last positions of each sequence only.
    const int64_t length = (span.token_of.empty() ? first_token : span.tokens) / span.sequences;
    const int64_t kept = pair->hf_row_count / span.sequences;
    if (kept > length || kept * span.sequences != pair->hf_row_count) return false;
    std::vector<std::pair<int64_t, int64_t>> rows;  // of Hugging Face, of ggml
    for (size_t i = 0; i < ggml_tokens.size(); ++i) {
      const int64_t token = hf_token(span, ggml_tokens[i]);
      const int64_t column = token < 0 ? -1 : token % length - (length - kept);
      if (column < 0 || token >= length * span.sequences) continue;
      rows.emplace_back(token / length * kept + column, static_cast<int64_t>(i));
    }
    std::ranges::sort(rows);
    for (const auto& [hf, ggml] : rows) {
      pair->hf_rows.push_back(hf);
      pair->ggml_rows.push_back(ggml);
    }
    if (pair->hf_rows.empty()) return false;
    pair->all_rows =
        pair->hf_rows == counted(pair->hf_row_count) && pair->ggml_rows == counted(pair->row_count);
    return (pair->all_rows || !by_head) && (pair->head_size == 0 || width % pair->head_size == 0);
  }

  /// Which of the step's tokens a token of the span's graphs is; -1: none.
  static int64_t hf_token(const TokenSpan& span, int64_t token) {
    if (span.token_of.empty()) return token;
    return token >= 0 && token < static_cast<int64_t>(span.token_of.size())
               ? span.token_of[static_cast<size_t>(token)]
               : -1;
  }

  /// Which of a graph's tokens the rows of a tensor are.
  [[nodiscard]] std::vector<int64_t> computed_tokens(int64_t step, int64_t rows,
                                                     int64_t tokens) const {
    std::vector<int64_t> computed = counted(rows);
    if (rows == tokens) return computed;
    const auto requested = ggml_.requested(step);
    if (requested && static_cast<int64_t>(requested->size()) == rows) return *requested;
    // Of a prompt the last rows are asked for.
    for (int64_t& one : computed) one += tokens - rows;
    return computed;
  }

  [[nodiscard]] std::optional<int64_t> tokens_of(int64_t step) const {
    if (token_counts_.empty()) {
      for (const StepTokens& graph : ggml_.tokens())
        token_counts_[graph.step] = static_cast<int64_t>(graph.tokens.size());
    }
    const auto found = token_counts_.find(step);
    return found == token_counts_.end() ? std::nullopt : std::optional(found->second);
  }

  const Run& hf_run_;
  const Run& ggml_run_;
  HfSide hf_;
  GgmlSide ggml_;
  std::map<int64_t, size_t> span_of_;  // by step of Hugging Face
  mutable std::map<int64_t, int64_t> token_counts_;
  Alignment out_;
};

}  // namespace

namespace {

/// Rows of several sequences: [sequences, tokens, channels].
bool is_batch(const Dims& shape) { return shape.size() == 3 && shape[0] > 1; }

}  // namespace

Recipe TensorPair::hf_recipe(const Run& hf_run) const {
  Recipe recipe{.records = {hf}};
  const Dims shape = shape_of_record(hf_run.records[hf]).value_or(Dims());
  const bool some = !all_rows && hf_rows != counted(hf_row_count);
  if (some && is_batch(shape)) {
    recipe.steps.push_back({.kind = RecipeStep::Kind::Reshape,
                            .shape = {hf_row_count, product(shape.span()) / hf_row_count}});
    recipe.steps.push_back({.kind = RecipeStep::Kind::Permute, .axis = 0, .order = hf_rows});
  } else if (some) {
    const int axis = static_cast<int>(shape.size()) - 2;  // [1, heads, tokens, channels], too
    recipe.steps.push_back({.kind = RecipeStep::Kind::Permute, .axis = axis, .order = hf_rows});
  }
  if (hf_last > 0)
    recipe.steps.push_back(
        {.kind = RecipeStep::Kind::Range, .axis = -1, .first = hf_first, .last = hf_last});
  return recipe;
}

namespace {

RecipeStep channels_of_heads(int axis, int64_t width, int64_t head_size) {
  RecipeStep step{.kind = RecipeStep::Kind::Permute, .axis = axis};
  for (int64_t i = 0; i < width; ++i) step.order.push_back(pair::gguf_channel(i, head_size));
  return step;
}

/// [heads, cells, channels] or [heads, channels, cells] to [1, heads, tokens, channels].
Recipe window_recipe(const TensorPair& pair, const Dims& shape) {
  Recipe recipe{.records = pair.ggml};
  recipe.note = std::to_string(pair.cells.size()) + " cells of the cache";
  recipe.steps.push_back(
      {.kind = RecipeStep::Kind::Permute, .axis = pair.cells_last ? 2 : 1, .order = pair.cells});
  if (pair.cells_last)
    recipe.steps.push_back({.kind = RecipeStep::Kind::Transpose, .order = {0, 2, 1}});
  if (pair.head_size > 0) {
    recipe.steps.push_back(channels_of_heads(2, shape[3], pair.head_size));
    recipe.note += ", channels of heads in Hugging Face's order";
  }
  recipe.steps.push_back({.kind = RecipeStep::Kind::Reshape,
                          .shape = std::vector<int64_t>(shape.span().begin(), shape.span().end())});
  return recipe;
}

}  // namespace

Recipe TensorPair::ggml_recipe(const Run& hf_run, const Run& ggml_run) const {
  if (!cells.empty()) return window_recipe(*this, *hf_run.records[hf].shape);
  Recipe recipe{.records = ggml};
  recipe.flat = true;
  if (ggml.size() > 1) {
    recipe.merge = Merge::Concat;
    recipe.note = "graphs " + std::to_string(ggml_run.records[ggml.front()].step) + " to " +
                  std::to_string(ggml_run.records[ggml.back()].step);
  }
  const auto add_note = [&](const std::string& text) {
    recipe.note += (recipe.note.empty() ? "" : ", ") + text;
  };
  Dims shape = shape_of_record(hf_run.records[hf]).value_or(Dims());
  int64_t elements = 0;
  for (const size_t record : ggml) elements += product(ggml_run.records[record].shape->span());
  const int64_t channels = elements / row_count;
  recipe.steps.push_back({.kind = RecipeStep::Kind::Reshape, .shape = {row_count, channels}});
  if (!all_rows && ggml_rows != counted(row_count))
    recipe.steps.push_back({.kind = RecipeStep::Kind::Permute, .axis = 0, .order = ggml_rows});
  if (is_of_experts(tensor.place)) add_note("rows sorted by expert");
  const bool some = static_cast<int64_t>(hf_rows.size()) != hf_row_count;
  if (!all_rows && (some || !is_of_experts(tensor.place)))
    add_note(std::to_string(hf_rows.size()) + " of " + std::to_string(hf_row_count) +
             (is_of_experts(tensor.place) ? " rows" : " tokens"));
  if (ggml_last > 0) {
    recipe.steps.push_back(
        {.kind = RecipeStep::Kind::Range, .axis = 1, .first = ggml_first, .last = ggml_last});
    add_note(tensor.place == ModulePlace::RouterChoices
                 ? "the first " + std::to_string(ggml_last)
                 : "channels " + std::to_string(ggml_first) + " to " + std::to_string(ggml_last));
  }
  const int64_t width = ggml_last > 0 ? ggml_last - ggml_first : channels;
  if (head_size > 0) {
    recipe.steps.push_back(channels_of_heads(1, width, head_size));
    add_note("channels of heads in Hugging Face's order");
  }
  const auto rows = static_cast<int64_t>(hf_rows.size());
  if (is_rotated(tensor.place)) {
    const int64_t head = shape[3];
    recipe.steps.push_back(
        {.kind = RecipeStep::Kind::Reshape, .shape = {rows, width / head, head}});
    recipe.steps.push_back({.kind = RecipeStep::Kind::Transpose, .order = {1, 0, 2}});
    shape[2] = rows;
  } else if (!is_by_head(*this, shape)) {
    shape[shape.size() - 1] = width;
    // Rows picked out of several sequences are no batch; a batch of one keeps its leading 1.
    if (rows != hf_row_count && is_batch(shape)) {
      shape = Dims{rows, width};
    } else if (rows != hf_row_count) {
      shape[shape.size() - 2] = rows;
    }
  }
  recipe.steps.push_back({.kind = RecipeStep::Kind::Reshape,
                          .shape = std::vector<int64_t>(shape.span().begin(), shape.span().end())});
  return recipe;
}

Result<Alignment> align(const Run& hf, const Run& ggml,
                        const std::vector<std::pair<int64_t, int64_t>>& steps) {
  return Aligner(hf, ggml).align(steps);
}

}  // namespace assay::engines::ggml
