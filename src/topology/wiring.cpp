// SPDX-License-Identifier: Apache-2.0
// From names that may be written many times to names that are written once.
#include <algorithm>
#include <queue>
#include <set>

#include "topology/graph.hpp"

namespace assay::topology {
namespace {

struct InPlace {
  std::string_view type;
  std::vector<size_t> inputs;
};
// Operations that return nothing and change an input; docs/formats/atb-topology.md.
const InPlace kInPlace[] = {
    {"KvCacheOperation", {2}}, {"SetValueOperation", {0}}, {"ReshapeAndCacheOperation", {2, 3}}};

std::vector<std::string> written_inputs(const Node& leaf) {
  std::vector<std::string> names;
  if (!leaf.outputs.empty()) return names;
  for (const InPlace& known : kInPlace) {
    if (leaf.type != known.type) continue;
    for (const size_t input : known.inputs) {
      if (input < leaf.inputs.size()) names.push_back(leaf.inputs[input]);
    }
  }
  return names;
}

/// True when some node reads what only a later one writes.
bool is_out_of_order(const std::vector<Interface>& nodes,
                     const std::set<std::string>& from_outside) {
  std::set<std::string> all_written;
  for (const Interface& node : nodes) all_written.insert(node.outputs.begin(), node.outputs.end());
  std::set<std::string> written = from_outside;
  for (const Interface& node : nodes) {
    for (const std::string& name : node.inputs) {
      if (!written.contains(name) && all_written.contains(name)) return true;
    }
    written.insert(node.outputs.begin(), node.outputs.end());
  }
  return false;
}

/// Stable order in which the first writer of a name stands before its readers; nodes on a cycle
/// keep their places at the end.
std::vector<Interface> sorted(std::vector<Interface> nodes,
                              const std::set<std::string>& from_outside) {
  std::map<std::string, size_t> first_writer;
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const std::string& name : nodes[i].outputs) first_writer.try_emplace(name, i);
  }
  std::vector<std::set<size_t>> readers(nodes.size());
  std::vector<size_t> waits_for(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const std::string& name : nodes[i].inputs) {
      const auto writer = first_writer.find(name);
      if (writer == first_writer.end() || writer->second == i || from_outside.contains(name))
        continue;
      if (readers[writer->second].insert(i).second) ++waits_for[i];
    }
  }
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (waits_for[i] == 0) ready.push(i);
  }
  std::vector<bool> done(nodes.size());
  std::vector<Interface> order;
  while (!ready.empty()) {
    const size_t i = ready.top();
    ready.pop();
    done[i] = true;
    for (const size_t reader : readers[i]) {
      if (--waits_for[reader] == 0) ready.push(reader);
    }
    order.push_back(std::move(nodes[i]));
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!done[i]) order.push_back(std::move(nodes[i]));
  }
  return order;
}

/// Hands out versions: the first write of a name is the name itself, unless it came from outside.
class Versions {
 public:
  Versions(const std::vector<Interface>& nodes, Wiring* wiring) : wiring_(*wiring) {
    for (const Interface& node : nodes) {
      taken_.insert(node.inputs.begin(), node.inputs.end());
      taken_.insert(node.outputs.begin(), node.outputs.end());
    }
  }
  void enter(const std::string& name) {
    if (!current_.try_emplace(name, name).second) return;
    wiring_.inputs.push_back(name);
    taken_.insert(name);
  }
  std::string read(const std::string& name) {
    if (name.empty()) return name;  // an omitted input
    enter(name);
    return current_.at(name);
  }
  std::string write(const std::string& name) {
    if (name.empty()) return name;
    if (current_.try_emplace(name, name).second) return name;
    size_t& number = numbers_[name];
    std::string version;
    do {
      version = name + "@" + std::to_string(++number);
    } while (!taken_.insert(version).second);
    wiring_.versions[version] = name;
    current_[name] = version;
    return version;
  }
  [[nodiscard]] const std::string* last(const std::string& name) const {
    const auto found = current_.find(name);
    return found == current_.end() ? nullptr : &found->second;
  }

 private:
  Wiring& wiring_;
  std::map<std::string, std::string> current_;
  std::map<std::string, size_t> numbers_;
  std::set<std::string> taken_;
};

}  // namespace

std::vector<std::string> outputs_in_place(const Graph& graph, uint32_t index) {
  const Node& node = graph.nodes[index];
  if (!node.is_graph) return written_inputs(node);
  // All descendants follow their ancestor without a gap.
  std::set<std::string> own(node.inputs.begin(), node.inputs.end());
  for (const std::string& name : node.outputs) own.erase(name);
  std::vector<std::string> names;
  for (uint32_t i = index + 1; i < graph.nodes.size() && graph.nodes[i].depth > node.depth; ++i) {
    if (graph.nodes[i].is_graph) continue;
    for (const std::string& name : written_inputs(graph.nodes[i])) {
      if (own.erase(name) > 0) names.push_back(name);
    }
  }
  return names;
}

Wiring wire(std::vector<Interface> nodes, const std::vector<std::string>& inputs,
            const std::vector<std::string>& outputs) {
  const std::set<std::string> from_outside(inputs.begin(), inputs.end());
  if (is_out_of_order(nodes, from_outside)) nodes = sorted(std::move(nodes), from_outside);
  Wiring wiring;
  Versions versions(nodes, &wiring);
  for (const std::string& name : inputs) {
    if (!name.empty()) versions.enter(name);
  }
  for (const Interface& node : nodes) {
    WiredNode wired;
    wired.node = node.node;
    for (const std::string& name : node.inputs) wired.inputs.push_back(versions.read(name));
    for (const std::string& name : node.outputs) wired.outputs.push_back(versions.write(name));
    wiring.nodes.push_back(std::move(wired));
  }
  std::set<std::string> left;
  for (const std::string& name : outputs) {
    const std::string* last = versions.last(name);
    if (!last || !left.insert(name).second) continue;
    wiring.outputs.push_back(*last);
    wiring.output_names.push_back(name);
  }
  return wiring;
}

Wiring wire_level(const Graph& graph, int level) {
  std::vector<Interface> nodes;
  for (const uint32_t index : nodes_at_level(graph, level)) {
    const Node& node = graph.nodes[index];
    Interface interface{index, node.inputs, node.outputs};
    if (index == 0)
      interface.inputs.insert(interface.inputs.end(), graph.weights.begin(), graph.weights.end());
    for (const std::string& name : outputs_in_place(graph, index))
      interface.outputs.push_back(name);
    nodes.push_back(std::move(interface));
  }
  std::vector<std::string> inputs = graph.root().inputs;
  inputs.insert(inputs.end(), graph.weights.begin(), graph.weights.end());
  return wire(std::move(nodes), inputs, graph.root().outputs);
}

}  // namespace assay::topology
