// SPDX-License-Identifier: Apache-2.0
// Walks from the centre outwards, one hop after the other, the nearest in time first, until the
// drawing is full; then counts what was left out.
#include "report/html/neighbourhood.hpp"

#include <algorithm>
#include <tuple>
#include <unordered_map>

namespace assay::report::html {
namespace {

/// A node that shares a value with another one: a maker, a reader, or a parameter.
struct Neighbour {
  uint32_t node = kNoIndex;
  uint32_t value = kNoIndex;  // of a parameter
  friend auto operator<=>(const Neighbour&, const Neighbour&) = default;
};

std::vector<Neighbour> neighbours(const std::vector<FlowLink>& links) {
  std::vector<Neighbour> list;
  for (const FlowLink& link : links)
    list.push_back({link.node, link.node == kNoIndex ? link.value : kNoIndex});
  std::ranges::sort(list);
  const auto rest = std::ranges::unique(list);
  list.erase(rest.begin(), rest.end());
  return list;
}

std::string slot_of(const DataFlow& flow, uint32_t value, const FlowPlace& user) {
  const std::string& name = flow.values[value].name;
  if (user.port == kNoIndex) return name.substr(name.rfind('.') + 1);
  const FlowPort& port = flow.nodes[user.node].inputs[user.port];
  if (port.record != kNoIndex) return flow.run->records[port.record].slot;
  return port.has_number ? std::to_string(user.port) : std::string();
}

// ---- links of one value or node -----------------------------------------------------------------

/// Who made what the user reads there.
void add_makers(const DataFlow& flow, uint32_t index, const FlowPlace& user,
                std::vector<FlowLink>* links) {
  const FlowValue& value = flow.values[index];
  const std::string slot = slot_of(flow, index, user);
  for (const FlowPlace& maker : value.makers) {
    if (maker.node == user.node) continue;
    links->push_back({maker.node, index, slot, flow.nodes[maker.node].outputs[maker.port].record});
  }
  if (value.makers.empty() && value.leaf != FlowLeaf::None)
    links->push_back({kNoIndex, index, slot, value.record});
}

void add_users(const DataFlow& flow, uint32_t index, uint32_t except,
               std::vector<FlowLink>* links) {
  for (const FlowPlace& user : flow.values[index].users) {
    if (user.node == except) continue;
    const uint32_t record =
        user.port == kNoIndex ? kNoIndex : flow.nodes[user.node].inputs[user.port].record;
    links->push_back({user.node, index, slot_of(flow, index, user), record});
  }
}

std::vector<FlowLink> producers_of(const DataFlow& flow, uint32_t node) {
  std::vector<FlowLink> links;
  const FlowNode& one = flow.nodes[node];
  for (uint32_t port = 0; port < one.inputs.size(); ++port) {
    const uint32_t value = one.inputs[port].value;
    if (value != kNoIndex) add_makers(flow, value, {node, port}, &links);
  }
  for (const uint32_t value : one.parameters) add_makers(flow, value, {node, kNoIndex}, &links);
  return links;
}

std::vector<FlowLink> consumers_of(const DataFlow& flow, uint32_t node) {
  std::vector<FlowLink> links;
  for (const FlowPort& port : flow.nodes[node].outputs) {
    if (port.value == kNoIndex) continue;
    // An output that was handed through is another node's.
    const auto is_own = [&](const FlowPlace& maker) { return maker.node == node; };
    if (std::ranges::any_of(flow.values[port.value].makers, is_own))
      add_users(flow, port.value, node, &links);
  }
  return links;
}

// ---- the walk -----------------------------------------------------------------------------------

class Walk {
 public:
  Walk(const DataFlow& flow, uint32_t centre, const NeighbourhoodLimits& limits)
      : flow_(flow), centre_(flow.nodes[centre]), limits_(limits) {
    draw({centre, kNoIndex}, 0);
  }

