// SPDX-License-Identifier: Apache-2.0
// Three steps: segments of wrappers ("_orig_mod") are dropped where that gives more modules a
// common name; models of one program are paired by weights and shapes; one prefix in front of all
// names is taken off.
#include "run/common_names.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/text.hpp"
#include "run/load.hpp"
#include "run/strided_payload.hpp"
#include "run/torch_names.hpp"
#include "stats/whole_tensor.hpp"

namespace assay::run {
namespace {

constexpr std::array<std::string_view, 5> kWrapperSegments = {"_orig_mod", "_fsdp_wrapped_module",
                                                              "_checkpoint_wrapped_module",
                                                              "_forward_module", "base_layer"};
/// A prefix counts as the reason for all other names when it leads to this share of the modules of
/// the other run.
constexpr double kPrefixShare = 0.9;
/// Norms of one weight in two precisions differ by less; those of two weights of one shape rarely
/// do.
constexpr double kSameNorm = 0.02;

// ---- names of a run ----

using Rename = std::function<std::string(std::string_view path)>;

/// Applies a renaming of module paths to a node: "root" in front and "::operator" behind stay.
std::string renamed_node(const Run& run, std::string_view node, const Rename& rename) {
  const std::string_view module = module_of_node(node);
  const std::string_view operation = node.substr(module.size());
  std::string path = rename(module_path(run, module));
  if (run.has(Trait::StrictHooks)) path = path.empty() ? "root" : "root." + path;
  return path + std::string(operation);
}

void rename_topology(const Run& run, const Rename& rename, TopologyNode* node) {
  node->name = renamed_node(run, node->name, rename);
  for (TopologyNode& child : node->children) rename_topology(run, rename, &child);
}

/// Types by path, of the modules that hold records.
using Modules = std::map<std::string, std::string, std::less<>>;

Modules modules_of(const Run& run) {
  Modules modules;
  for (const TensorRecord& record : run.records) {
    if (record.kind != RecordKind::Operand) continue;
    std::string& type = modules[module_path(run, module_of_node(record.node))];
    if (!record.is_of_operator() && type.empty()) type = record.op_type;
  }
  return modules;
}

bool is_module_of_type(const Modules& modules, const std::string& path, const std::string& type) {
  const auto found = modules.find(path);
  return found != modules.end() && (type.empty() || found->second.empty() || found->second == type);
}

/// Modules of golden that mine has under the same name and type after both were renamed.
size_t count_common(const Modules& golden, const Rename& of_golden, const Modules& mine,
                    const Rename& of_mine) {
  Modules renamed;
  for (const auto& [path, type] : golden) renamed.insert_or_assign(of_golden(path), type);
  std::set<std::string> common;
  for (const auto& [path, type] : mine) {
    std::string name = of_mine(path);
    if (is_module_of_type(renamed, name, type)) common.insert(std::move(name));
  }
  return common.size();
}

/// The same where neither was renamed.
size_t count_common(const Modules& golden, const Modules& mine) {
  return static_cast<size_t>(std::ranges::count_if(mine, [&](const auto& module) {
    return is_module_of_type(golden, module.first, module.second);
  }));
}

std::string as_it_is(std::string_view path) { return std::string(path); }

// ---- wrappers ----

/// Length of "draft/" in "draft/layers.0", as models beside the first one in a native run are
/// called; 0 for other names.
size_t model_prefix(std::string_view path) {
  const size_t slash = path.find('/');
  return slash == std::string_view::npos ? 0 : slash + 1;
}

std::string join(const std::vector<std::string_view>& segments, size_t first) {
  std::string text;
  for (size_t i = first; i < segments.size(); ++i)
    text += (text.empty() ? "" : ".") + std::string(segments[i]);
  return text;
}

/// A wrapper that only hands on the results of the module inside it shows them a second time: its
/// inputs and outputs become RecordKind::WatchedAgain, and both get the name without wrappers. A
/// wrapper that adds something of its own (an adapter) gets that name alone, and what it wraps
/// keeps its long one.
class Unwrapping {
 public:
  /// bare   the name without wrappers
  Unwrapping(Run* run, Rename bare) : run_(*run), bare_(std::move(bare)) {
    std::map<std::string, std::vector<std::string>> paths;  // by bare name
    for (const auto& [path, type] : modules_of(run_)) paths[bare_(path)].push_back(path);
    for (auto& [name, wrapped] : paths) {
      std::ranges::sort(wrapped, {}, &std::string::size);
      settle(name, wrapped);
    }
  }

