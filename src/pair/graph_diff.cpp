// SPDX-License-Identifier: Apache-2.0
// Nodes are aligned level by level from the root, by their types, parameters and sizes. Then the
// inputs of operations that stand for each other are followed to who makes them.
#include "pair/graph_diff.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "topology/atb_enums.hpp"

namespace assay::pair {
namespace {

using topology::Graph;
using topology::GraphKind;
using topology::Node;
using topology::Parameter;
using topology::WiredNode;
using topology::Wiring;

constexpr uint32_t kNone = UINT32_MAX;
// A table of this many cells is filled in some ten milliseconds; longer lists are paired one by
// one.
constexpr size_t kMaxTableCells = size_t{1} << 24;

using Pairs = std::vector<std::pair<uint32_t, uint32_t>>;  // kNone on one side: no partner

bool same_parameters(const Node& a, const Node& b) {
  if (a.parameters.size() != b.parameters.size()) return false;
  for (size_t i = 0; i < a.parameters.size(); ++i) {
    if (a.parameters[i].name != b.parameters[i].name ||
        a.parameters[i].text != b.parameters[i].text)
      return false;
  }
  return true;
}

/// Aligns two lists of siblings.
class Alignment {
 public:
  Alignment(const Graph& golden, const std::vector<uint32_t>& a, const Graph& mine,
            const std::vector<uint32_t>& b)
      : golden_(golden), mine_(mine), a_(a), b_(b) {}

  Pairs run() {
    size_t begin = 0;
    size_t a_end = a_.size();
    size_t b_end = b_.size();
    Pairs tail;
    while (begin < a_end && begin < b_end && score(begin, begin) == kEqual) {
      pairs_.emplace_back(a_[begin], b_[begin]);
      ++begin;
    }
    while (a_end > begin && b_end > begin && score(a_end - 1, b_end - 1) == kEqual) {
      --a_end;
      --b_end;
      tail.emplace_back(a_[a_end], b_[b_end]);
    }
    if ((a_end - begin + 1) * (b_end - begin + 1) <= kMaxTableCells) {
      best_alignment(begin, a_end, b_end);
    } else {
      in_step(begin, a_end, b_end);
    }
    pairs_.insert(pairs_.end(), tail.rbegin(), tail.rend());
    return std::move(pairs_);
  }

 private:
  static constexpr uint32_t kEqual = 3;

  /// 0 for other types; nodes of one type are worth more together when their parameters and sizes
  /// agree.
  [[nodiscard]] uint32_t score(size_t i, size_t k) const {
    const Node& a = golden_.nodes[a_[i]];
    const Node& b = mine_.nodes[b_[k]];
    if (a.type != b.type) return 0;
    return 1 + same_parameters(a, b) + (a.children.size() == b.children.size());
  }

  /// The pairing with the highest sum of scores: table[i][k] is the best for what follows i and k.
  void best_alignment(size_t begin, size_t a_end, size_t b_end) {
    const size_t width = b_end - begin + 1;
    std::vector<uint32_t> table((a_end - begin + 1) * width);
    const auto at = [&](size_t i, size_t k) -> uint32_t& {
      return table[(i - begin) * width + (k - begin)];
    };
    for (size_t i = a_end; i-- > begin;) {
      for (size_t k = b_end; k-- > begin;) {
        const uint32_t together = score(i, k);
        at(i, k) =
            std::max({at(i + 1, k), at(i, k + 1), together > 0 ? together + at(i + 1, k + 1) : 0});
      }
    }
    size_t i = begin;
    size_t k = begin;
    while (i < a_end && k < b_end) {
      const uint32_t together = score(i, k);
      if (together > 0 && at(i, k) == together + at(i + 1, k + 1)) {
        pairs_.emplace_back(a_[i++], b_[k++]);
      } else if (at(i, k) == at(i + 1, k)) {
        pairs_.emplace_back(a_[i++], kNone);
      } else {
        pairs_.emplace_back(kNone, b_[k++]);
      }
    }
    for (; i < a_end; ++i) pairs_.emplace_back(a_[i], kNone);
    for (; k < b_end; ++k) pairs_.emplace_back(kNone, b_[k]);
  }