  Neighbourhood walk() {
    size_t begin = 0;
    for (uint32_t hop = 1; hop <= limits_.hops; ++hop) {
      const size_t end = out_.nodes.size();
      for (const bool parameters : {false, true}) {
        for (size_t i = begin; i < end; ++i) {
          const uint32_t node = out_.nodes[i].node;
          if (node == kNoIndex) continue;
          extend(neighbours(producers_of(flow_, node)), parameters, hop);
          extend(neighbours(consumers_of(flow_, node)), parameters, hop);
        }
      }
      begin = end;
    }
    for (NeighbourNode& node : out_.nodes) count_rest(&node);
    connect();
    return std::move(out_);
  }

 private:
  /// Draws what there is room for.
  void extend(std::vector<Neighbour> list, bool parameters, uint32_t hop) {
    std::erase_if(list, [&](const Neighbour& one) { return (one.node == kNoIndex) != parameters; });
    std::ranges::stable_sort(list, {}, [&](const Neighbour& one) { return preference(one); });
    size_t shown = 0;
    for (const Neighbour& one : list) {
      if (out_.nodes.size() >= limits_.nodes || shown >= limits_.fan) return;
      if (is_drawn(one)) {
        ++shown;
      } else if (!is_around_or_inside(one)) {
        draw(one, hop);
        ++shown;
      }
    }
  }

  void draw(const Neighbour& one, uint32_t hop) {
    place_of_.emplace(key(one), out_.nodes.size());
    out_.nodes.push_back({one.node, one.value, hop});
  }

  static uint64_t key(const Neighbour& one) { return uint64_t{one.node} << 32 | one.value; }
  [[nodiscard]] bool is_drawn(const Neighbour& one) const { return place_of_.contains(key(one)); }

  /// Of what is drawn.
  [[nodiscard]] bool is_around_or_inside(const Neighbour& one) const {
    if (one.node == kNoIndex) return false;
    const FlowNode& node = flow_.nodes[one.node];
    return std::ranges::any_of(out_.nodes, [&](const NeighbourNode& drawn) {
      if (drawn.node == kNoIndex) return false;
      const FlowNode& other = flow_.nodes[drawn.node];
      return flow_.encloses(node, other) || flow_.encloses(other, node);
    });
  }

  /// Around a module the outermost first, otherwise what has nothing inside; then the nearest.
  [[nodiscard]] std::tuple<bool, size_t, uint64_t> preference(const Neighbour& one) const {
    if (one.node == kNoIndex) return {false, 0, one.value};
    const FlowNode& node = flow_.nodes[one.node];
    const uint64_t distance =
        node.begin > centre_.begin ? node.begin - centre_.begin : centre_.begin - node.begin;
    return {node.encloses != centre_.encloses, centre_.encloses ? node.module.size() : 0, distance};
  }

  void count_rest(NeighbourNode* node) const {
    if (node->node != kNoIndex) {
      node->more_producers = undrawn(neighbours(producers_of(flow_, node->node)));
      node->more_consumers = undrawn(neighbours(consumers_of(flow_, node->node)));
      return;
    }
    std::vector<FlowLink> users;
    add_users(flow_, node->value, kNoIndex, &users);
    node->more_consumers = undrawn(neighbours(users));
  }

  /// Those of the centre's kind, if there are some: a module and what is inside it count once.
  [[nodiscard]] size_t undrawn(const std::vector<Neighbour>& list) const {
    size_t alike = 0, others = 0;
    bool has_alike = false;
    for (const Neighbour& one : list) {
      const bool is_alike =
          one.node == kNoIndex || flow_.nodes[one.node].encloses == centre_.encloses;
      has_alike = has_alike || is_alike;
      if (is_drawn(one) || is_around_or_inside(one)) continue;
      ++(is_alike ? alike : others);
    }
    return has_alike ? alike : others;
  }

  void connect() {
    for (size_t to = 0; to < out_.nodes.size(); ++to) {
      if (out_.nodes[to].node == kNoIndex) continue;
      for (const FlowLink& link : producers_of(flow_, out_.nodes[to].node)) {
        const auto from = place_of_.find(key(neighbours({link}).front()));
        if (from != place_of_.end()) add_edge(from->second, to, link);
      }
    }
  }

