// SPDX-License-Identifier: Apache-2.0
// Layers of a tree are told by the types of its children, layers and experts of a name by a number:
// between dots, in front of ATB's "_layer", or in a tensor's name where a program has no modules.
#include "run/layers.hpp"

#include <algorithm>
#include <map>

#include "base/ascii.hpp"
#include "base/numbers.hpp"
#include "base/text.hpp"

namespace assay::run {

namespace {
bool is_numbered(const TopologyNode& node) {
  return is_digits(std::string_view(node.name).substr(node.name.rfind('.') + 1));
}
}  // namespace

std::string layer_type(const TopologyNode& root, const LayerRule& rule) {
  if (root.children.size() > rule.min_children) {
    std::map<std::string_view, size_t> counts;
    std::string_view best;
    for (const TopologyNode& child : root.children) {
      if (!rule.numbered_only || is_numbered(child)) ++counts[child.type];
    }
    size_t best_count = 0;
    for (const TopologyNode& child : root.children) {
      const auto found = counts.find(child.type);
      if (found != counts.end() && found->second > best_count) {
        best = child.type;
        best_count = found->second;
      }
    }
    if (best_count > rule.min_repeats) return std::string(best);
    if (!rule.numbered_only) return {};
  }
  for (const TopologyNode& child : root.children) {
    if (std::string found = layer_type(child, rule); !found.empty()) return found;
  }
  return {};
}

namespace {
void collect(const TopologyNode& node, std::string_view type,
             std::vector<const TopologyNode*>* layers) {
  if (node.type == type) {
    layers->push_back(&node);
    return;
  }
  for (const TopologyNode& child : node.children) collect(child, type, layers);
}
}  // namespace

std::vector<const TopologyNode*> layers_of_type(const TopologyNode& root, std::string_view type) {
  std::vector<const TopologyNode*> layers;
  if (!type.empty()) collect(root, type, &layers);
  return layers;
}

namespace {
constexpr std::string_view kOfOperators = "layer ";

std::optional<int64_t> layer_number(std::string_view text) {
  return is_digits(text) ? parse_number<int64_t>(text) : std::nullopt;
}

/// "3_Prefill_layer": ATB's layers end with "_layer" or "Layer", its operations do not.
std::optional<NumberedLayer> atb_layer(std::string_view part) {
  const size_t mark = part.find('_');
  if (mark == std::string_view::npos || !(part.ends_with("_layer") || part.ends_with("Layer")))
    return std::nullopt;
  const auto number = layer_number(part.substr(0, mark));
  if (!number) return std::nullopt;
  return NumberedLayer{"", *number, std::string(part.substr(mark))};
}

/// Of "Qcur-5", "cache_k_l5 (view)", "(attn_out-5)" and "(blk.5.attn_output.weight)": as programs
/// without modules call their tensors.
std::optional<int64_t> number_in_tensor_name(std::string_view name) {
  if (name.starts_with('(')) name.remove_prefix(1);
  for (const std::string_view mark : {"blk.", "-", "_l"}) {
    const size_t at =
        mark == "blk." ? (name.starts_with(mark) ? 0 : std::string_view::npos) : name.find(mark);
    if (at == std::string_view::npos) continue;
    const std::string_view rest = name.substr(at + mark.size());
    const size_t end = std::min(rest.find_first_not_of("0123456789"), rest.size());
    const bool ends =
        end == rest.size() || std::string_view(" ).").find(rest[end]) != std::string_view::npos;
    if (const auto number = layer_number(rest.substr(0, end)); ends && number) return number;
  }
  return std::nullopt;
}
}  // namespace

std::optional<NumberedLayer> layer_of_part(std::string_view part) {
  if (const auto number = layer_number(part)) return NumberedLayer{"", *number, ""};
  if (part.starts_with(kOfOperators)) {
    if (const auto number = layer_number(part.substr(kOfOperators.size())))
      return NumberedLayer{std::string(kOfOperators), *number, ""};
  }
  return atb_layer(part);
}

std::optional<NumberedLayer> layer_of_node(std::string_view node) {
  if (auto layer = atb_layer(node.substr(0, node.find('/')))) return layer;
  const std::string_view module = module_of_node(node);
  size_t start = 0;
  for (const std::string_view part : split(module, '.')) {
    const auto number = layer_number(part);
    if (number && !module.starts_with('('))
      return NumberedLayer{std::string(module.substr(0, start)), *number, ""};
    start += part.size() + 1;
  }
  if (module.size() == node.size()) return std::nullopt;
  const auto number = number_in_tensor_name(module);
  if (!number) return std::nullopt;
  return NumberedLayer{std::string(kOfOperators), *number, ""};
}

std::optional<NumberedLayer> expert_of_node(std::string_view name) {
  const std::string_view module = module_of_node(name);
  std::string_view list;
  size_t start = 0;
  for (const std::string_view part : split(module, '.')) {
    const auto number = layer_number(part);
    if (number && list.ends_with("experts") && list.find("shared") == std::string_view::npos)
      return NumberedLayer{std::string(module.substr(0, start)), *number, ""};
    list = part;
    start += part.size() + 1;
  }
  return std::nullopt;
}

}  // namespace assay::run