  void in_step(size_t begin, size_t a_end, size_t b_end) {
    size_t i = begin;
    for (; i < a_end && i < b_end; ++i) {
      if (score(i, i) > 0) {
        pairs_.emplace_back(a_[i], b_[i]);
      } else {
        pairs_.emplace_back(a_[i], kNone);
        pairs_.emplace_back(kNone, b_[i]);
      }
    }
    for (size_t k = i; k < a_end; ++k) pairs_.emplace_back(a_[k], kNone);
    for (size_t k = i; k < b_end; ++k) pairs_.emplace_back(kNone, b_[k]);
  }

  const Graph& golden_;
  const Graph& mine_;
  const std::vector<uint32_t>& a_;
  const std::vector<uint32_t>& b_;
  Pairs pairs_;
};

std::vector<ParameterChange> changed_parameters(const Node& golden, const Node& mine) {
  std::vector<ParameterChange> changes;
  std::map<std::string, const Parameter*> others;
  for (const Parameter& parameter : mine.parameters) others[parameter.name] = &parameter;
  for (const Parameter& parameter : golden.parameters) {
    const auto other = others.find(parameter.name);
    if (other == others.end()) {
      changes.push_back({parameter.name, parameter_text(golden, parameter), "", true, false});
      continue;
    }
    if (other->second->text != parameter.text)
      changes.push_back({parameter.name, parameter_text(golden, parameter),
                         parameter_text(mine, *other->second), true, true});
    others.erase(other);
  }
  for (const Parameter& parameter : mine.parameters) {
    if (others.contains(parameter.name))
      changes.push_back({parameter.name, "", parameter_text(mine, parameter), false, true});
  }
  return changes;
}

/// Which input of the whole stands for which. With as many on both sides their places say it.
/// Otherwise what came or went has moved the others, a removed layer's weights all that follow, and
/// the first use decides.
class OutsideInputs {
 public:
  explicit OutsideInputs(bool same_count) : same_count_(same_count) {}
  bool same(size_t golden, size_t mine) {
    if (same_count_) return golden == mine;
    return to_mine_.try_emplace(golden, mine).first->second == mine &&
           to_golden_.try_emplace(mine, golden).first->second == golden;
  }

 private:
  bool same_count_;
  std::map<size_t, size_t> to_mine_;
  std::map<size_t, size_t> to_golden_;
};

/// Who makes each tensor: an operation's output, or an input of the whole.
struct Sources {
  struct Source {
    uint32_t node = kNone;  // kNone: an input of the whole
    size_t position = 0;
    std::string name;
  };
  std::map<uint32_t, std::vector<Source>> inputs_of;  // leaf -> one for each input
  size_t outside_count = 0;                           // inputs of the whole

  explicit Sources(const Graph& graph) {
    const Wiring wiring = wire_level(graph, -1);
    std::map<std::string, Source> by_name;
    outside_count = wiring.inputs.size();
    for (size_t i = 0; i < wiring.inputs.size(); ++i)
      by_name[wiring.inputs[i]] = {kNone, i, wiring.inputs[i]};
    for (const WiredNode& wired : wiring.nodes) {
      std::vector<Source>& sources = inputs_of[wired.node];
      for (const std::string& name : wired.inputs) sources.push_back(by_name[name]);
      for (size_t i = 0; i < wired.outputs.size(); ++i)
        by_name[wired.outputs[i]] = {wired.node, i, wired.outputs[i]};
    }
  }
};

class Differ {
 public:
  Differ(const Graph& golden, const Graph& mine) : golden_(golden), mine_(mine) {}