  void add_edge(size_t from, size_t to, const FlowLink& link) {
    const auto is_same = [&](const NeighbourEdge& edge) {
      return edge.from == from && edge.to == to && edge.slot == link.slot;
    };
    if (std::ranges::none_of(out_.edges, is_same))
      out_.edges.push_back({from, to, link.slot, link.value});
  }

  const DataFlow& flow_;
  const FlowNode& centre_;
  const NeighbourhoodLimits& limits_;
  Neighbourhood out_;
  std::unordered_map<uint64_t, size_t> place_of_;  // of what is drawn
};

// ---- links of a record --------------------------------------------------------------------------

/// Nodes like the one that is looked at first, then in the order of execution. What it runs in, or
/// what runs in it, is left out.
void trim(const DataFlow& flow, const FlowNode* own, size_t limit, std::vector<FlowLink>* links,
          size_t* more) {
  const auto node_of_link = [&](const FlowLink& link) {
    return link.node == kNoIndex ? nullptr : &flow.nodes[link.node];
  };
  if (own != nullptr) {
    std::erase_if(*links, [&](const FlowLink& link) {
      const FlowNode* other = node_of_link(link);
      return other != nullptr && (flow.encloses(*own, *other) || flow.encloses(*other, *own));
    });
  }
  const bool encloses = own != nullptr && own->encloses;
  std::ranges::stable_sort(*links, {}, [&](const FlowLink& link) {
    const FlowNode* other = node_of_link(link);
    return std::tuple(other == nullptr, other != nullptr && other->encloses != encloses, link.node);
  });
  *more = links->size() > limit ? links->size() - limit : 0;
  links->resize(links->size() - *more);
}

}  // namespace

Neighbourhood neighbourhood(const DataFlow& flow, std::optional<uint32_t> centre,
                            const NeighbourhoodLimits& limits) {
  Neighbourhood out;
  if (!centre || *centre >= flow.nodes.size()) {
    out.reason = !flow.reason.empty() ? flow.reason : "the run has no node of this name";
    return out;
  }
  out = Walk(flow, *centre, limits).walk();
  if (out.edges.empty()) out.reason = flow.reason;
  return out;
}

std::optional<uint32_t> node_of(const DataFlow& flow, size_t record) {
  if (record >= flow.node_of_record.size()) return std::nullopt;
  if (flow.node_of_record[record] != kNoIndex) return flow.node_of_record[record];
  const uint32_t value = flow.value_of_record[record];
  if (value == kNoIndex || flow.values[value].users.empty()) return std::nullopt;
  return flow.values[value].users.front().node;
}

std::optional<uint32_t> node_of(const DataFlow& flow, const locate::Finding& finding) {
  if (const auto node = node_of(flow, finding.mine_record)) return node;
  std::optional<uint32_t> of_module, in_module;
  for (uint32_t i = 0; i < flow.nodes.size(); ++i) {
    const FlowNode& node = flow.nodes[i];
    if (node.rank != finding.rank || node.step != finding.step) continue;
    if (!finding.node.empty() && node.name == finding.node) return i;
    if (!of_module && node.name == finding.module) of_module = i;
    if (!in_module && node.module == finding.module) in_module = i;
  }
  return of_module ? of_module : in_module;
}

RecordLinks links_of(const DataFlow& flow, size_t record, size_t limit) {
  RecordLinks links;
  if (record >= flow.value_of_record.size()) return links;
  const uint32_t node = flow.node_of_record[record];
  const uint32_t value = flow.value_of_record[record];
  const bool is_output = flow.run->records[record].role == Role::Output;
  if (node != kNoIndex && is_output) links.producers = producers_of(flow, node);
  if (value != kNoIndex) {
    if (node != kNoIndex && !is_output) {
      for (const FlowPlace& user : flow.values[value].users) {
        if (user.node == node && flow.nodes[node].inputs[user.port].record == record)
          add_makers(flow, value, user, &links.producers);
      }
    }
    add_users(flow, value, node, &links.consumers);
  }
  const FlowNode* own = node == kNoIndex ? nullptr : &flow.nodes[node];
  trim(flow, own, limit, &links.producers, &links.more_producers);
  trim(flow, own, limit, &links.consumers, &links.more_consumers);
  return links;
}

}  // namespace assay::report::html
