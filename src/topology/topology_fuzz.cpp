// SPDX-License-Identifier: Apache-2.0
// Any bytes as a report of ATB, as a topology file, as a graph's text and as JSON; what is read is
// written in every form and compared.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

#include "base/text.hpp"
#include "pair/graph_diff.hpp"
#include "topology/atb_json.hpp"
#include "topology/ge_graph.hpp"
#include "topology/graph.hpp"
#include "topology/json_document.hpp"
#include "topology/model_explorer.hpp"
#include "topology/onnx_export.hpp"
#include "topology/shapes.hpp"

using namespace assay;
using namespace assay::topology;

namespace {

constexpr size_t kDepth = 300;

/// Another parser is the oracle, where both are meant to agree: not for bytes that are no UTF-8,
/// numbers out of a double's range, Python's NaN, and depth.
void compare_parsers(std::string_view text) {
  const Result<JsonDocument> ours = JsonDocument::parse(text, kDepth);
  const bool theirs = nlohmann::json::accept(text);
  const bool has_zero = text.find('\0') != text.npos;  // where the other one stops reading
  if (!ours && theirs && !has_zero && ours.error().code != Errc::TooLarge) std::abort();
  const bool is_plain = repair_utf8(text) == text && text.find_first_of("NIeE") == text.npos &&
                        text.size() < 300 && !text.starts_with("\xef\xbb\xbf");
  if (ours && !theirs && is_plain) std::abort();
  if (!ours) return;
  std::string compact;
  ours->append_compact(0, &compact);
  if (theirs && nlohmann::json::parse(compact) != nlohmann::json::parse(text)) std::abort();
  for (JsonDocument::Value member = ours->is(0, JsonKind::Object) ? ours->first(0)
                                                                  : JsonDocument::kNone;
       member != JsonDocument::kNone; member = ours->next(member)) {
    if (ours->find(0, ours->key(member)) == JsonDocument::kNone) std::abort();
  }
}

bool may_exceed_a_double(std::string_view text) {
  size_t digits = 0;
  for (const char c : text) {
    if (digits > 0 && (c == 'e' || c == 'E')) return true;
    digits = c >= '0' && c <= '9' ? digits + 1 : 0;
    if (digits > 300) return true;
  }
  return false;
}

void check_wiring(const Wiring& wiring) {
  std::set<std::string> known(wiring.inputs.begin(), wiring.inputs.end());
  for (const WiredNode& node : wiring.nodes) {
    for (const std::string& name : node.inputs) {
      if (!name.empty() && !known.contains(name)) std::abort();
    }
    for (const std::string& name : node.outputs) {
      if (!name.empty() && !known.insert(name).second) std::abort();
    }
  }
}

void convert(const Graph& graph) {
  for (const int level : {-1, 0, 1}) {
    check_wiring(wire_level(graph, level));
    if (onnx_model(graph, {.level = level}).empty()) std::abort();
    if (!nlohmann::json::accept(model_explorer_json(graph, level))) std::abort();
  }
  (void)onnx_model(graph, {.hierarchical = true});
  (void)onnx_model(graph, {.hierarchical = true, .share_functions = true});
  if (!assay::pair::graph_diff(graph, graph).differences.empty()) std::abort();
}

void convert_text(std::string_view text) {
  const auto json = ge_graph_json(text);
  if (json && !nlohmann::json::accept(*json) && !may_exceed_a_double(text)) std::abort();
  const auto graph = read_ge_graph(text);
  if (!graph) return;
  if (!json) std::abort();
  // With itself as the text behind fusion, operators become members of those that name them.
  const Graph grouped = group_by_fusion(*graph, *graph);
  size_t leaves = 0;
  for (const Node& node : graph->nodes) leaves += !node.is_graph;
  for (const Node& node : grouped.nodes) leaves -= !node.is_graph;
  if (leaves != 0) std::abort();
  convert(grouped);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  compare_parsers(text);
  if (is_graph_text(text)) convert_text(text);
  if (const auto graph = read_graph(text)) {
    convert(*graph);
    if (const auto file = layer_file(graph->root().name, text)) {
      // Numbers beyond a double are copied and stay JSON, but the other library refuses them.
      if (!nlohmann::json::accept(*file) && !may_exceed_a_double(text)) std::abort();
      if (!read_graph(*file)) std::abort();
    }
    const LayerReport layers[] = {{"Decoder_layer_1", "Decoder_layer", std::string(text)}};
    ModelMerge merge;
    if (const auto file = model_file(
            R"({"modelName":"M","nodes":[{"opName":"Decoder_layer","inTensors":["a","w"]}]})",
            layers, &merge)) {
      if (!read_graph(*file)) std::abort();
    }
  }
  ModelMerge merge;
  if (const auto file = model_file(text, {}, &merge)) {
    if (!JsonDocument::parse(*file, 4096)) std::abort();
  }
  ShapeTable shapes;
  shapes.add_op_csv(text);
  return 0;
}