  GraphDiff run() {
    std::vector<std::pair<uint32_t, uint32_t>> open{{0, 0}};
    compare(0, 0);
    while (!open.empty()) {
      const auto [a, b] = open.back();
      open.pop_back();
      const Pairs pairs =
          Alignment(golden_, golden_.nodes[a].children, mine_, mine_.nodes[b].children).run();
      for (const auto& [i, k] : pairs) {
        if (k == kNone) {
          add(DifferenceKind::Removed, i, kNone);
        } else if (i == kNone) {
          add(DifferenceKind::Added, kNone, k);
        } else {
          compare(i, k);
        }
      }
      // The first pair's children come next, so that the list follows the files.
      for (auto pair = pairs.rbegin(); pair != pairs.rend(); ++pair) {
        if (pair->first != kNone && pair->second != kNone) open.push_back(*pair);
      }
    }
    compare_wires();
    return std::move(diff_);
  }

 private:
  Difference& add(DifferenceKind kind, uint32_t golden, uint32_t mine) {
    Difference difference;
    difference.kind = kind;
    if (golden != kNone) difference.golden = golden_.nodes[golden].name;
    if (mine != kNone) difference.mine = mine_.nodes[mine].name;
    const Graph& graph = golden != kNone ? golden_ : mine_;
    const Node& node = graph.nodes[golden != kNone ? golden : mine];
    difference.type = node.type;
    difference.inside = graph.nodes[node.parent].name;
    diff_.differences.push_back(std::move(difference));
    return diff_.differences.back();
  }

  void compare(uint32_t a, uint32_t b) {
    diff_.same_nodes.emplace_back(a, b);
    std::vector<ParameterChange> changes = changed_parameters(golden_.nodes[a], mine_.nodes[b]);
    if (!changes.empty())
      add(DifferenceKind::ChangedParameters, a, b).parameters = std::move(changes);
  }

  void compare_wires() {
    if (golden_.kind == GraphKind::ModuleTree || mine_.kind == GraphKind::ModuleTree) return;
    const Sources golden(golden_);
    const Sources mine(mine_);
    OutsideInputs outside(golden.outside_count == mine.outside_count);
    std::map<uint32_t, uint32_t> partner(diff_.same_nodes.begin(), diff_.same_nodes.end());
    for (const auto& [a, b] : diff_.same_nodes) {
      const auto inputs = golden.inputs_of.find(a);
      const auto others = mine.inputs_of.find(b);
      if (inputs == golden.inputs_of.end() || others == mine.inputs_of.end()) continue;
      const std::optional<std::string> detail =
          difference_of(inputs->second, others->second, partner, &outside);
      if (detail) add(DifferenceKind::Rewired, a, b).detail = *detail;
    }
  }

  static std::optional<std::string> difference_of(const std::vector<Sources::Source>& golden,
                                                  const std::vector<Sources::Source>& mine,
                                                  const std::map<uint32_t, uint32_t>& partner,
                                                  OutsideInputs* outside) {
    if (golden.size() != mine.size())
      return "takes " + std::to_string(mine.size()) + " tensors instead of " +
             std::to_string(golden.size());
    for (size_t i = 0; i < golden.size(); ++i) {
      const bool is_outside = golden[i].node == kNone;
      const auto expected = is_outside ? partner.end() : partner.find(golden[i].node);
      // Where the source itself was removed, that is the difference, not what it leaves behind.
      if (!is_outside && expected == partner.end()) continue;
      const bool same_place =
          is_outside ? mine[i].node == kNone && outside->same(golden[i].position, mine[i].position)
                     : mine[i].node == expected->second && mine[i].position == golden[i].position;
      if (!same_place)
        return "input " + std::to_string(i) + " comes from " + mine[i].name + " instead of " +
               golden[i].name;
    }
    return std::nullopt;
  }

  const Graph& golden_;
  const Graph& mine_;
  GraphDiff diff_;
};

}  // namespace

std::string_view difference_name(DifferenceKind kind) {
  switch (kind) {
    case DifferenceKind::Added:
      return "added";
    case DifferenceKind::Removed:
      return "removed";
    case DifferenceKind::ChangedParameters:
      return "parameters";
    case DifferenceKind::Rewired:
      break;
  }
  return "wiring";
}

GraphDiff graph_diff(const Graph& golden, const Graph& mine) { return Differ(golden, mine).run(); }

}  // namespace assay::pair
