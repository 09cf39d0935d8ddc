// SPDX-License-Identifier: Apache-2.0
// The tree of an ATB run without a topology is made of its folders' names. A model with many
// children of one type has layers; the depth-first search for them follows the original's rule.
#include "pair/tree.hpp"

#include <algorithm>
#include <set>

#include "run/atb_names.hpp"
#include "run/common_names.hpp"
#include "run/natural_sort.hpp"

namespace assay::pair {
namespace {

constexpr size_t kManyChildren = 10;       // as the original: more than 10 children ...
constexpr size_t kLayersOfOneType = 5;     // ... of which more than 5 have one type
constexpr size_t kMaxTreeNodes = 1 << 22;  // a hostile model_tree.json cannot make us allocate more

bool is_atb(const run::Run& run) { return run.has(run::Trait::AtbOperations); }

TreeNode make_node(const run::Run& run, const std::string& name, const std::string& type,
                   int parent) {
  TreeNode node;
  node.name = shared_node_name(run, name);
  node.type = type;
  node.parent = parent;
  if (is_atb(run)) {
    const std::string ids = run::atb_ids_of_node(name);
    node.op_name = ids.empty() ? type : type + "_" + ids;
    node.path = name;
  } else {
    node.op_name = node.path = node.name.empty() ? "root" : "root." + node.name;
  }
  return node;
}

void append_node(const run::Run& run, const run::TopologyNode& source, int parent, Tree* tree) {
  if (tree->nodes.size() >= kMaxTreeNodes) return;
  const int index = static_cast<int>(tree->nodes.size());
  tree->nodes.push_back(make_node(run, source.name, source.type, parent));
  tree->nodes.back().parameters = source.parameters;
  if (parent >= 0) tree->nodes[static_cast<size_t>(parent)].children.push_back(index);
  for (const run::TopologyNode& child : source.children) append_node(run, child, index, tree);
}

// The tree that the folders of the records make.
run::TopologyNode folder_topology(const run::Run& run) {
  std::set<std::string, run::NaturalLess> names;
  for (const run::TensorRecord& record : run.records) {
    for (size_t slash = record.node.find('/'); slash != std::string::npos;
         slash = record.node.find('/', slash + 1))
      names.insert(record.node.substr(0, slash));
    names.insert(record.node);
  }
  run::TopologyNode root;
  for (const std::string& name : names) {
    if (run::is_atb_kernel(name)) continue;
    run::TopologyNode* parent = &root;
    // Parents stand before their children, and each new node is the last child of its parent's.
    while (!parent->children.empty() && name.starts_with(parent->children.back().name + "/"))
      parent = &parent->children.back();
    const std::string last = name.substr(name.rfind('/') + 1);
    const auto parsed = run::parse_atb_node_folder(last);
    parent->children.push_back({name, parsed ? std::string(parsed->type) : last, {}});
  }
  return root;
}

uint64_t top_level_id(std::string_view node) {
  const auto name = run::parse_atb_node_folder(node.substr(0, node.find('/')));
  return name ? name->id : 0;
}

// The most frequent type among the children; the first one met wins a tie.
std::pair<std::string, size_t> most_frequent_child_type(const Tree& tree, int node,
                                                        bool inner_only) {
  std::vector<std::pair<std::string, size_t>> counts;
  for (const int child : tree.at(node).children) {
    if (inner_only && tree.is_leaf(child)) continue;
    const std::string& type = tree.at(child).type;
    const auto found =
        std::find_if(counts.begin(), counts.end(), [&](const auto& c) { return c.first == type; });
    if (found == counts.end()) {
      counts.emplace_back(type, 1);
    } else {
      ++found->second;
    }
  }
  std::pair<std::string, size_t> best;
  for (const auto& count : counts) {
    if (count.second > best.second) best = count;
  }
  return best;
}

std::string layer_type_below(const Tree& tree, int node) {
  const std::vector<int>& children = tree.at(node).children;
  if (children.size() > kManyChildren) {
    const auto [type, count] = most_frequent_child_type(tree, node, false);
    return count > kLayersOfOneType ? type : std::string();
  }
  for (const int child : children) {
    if (std::string type = layer_type_below(tree, child); !type.empty()) return type;
  }
  return {};
}

std::string short_model_layer_type(const Tree& tree) {
  for (size_t i = 0; i < tree.nodes.size(); ++i) {
    const int node = static_cast<int>(i);
    const auto [type, count] = most_frequent_child_type(tree, node, true);
    if (count >= 2) return type;
  }
  return {};
}

void collect_layers(const Tree& tree, int node, const std::string& type, std::vector<int>* out) {
  if (tree.at(node).type == type) {
    out->push_back(node);
    return;
  }
  for (const int child : tree.at(node).children) collect_layers(tree, child, type, out);
}

}  // namespace

std::string shared_node_name(const run::Run& run, std::string_view node) {
  return run::module_path(run, node);
}

int Tree::find(std::string_view name) const {
  const auto found = std::find_if(nodes.begin(), nodes.end(),
                                  [&](const TreeNode& node) { return node.name == name; });
  return found == nodes.end() ? -1 : static_cast<int>(found - nodes.begin());
}

std::vector<int> Tree::subtree(int node) const {
  std::vector<int> out = {node};
  for (size_t i = 0; i < out.size(); ++i) {
    const std::vector<int>& children = at(out[i]).children;
    out.insert(out.end(), children.begin(), children.end());
  }
  std::sort(out.begin(), out.end());  // indices are in pre-order
  return out;
}

std::vector<uint64_t> model_starts_of(const run::Run& run) {
  std::vector<uint64_t> starts;
  if (!is_atb(run)) return starts;
  for (const run::Run::Model& model : run.models) {
    if (!model.ids.empty()) starts.push_back(model.ids.front());
  }
  if (!starts.empty()) return starts;
  // Without model files: a model begins where the type of the very first operation comes again.
  std::map<uint64_t, std::string> types;
  for (const run::TensorRecord& record : run.records) {
    const std::string_view top = std::string_view(record.node).substr(0, record.node.find('/'));
    if (const auto name = run::parse_atb_node_folder(top))
      types.emplace(name->id, std::string(name->type));
  }
  for (const auto& [id, type] : types) {
    if (type == types.begin()->second) starts.push_back(id);
  }
  // A type that repeats all the time is a layer, not the beginning of a model.
  if (starts.size() > 4 || 2 * starts.size() > types.size()) starts.resize(1);
  return starts;
}

size_t part_of_node(std::string_view node, const std::vector<uint64_t>& model_starts) {
  if (model_starts.size() < 2) return 0;
  const auto next = std::upper_bound(model_starts.begin(), model_starts.end(), top_level_id(node));
  return next == model_starts.begin() ? 0 : static_cast<size_t>(next - model_starts.begin()) - 1;
}

std::vector<Tree> trees_of(const run::Run& run) {
  std::vector<Tree> trees;
  if (!is_atb(run)) {
    if (run.topology) append_node(run, *run.topology, -1, &trees.emplace_back());
    return trees;
  }
  const run::TopologyNode topology = run.topology ? *run.topology : folder_topology(run);
  const std::vector<uint64_t> starts = model_starts_of(run);
  const size_t parts = std::max<size_t>(starts.size(), 1);
  for (size_t part = 0; part < parts; ++part) {
    Tree& tree = trees.emplace_back();
    TreeNode root = make_node(run, "", topology.type, -1);
    if (part < run.models.size()) root.type = run.models[part].name;
    root.path = root.op_name = root.type;
    tree.nodes.push_back(std::move(root));
    for (const run::TopologyNode& child : topology.children) {
      // What ran beside the models, as a plugin's own operations, is in no model's tree.
      const bool in_model =
          part >= run.models.size() ||
          std::binary_search(run.models[part].ids.begin(), run.models[part].ids.end(),
                             top_level_id(child.name));
      if (in_model && part_of_node(child.name, starts) == part) append_node(run, child, 0, &tree);
    }
  }
  return trees;
}

Layers find_layers(const Tree& tree, bool short_models) {
  Layers layers;
  if (tree.nodes.empty()) return layers;
  layers.type = layer_type_below(tree, 0);
  if (layers.type.empty() && short_models) layers.type = short_model_layer_type(tree);
  if (!layers.type.empty()) collect_layers(tree, 0, layers.type, &layers.nodes);
  return layers;
}

}  // namespace assay::pair