  void apply() {
    for (TensorRecord& record : run_.records) {
      if (!record.is_of_operator() && (record.role == Role::Input || record.role == Role::Output) &&
          seen_again_.contains(module_path(run_, record.node)))
        record.kind = RecordKind::WatchedAgain;
    }
    rename_modules([this](std::string_view path) { return name_of(path); }, &run_);
  }

  [[nodiscard]] std::string name_of(std::string_view path) const {
    const auto kept = kept_.find(path);
    return kept != kept_.end() ? std::string(path) : bare_(path);
  }

 private:
  void settle(const std::string& name, const std::vector<std::string>& paths) {
    for (size_t i = 0; i + 1 < paths.size(); ++i) {
      if (has_equal_results(paths[i], paths[i + 1])) {
        seen_again_.insert(paths[i]);
      } else {
        for (size_t inner = i + 1; inner < paths.size(); ++inner) {
          if (paths[inner] != name) kept_.insert(paths[inner]);
        }
        return;
      }
    }
  }

  [[nodiscard]] std::vector<const TensorRecord*> results_of(const std::string& path) const {
    std::vector<const TensorRecord*> results;
    for (const TensorRecord& record : run_.records) {
      if (record.role == Role::Output && record.kind == RecordKind::Operand &&
          module_path(run_, record.node) == path)
        results.push_back(&record);
    }
    return results;
  }

  [[nodiscard]] bool has_equal_results(const std::string& outer, const std::string& inner) const {
    const std::vector<const TensorRecord*> left = results_of(outer);
    const std::vector<const TensorRecord*> right = results_of(inner);
    if (left.size() != right.size()) return left.empty();
    for (size_t i = 0; i < left.size(); ++i) {
      if (!has_equal_content(*left[i], *right[i])) return false;
    }
    return true;
  }

  static bool has_equal_content(const TensorRecord& left, const TensorRecord& right) {
    if (left.digest && right.digest) return *left.digest == *right.digest;
    if (left.bytes && right.bytes) {
      if (has_same_payload(left, right)) return left.shape == right.shape;
      const Result<Tensor> a = load_tensor(left);
      const Result<Tensor> b = load_tensor(right);
      return a && b && a->view.dtype == b->view.dtype &&
             stats::digest_of(a->view) == stats::digest_of(b->view);
    }
    return left.stats && right.stats && left.stats->count == right.stats->count &&
           left.stats->l2_norm == right.stats->l2_norm && left.stats->mean == right.stats->mean;
  }

