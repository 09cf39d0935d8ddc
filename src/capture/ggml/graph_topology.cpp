// SPDX-License-Identifier: Apache-2.0
// Nodes and edges of a graph; an edge through memory that a node has written is found by its root.
#include "capture/ggml/graph_topology.hpp"

#include <unordered_map>

#include "base/json_text.hpp"
#include "capture/ggml/graph_plan.hpp"

namespace assay::capture::ggml {
namespace {

std::string leaf_json(const Engine& engine, const TensorFields& leaf) {
  return JsonObject()
      .add("name", origin_name(leaf.name()))
      .add("dtype", engine.type_info(leaf.type()).name)
      .add_json("ne", json_list(leaf.ne(), [](int64_t size) { return std::to_string(size); }))
      .text();
}

}  // namespace

std::string topology_json(const Engine& engine, std::span<const TopologyNode> nodes) {
  std::unordered_map<const EngineTensor*, size_t> maker;        // by tensor
  std::unordered_map<const EngineTensor*, size_t> last_writer;  // by root
  std::unordered_map<std::string_view, size_t> maker_by_name;   // for copies between back ends
  std::unordered_map<const EngineTensor*, bool> leaf_known;
  std::string list;
  std::string leafs;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const TensorFields fields = engine.fields(nodes[i].tensor);
    std::string sources;
    for (size_t k = 0; k < fields.source_count(); ++k) {
      const EngineTensor* source = fields.source(k);
      if (source == nullptr || source == nodes[i].tensor) continue;
      const TensorFields of_source = engine.fields(source);
      const auto made = maker.find(source);
      const auto written = last_writer.find(of_source.root().address());
      const auto copied = maker_by_name.find(origin_name(of_source.name()));
      const std::string* name = nullptr;
      if (made != maker.end()) name = &nodes[made->second].name;
      if (written != last_writer.end() && (made == maker.end() || made->second < written->second))
        name = &nodes[written->second].name;
      if (name == nullptr && copied != maker_by_name.end() &&
          origin_name(of_source.name()).size() != of_source.name().size())
        name = &nodes[copied->second].name;
      if (name == nullptr && !leaf_known[source]) {
        leaf_known[source] = true;
        leafs += (leafs.empty() ? "" : ",") + leaf_json(engine, of_source);
      }
      sources +=
          (sources.empty() ? "" : ",") +
          json_quote(name != nullptr ? std::string_view(*name) : origin_name(of_source.name()));
    }
    maker[nodes[i].tensor] = i;
    maker_by_name[fields.name()] = i;
    if (nodes[i].writes) last_writer[fields.root().address()] = i;
    const std::string name = json_quote(nodes[i].name);
    list += (i == 0 ? "" : ",\n") + JsonObject()
                                        .add_json("opName", name)
                                        .add("opType", nodes[i].type)
                                        .add_json("param", nodes[i].arguments)
                                        .add_json("inTensors", "[" + sources + "]")
                                        .add_json("outTensors", "[" + name + "]")
                                        .text();
  }
  return "{\"name\":\"\",\"type\":\"ggml\",\"opName\":\"ggml\",\"opType\":\"ggml\",\"leafs\":[" +
         leafs + "],\"nodes\":[\n" + list + "]}\n";
}

}  // namespace assay::capture::ggml