  Run& run_;
  Rename bare_;
  std::set<std::string, std::less<>> seen_again_;
  std::set<std::string, std::less<>> kept_;
};

void see_through_wrappers(Run* golden, Run* mine, std::vector<std::string>* notes) {
  const Modules of_golden = modules_of(*golden);
  const Modules of_mine = modules_of(*mine);
  const auto has_wrappers = [](const Modules& modules) {
    return std::ranges::any_of(
        modules, [](const auto& module) { return without_wrappers(module.first) != module.first; });
  };
  const std::pair<bool, bool> possible{has_wrappers(of_golden), has_wrappers(of_mine)};
  size_t best = count_common(of_golden, of_mine);
  std::pair<bool, bool> chosen{false, false};
  for (const auto& way : {std::pair(false, true), std::pair(true, false), std::pair(true, true)}) {
    if (way.first > possible.first || way.second > possible.second) continue;
    const size_t common =
        count_common(of_golden, way.first ? Rename(without_wrappers) : Rename(as_it_is), of_mine,
                     way.second ? Rename(without_wrappers) : Rename(as_it_is));
    if (common > best) {
      best = common;
      chosen = way;
    }
  }
  for (const auto& [wanted, run, side] :
       {std::tuple(chosen.first, golden, "golden"), std::tuple(chosen.second, mine, "mine")}) {
    if (!wanted) continue;
    Unwrapping(run, without_wrappers).apply();
    notes->push_back("names of " + std::string(side) + " stand without its wrappers' segments");
  }
}

// ---- one prefix in front of all ----

/// The prefix that most of `longer`'s names have in front of a name of `shorter`, types agreeing;
/// empty when there is none.
std::string find_prefix(const Modules& shorter, const Modules& longer) {
  std::map<std::string, size_t> votes;
  for (const auto& [path, type] : longer) {
    for (size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', dot + 1)) {
      if (is_module_of_type(shorter, path.substr(dot + 1), type)) ++votes[path.substr(0, dot + 1)];
    }
  }
  std::string best;
  size_t count = 0;
  size_t second = 0;
  for (const auto& [prefix, times] : votes) {
    if (times > count) {
      second = std::exchange(count, times);
      best = prefix;
    } else {
      second = std::max(second, times);
    }
  }
  size_t named = 0;  // an outermost module has no name to find
  for (const auto& [path, type] : shorter) named += path.empty() ? 0 : 1;
  const bool is_reason = static_cast<double>(count) >= kPrefixShare * static_cast<double>(named);
  return named > 1 && is_reason && second < count ? best : std::string();
}

/// Modules that the prefix leads through are the model itself or wrappers of it: their name is
/// empty.
std::string without_prefix(const std::string& prefix, std::string_view path) {
  if (path.starts_with(prefix)) return std::string(path.substr(prefix.size()));
  return prefix.starts_with(std::string(path) + ".") ? std::string() : std::string(path);
}

void see_through_prefix(Run* golden, Run* mine, std::vector<std::string>* notes) {
  const Modules of_golden = modules_of(*golden);
  const Modules of_mine = modules_of(*mine);
  const size_t common = count_common(of_golden, of_mine);
  // Equal names but for the outermost: nothing to gain.
  if (2 * common >= std::min(of_golden.size(), of_mine.size())) return;
  for (const auto& [shorter, longer, run, side] :
       {std::tuple(&of_golden, &of_mine, mine, "mine"),
        std::tuple(&of_mine, &of_golden, golden, "golden")}) {
    const std::string prefix = find_prefix(*shorter, *longer);
    if (prefix.empty()) continue;
    Unwrapping(run, [&](std::string_view path) { return without_prefix(prefix, path); }).apply();
    notes->push_back("names of " + std::string(side) + " stand without the prefix '" + prefix +
                     "'");
    return;
  }
}

// ---- several models in a program ----

/// One of the models of a run: "" of the first, "draft" of nodes "draft" and "draft/layers.0".
struct Model {
  std::string name;
  std::string type;
  std::map<std::string, const TensorRecord*> tensors;  // outputs and weights, by what they are
};

/// The names of all models; those of a native run stand below a node of their own.
std::vector<std::string> model_names(const Run& run) {
  if (!run.has(Trait::AtenOperators) || !run.topology || run.topology->type != kModelsType)
    return {""};
  std::vector<std::string> names;
  for (const TopologyNode& child : run.topology->children) names.push_back(child.name);
  return names.empty() ? std::vector<std::string>{""} : names;
}

class Models {
 public:
  explicit Models(const Run& run) : names_(model_names(run)) {
    for (const std::string& name : names_) models_.push_back({name, {}, {}});
    for (const TensorRecord& record : run.records) {
      if (record.kind != RecordKind::Operand || record.role == Role::Input ||
          record.is_of_operator())
        continue;
      const std::string path = module_path(run, record.node);
      Model& model = models_[index_of(path)];
      const std::string inside = path_inside(path);
      if (inside.empty() && model.type.empty()) model.type = record.op_type;
      model.tensors.emplace(inside + ":" + std::string(role_name(record.role)) + ":" + record.slot,
                            &record);
    }
  }

  [[nodiscard]] const std::vector<Model>& list() const { return models_; }
  [[nodiscard]] size_t index_of(std::string_view path) const {
    const size_t slash = path.find('/');
    for (size_t i = 0; i < names_.size(); ++i) {
      if (!names_[i].empty() && (path == names_[i] || path.substr(0, slash) == names_[i])) return i;
    }
    const auto bare = std::ranges::find(names_, std::string());
    return bare == names_.end() ? 0 : static_cast<size_t>(bare - names_.begin());
  }
  [[nodiscard]] std::string path_inside(std::string_view path) const {
    const std::string& name = names_[index_of(path)];
    if (name.empty() || !path.starts_with(name)) return std::string(path);
    return path.size() == name.size() ? std::string() : std::string(path.substr(name.size() + 1));
  }

 private:
  std::vector<std::string> names_;
  std::vector<Model> models_;
};

/// How far two models are one: their weights first, then shapes, then the names themselves.
struct Likeness {
  double weights = 0;
  double shapes = 0;
  bool same_name = false;
  auto operator<=>(const Likeness&) const = default;
};

/// Sequences and batches differ in length between runs; weights and the last axis do not.
bool has_same_shape(const TensorRecord& golden, const TensorRecord& mine) {
  if (!golden.shape || !mine.shape) return true;
  if (golden.role != Role::Output) return *golden.shape == *mine.shape;
  if (golden.shape->empty() || mine.shape->empty())
    return golden.shape->empty() == mine.shape->empty();
  return golden.shape->span().back() == mine.shape->span().back();
}

bool has_same_weight(const TensorRecord& golden, const TensorRecord& mine) {
  if (!has_same_shape(golden, mine)) return false;
  if (golden.digest && mine.digest && golden.dtype == mine.dtype)
    return *golden.digest == *mine.digest;
  if (!golden.stats || !mine.stats) return true;
  const double l2 = std::max(golden.stats->l2_norm, mine.stats->l2_norm);
  if (std::abs(golden.stats->l2_norm - mine.stats->l2_norm) > kSameNorm * l2) return false;
  const double spread = l2 / std::sqrt(std::max(static_cast<double>(golden.stats->count), 1.0));
  return std::abs(golden.stats->mean - mine.stats->mean) <= kSameNorm * spread &&
         std::abs(golden.stats->max - mine.stats->max) <=
             kSameNorm * std::abs(golden.stats->max) + kSameNorm * spread;
}

Likeness likeness_of(const Model& golden, const Model& mine) {
  Likeness likeness;
  double weights = 0;
  double shapes = 0;
  for (const auto& [what, record] : golden.tensors) {
    const bool is_weight = record->role != Role::Output;
    (is_weight ? weights : shapes) += 1;
    const auto found = mine.tensors.find(what);
    if (found == mine.tensors.end()) continue;
    if (is_weight && has_same_weight(*record, *found->second)) likeness.weights += 1;
    if (!is_weight && has_same_shape(*record, *found->second)) likeness.shapes += 1;
  }
  double mine_shapes = 0;
  for (const auto& [what, record] : mine.tensors)
    mine_shapes += record->role == Role::Output ? 1 : 0;
  if (weights > 0) likeness.weights /= weights;
  if (shapes > 0) likeness.shapes /= std::max(shapes, mine_shapes);
  likeness.same_name = golden.name == mine.name;
  return likeness;
}

/// For each model of mine its golden one: the most alike first.
std::map<size_t, size_t> pair_models(const std::vector<Model>& golden,
                                     const std::vector<Model>& mine) {
  std::vector<std::tuple<Likeness, size_t, size_t>> ways;
  for (size_t g = 0; g < golden.size(); ++g) {
    for (size_t m = 0; m < mine.size(); ++m) {
      const Likeness likeness = likeness_of(golden[g], mine[m]);
      if (likeness.weights > 0 || likeness.shapes > 0) ways.emplace_back(likeness, g, m);
    }
  }
  std::ranges::stable_sort(
      ways, [](const auto& a, const auto& b) { return std::get<0>(a) > std::get<0>(b); });
  std::map<size_t, size_t> golden_of;
  std::set<size_t> taken;
  for (const auto& [likeness, g, m] : ways) {
    if (taken.contains(g) || golden_of.contains(m)) continue;
    taken.insert(g);
    golden_of.emplace(m, g);
  }
  return golden_of;
}

std::string shown(const std::string& model) {
  return model.empty() ? "the one without a name" : "'" + model + "'";
}

/// Models of mine that golden has take the golden name; the others keep theirs, or are numbered
/// when it is taken.
void name_models_alike(const Run& golden, Run* mine, std::vector<std::string>* notes) {
  if (model_names(golden).size() + model_names(*mine).size() < 3) return;
  const Models of_golden(golden);
  const Models of_mine(*mine);
  const std::map<size_t, size_t> golden_of = pair_models(of_golden.list(), of_mine.list());
  std::set<std::string> taken;
  for (const Model& model : of_golden.list()) taken.insert(model.name);
  std::vector<std::string> names;
  for (size_t m = 0; m < of_mine.list().size(); ++m) {
    const Model& model = of_mine.list()[m];
    if (const auto found = golden_of.find(m); found != golden_of.end()) {
      names.push_back(of_golden.list()[found->second].name);
      continue;
    }
    const std::string base =
        model.name.empty() ? (model.type.empty() ? "model" : model.type) : model.name;
    std::string name = base;
    for (size_t number = 2; taken.contains(name); ++number)
      name = base + "-" + std::to_string(number);
    taken.insert(name);
    names.push_back(name);
  }
  bool is_renamed = false;
  for (size_t m = 0; m < names.size(); ++m) {
    const std::string& name = of_mine.list()[m].name;
    if (names[m] == name) continue;
    is_renamed = true;
    notes->push_back("of the models under test " + shown(name) + " is the golden " +
                     shown(names[m]) + " by weights and shapes, and stands under that name");
    if (golden_of.find(m) == golden_of.end())
      notes->back() = "of the models under test " + shown(name) +
                      " is none of the golden ones, and stands as " + shown(names[m]);
  }
  if (!is_renamed) return;
  rename_modules(
      [&](std::string_view path) -> std::string {
        const std::string& name = names[of_mine.index_of(path)];
        const std::string inside = of_mine.path_inside(path);
        if (name.empty()) return inside;
        return inside.empty() ? name : name + "/" + inside;
      },
      mine);
}

}  // namespace

std::string module_path(const Run& run, std::string_view node) {
  if (!run.has(Trait::StrictHooks)) return std::string(node);
  if (node == "root") return {};
  if (node.starts_with("root.")) node.remove_prefix(5);
  return std::string(node);
}

std::string layer_pattern(std::string_view module) {
  std::string pattern;
  for (size_t begin = 0; begin <= module.size();) {
    const size_t end = std::min(module.find('.', begin), module.size());
    const std::string_view part = module.substr(begin, end - begin);
    if (begin > 0) pattern += '.';
    const bool number =
        !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    pattern += number ? std::string_view("*") : part;
    begin = end + 1;
  }
  return pattern;
}

std::string without_wrappers(std::string_view path) {
  const size_t start = model_prefix(path);
  std::vector<std::string_view> segments;
  for (const std::string_view segment : split(path.substr(start), '.')) {
    if (std::ranges::find(kWrapperSegments, segment) == kWrapperSegments.end())
      segments.push_back(segment);
  }
  size_t first = 0;
  for (;;) {
    if (first < segments.size() && segments[first] == "module") {
      ++first;
    } else if (first + 1 < segments.size() && segments[first] == "base_model" &&
               segments[first + 1] == "model") {
      first += 2;
    } else if (first + 1 == segments.size() && segments[first] == "base_model") {
      ++first;
    } else {
      break;
    }
  }
  std::string model(path.substr(0, start));
  std::string rest = join(segments, first);
  if (rest.empty() && !model.empty()) model.pop_back();  // "draft/module": the model itself
  return model + rest;
}

namespace {

/// By new path, the names that the run's files have. Of two modules that get one path the outer one
/// counts.
std::map<std::string, std::string, std::less<>> own_names_after(const Rename& rename,
                                                                const Run& run) {
  std::map<std::string, std::string, std::less<>> names;
  for (const auto& [path, type] : modules_of(run)) {
    const auto known = run.own_names.find(path);
    std::string name = rename(path);
    if (known == run.own_names.end() && name == path) continue;
    names.try_emplace(std::move(name), known == run.own_names.end() ? path : known->second);
  }
  return names;
}

}  // namespace

std::string own_name(const Run& run, std::string_view node) {
  const std::string_view module = module_of_node(node);
  const auto known = run.own_names.find(module_path(run, module));
  if (known == run.own_names.end()) return std::string(node);
  return known->second + std::string(node.substr(module.size()));
}

void rename_modules(const Rename& rename, Run* run) {
  run->own_names = own_names_after(rename, *run);
  for (TensorRecord& record : run->records) {
    record.node = renamed_node(*run, record.node, rename);
    if (record.leaf.empty()) continue;
    const size_t dot = record.leaf.rfind('.');
    if (dot == std::string::npos) continue;  // a parameter of the model itself
    const std::string owner = rename(record.leaf.substr(0, dot));
    record.leaf = (owner.empty() ? "" : owner + ".") + record.leaf.substr(dot + 1);
  }
  for (OperationRecord& operation : run->operations) {
    operation.node = renamed_node(*run, operation.node, rename);
    operation.module = rename(operation.module);
  }
  for (native::MissedNode& missed : run->coverage.missed)
    missed.node = renamed_node(*run, missed.node, rename);
  if (!run->topology) return;
  if (run->topology->type == kModelsType) {  // no module itself
    for (TopologyNode& child : run->topology->children) rename_topology(*run, rename, &child);
  } else {
    rename_topology(*run, rename, &*run->topology);
  }
}

std::vector<std::string> use_common_names(Run* golden, Run* mine) {
  std::vector<std::string> notes;
  if (!golden->has(Trait::ModuleNames) || !mine->has(Trait::ModuleNames) ||
      golden->has_own_engine() || mine->has_own_engine() ||
      (golden->has(Trait::OneFile) && mine->has(Trait::OneFile)))
    return notes;
  see_through_wrappers(golden, mine, &notes);
  name_models_alike(*golden, mine, &notes);
  if (model_names(*golden).size() == 1 && model_names(*mine).size() == 1)
    see_through_prefix(golden, mine, &notes);
  return notes;
}

}  // namespace assay::run
