// SPDX-License-Identifier: Apache-2.0
// Collects the numbers in names by rank. Where places of a group (pp, ep) use the same numbers each
// counts for itself, and the offset of its place is added in records, operations and trees. Of
// experts the sizes of both models tell, too: they should be alike.
#include "run/local_numbers.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/text.hpp"
#include "run/layers.hpp"

namespace assay::run {
namespace {

using Stack = std::pair<std::string, std::string>;  // before and after the number
using Part = std::optional<NumberedLayer> (*)(std::string_view name);

/// The layer of a name that begins with the layer's own name.
std::optional<NumberedLayer> layer_in(std::string_view name) {
  std::optional<NumberedLayer> layer = layer_of_node(name);
  if (layer && !name.starts_with(layer->name())) return std::nullopt;
  return layer;
}

/// The place of every rank in a group of the job; empty where one has none, or the group has one.
std::map<int, int64_t> places_in(const Run& run, const std::set<int>& ranks, const char* group) {
  std::map<int, int64_t> places;
  for (const int rank : ranks) {
    const auto of_rank = run.parallel.find(rank);
    if (of_rank == run.parallel.end()) return {};
    const auto found = of_rank->second.find(group);
    if (found == of_rank->second.end() || found->second.size < 2) return {};
    places[rank] = found->second.rank;
  }
  return places;
}

int64_t size_of(const Run& run, const char* group) {
  const auto& first = run.parallel.begin()->second;
  return first.at(group).size;
}

std::set<int> ranks_of(const Run& run) {
  std::set<int> ranks;
  const TensorRecord* last = nullptr;
  for (const TensorRecord& record : run.records) {
    if (last == nullptr || record.rank != last->rank) ranks.insert(record.rank);
    last = &record;
  }
  return ranks;
}

/// The numbers that ranks have in one stack of a run.
using ByRank = std::map<int, std::set<int64_t>>;
using Numbers = std::map<Stack, ByRank>;

Numbers numbers_of(const Run& run, Part part) {
  Numbers numbers;
  std::unordered_map<uint32_t, std::optional<std::pair<ByRank*, int64_t>>> known;  // by name
  for (const TensorRecord& record : run.records) {
    const auto [found, is_new] = known.try_emplace(record.node.handle());
    if (is_new) {
      if (const auto numbered = part(record.node))
        found->second = {&numbers[{numbered->before, numbered->after}], numbered->number};
    }
    if (found->second) (*found->second->first)[record.rank].insert(found->second->second);
  }
  return numbers;
}

using ByPlace = std::map<int64_t, std::set<int64_t>>;

ByPlace by_place(const ByRank& ranks, const std::map<int, int64_t>& places) {
  ByPlace out;
  for (const auto& [rank, numbers] : ranks)
    out[places.at(rank)].insert(numbers.begin(), numbers.end());
  return out;
}

/// Whether some number occurs in two places: then each place counts for itself.
bool have_common(const ByPlace& places) {
  std::set<int64_t> all;
  size_t count = 0;
  for (const auto& [place, numbers] : places) {
    all.insert(numbers.begin(), numbers.end());
    count += numbers.size();
  }
  return places.size() > 1 && all.size() < count;
}

/// What is added to the numbers of a stack in a place.
using Offset = std::function<int64_t(const Stack& stack, int64_t place)>;

class Renumbering {
 public:
  /// All arguments outlive this object.
  Renumbering(Run* run, Part part, const std::map<int, int64_t>& places, const Offset& offset)
      : run_(*run), part_(part), places_(places), offset_(offset) {}

  void apply() {
    for (TensorRecord& record : run_.records) {
      record.node = renamed(record.rank, record.node);
      record.leaf = renamed(record.rank, record.leaf);
    }
    for (OperationRecord& operation : run_.operations) {
      operation.node = renamed(operation.rank, operation.node);
      operation.module = renamed(operation.rank, operation.module);
    }
    rename_trees();
  }

 private:
  InternedText renamed(int rank, InternedText name) {
    const auto place = places_.find(rank);
    if (name.empty() || place == places_.end()) return name;
    const auto [known, is_new] = renamed_[place->second].try_emplace(name.handle(), name);
    if (!is_new) return known->second;
    const auto found = part_(name);
    if (!found) return name;
    const int64_t offset = offset_({found->before, found->after}, place->second);
    if (offset == 0) return name;
    known->second =
        found->named(std::to_string(found->number + offset)) + name.substr(found->name().size());
    keep_own_name(module_of_node(name), module_of_node(known->second));
    return known->second;
  }

  /// Ranks of several places may share a tree, which becomes one for each place.
  void rename_trees() {
    std::vector<Run::RankTree> trees;
    for (const Run::RankTree& one : run_.rank_trees) {
      std::map<int64_t, std::vector<int>> places;
      for (const int rank : one.ranks) {
        const auto place = places_.find(rank);
        places[place == places_.end() ? -1 : place->second].push_back(rank);
      }
      for (auto& [place, ranks] : places) {
        trees.push_back({std::move(ranks), one.tree});
        rename(trees.back().ranks.front(), &trees.back().tree);
      }
    }
    run_.rank_trees = std::move(trees);
  }
  void rename(int rank, TopologyNode* node) {
    node->name = renamed(rank, InternedText(node->name)).str();
    for (TopologyNode& child : node->children) rename(rank, &child);
  }

  /// Layers and experts may both be numbered on: the name of the files is that of the first time.
  void keep_own_name(std::string_view before, std::string_view now) {
    const auto older = run_.own_names.find(before);
    run_.own_names.try_emplace(std::string(now), older == run_.own_names.end()
                                                     ? std::string(before)
                                                     : std::string(older->second));
  }

  Run& run_;
  Part part_;
  const std::map<int, int64_t>& places_;
  const Offset& offset_;
  std::map<int64_t, std::unordered_map<uint32_t, InternedText>> renamed_;  // by place
};

// ---- experts ----

int64_t count_in(const TopologyNode& node) {
  const auto expert = expert_of_node(node.name);
  int64_t count = expert ? expert->number + 1 : 0;
  for (const TopologyNode& child : node.children) count = std::max(count, count_in(child));
  return count;
}

int64_t divided_up(int64_t count, int64_t parts) { return (count + parts - 1) / parts; }

/// The experts of one of two runs.
class Experts {
 public:
  explicit Experts(Run* run)
      : run_(*run), ranks_(ranks_of(*run)), numbers_(numbers_of(*run, expert_of_node)) {
    for (const auto& [stack, ranks] : numbers_)
      for (const auto& [rank, of_rank] : ranks)
        computed_ = std::max(computed_, *of_rank.rbegin() + 1);
    if (run->topology) declared_ = count_in(*run->topology);
    for (const Run::RankTree& one : run->rank_trees)
      declared_ = std::max(declared_, count_in(one.tree));
    places_ = places_in(*run, ranks_, "ep");
    if (!places_.empty()) size_ = size_of(*run, "ep");
  }

  [[nodiscard]] bool has_any() const { return computed_ > 0; }
  [[nodiscard]] int64_t size() const { return size_; }
  [[nodiscard]] const std::set<int>& ranks() const { return ranks_; }

  /// Experts of the model. One that was given no tokens has no records, so there may be more.
  [[nodiscard]] int64_t all(bool are_local) const {
    return are_local ? computed_ * size_ : std::max(computed_, declared_);
  }

  /// Whether several places have the same numbers.
  [[nodiscard]] bool overlap() const {
    return !places_.empty() && std::ranges::any_of(numbers_, [&](const auto& stack) {
      return have_common(by_place(stack.second, places_));
    });
  }

  /// all  experts of the model, as far as the other run tells
  [[nodiscard]] bool may_be_local(int64_t all) const {
    if (places_.empty()) return false;
    return overlap() || (computed_ <= divided_up(all, size_) &&
                         std::ranges::any_of(numbers_, [&](const auto& stack) {
                           return by_place(stack.second, places_).rbegin()->first > 0;
                         }));
  }

  /// Experts of the model, of which the other run tells `others`. A tree that names as many has
  /// those of all places, and does not tell how many there are in one.
  [[nodiscard]] int64_t all_of_local(int64_t others) const {
    return (declared_ < others ? std::max(computed_, declared_) : computed_) * size_;
  }

  std::string number_on(int64_t all) {
    const int64_t each = divided_up(all, size_);
    const Offset offset = [&](const Stack&, int64_t place) { return place * each; };
    Renumbering(&run_, expert_of_node, places_, offset).apply();
    return "experts are numbered from 0 in each of " + std::to_string(size_) +
           " places of ep: they are numbered on, " + std::to_string(each) +
           " a place, so that those of ep 1 begin with " + std::to_string(each);
  }

  /// Whether several ranks, whose places are not known, have the same numbers, and too few of them
  /// for the other run's model.
  [[nodiscard]] bool look_local(int64_t all) const {
    const auto ranks = static_cast<int64_t>(ranks_.size());
    const int64_t own = std::max(computed_, declared_);
    if (!places_.empty() || ranks < 2 || own * own * ranks >= all * all) return false;
    std::map<int, int64_t> places;
    for (const int rank : ranks_) places[rank] = rank;
    return std::ranges::any_of(
        numbers_, [&](const auto& stack) { return have_common(by_place(stack.second, places)); });
  }

  /// Those of the first rank are the model's first, wherever the others begin.
  std::string leave_out(int64_t all, const std::string& who_tells) {
    const auto is_left_out = [&](const auto& one) {
      return one.rank != *ranks_.begin() && expert_of_node(one.node);
    };
    for (TensorRecord& record : run_.records)
      if (is_left_out(record)) record.kind = RecordKind::WatchedAgain;
    std::erase_if(run_.operations, is_left_out);
    return "experts look numbered within a rank: each of " + std::to_string(ranks_.size()) +
           " ranks has some below " + std::to_string(computed_) + ", the other run has " +
           std::to_string(all) + "; only those of rank " + std::to_string(*ranks_.begin()) +
           " are compared, " + who_tells;
  }

 private:
  Run& run_;
  std::set<int> ranks_;
  Numbers numbers_;
  std::map<int, int64_t> places_;
  int64_t size_ = 1;
  int64_t computed_ = 0;  // one more than the largest number of a record
  int64_t declared_ = 0;  // the same of the tree
};

/// Which of two runs number their experts within a place: what makes them models of one size.
std::pair<bool, bool> find_local(const Experts& golden, const Experts& mine) {
  std::pair<bool, bool> best;
  double nearest = std::numeric_limits<double>::infinity();
  for (const auto& [of_golden, of_mine] : {std::pair(false, false), std::pair(false, true),
                                           std::pair(true, false), std::pair(true, true)}) {
    const int64_t golden_all = golden.all(of_golden);
    const int64_t my_all = mine.all(of_mine);
    if ((of_golden && !golden.may_be_local(my_all)) || (of_mine && !mine.may_be_local(golden_all)))
      continue;
    // When both may be local no size of the model is known: only numbers that places have in common
    // tell then.
    if (of_golden && of_mine && !(golden.overlap() && mine.overlap())) continue;
    const double ratio = static_cast<double>(std::max(golden_all, my_all)) /
                         static_cast<double>(std::min(golden_all, my_all));
    if (ratio > nearest) continue;
    nearest = ratio;
    best = {of_golden, of_mine};
  }
  return best;
}

// ---- trees ----

/// The number at the end of a name, as lists of modules have it.
std::optional<int64_t> last_number(std::string_view name) {
  const auto part = layer_of_part(name.substr(name.rfind('.') + 1));
  return part && part->before.empty() && part->after.empty() ? std::optional(part->number)
                                                             : std::nullopt;
}

/// Where to insert a child: a member of a list by its number, any other child at `behind`, after
/// the sibling that it stood behind.
size_t place_for(const TopologyNode& child, size_t behind, const std::vector<TopologyNode>& among) {
  const auto number = last_number(child.name);
  if (!number) return behind;
  for (size_t i = 0; i < among.size(); ++i) {
    const auto other = last_number(among[i].name);
    if (other && *other > *number) return i;
  }
  return among.size();
}

/// Where a rank has only a placeholder of a module there is nothing below it; the other tree
/// counts.
void join_into(const TopologyNode& from, TopologyNode* to) {
  if (to->children.empty() && !from.children.empty()) {
    *to = from;
    return;
  }
  size_t behind = to->children.size();
  for (const TopologyNode& child : from.children) {
    const auto found = std::ranges::find(to->children, child.name, &TopologyNode::name);
    if (found != to->children.end()) {
      join_into(child, &*found);
      behind = static_cast<size_t>(found - to->children.begin()) + 1;
      continue;
    }
    const size_t place = place_for(child, behind, to->children);
    to->children.insert(to->children.begin() + static_cast<std::ptrdiff_t>(place), child);
    behind = place + 1;
  }
}

}  // namespace

void join_trees(Run* run) {
  if (run->rank_trees.size() > 1) {
    run->topology = std::move(run->rank_trees.front().tree);
    for (size_t i = 1; i < run->rank_trees.size(); ++i)
      join_into(run->rank_trees[i].tree, &*run->topology);
  }
  run->rank_trees.clear();
}

std::string number_stages_on(Run* run) {
  if (run->parallel.empty()) return {};
  const std::map<int, int64_t> places = places_in(*run, ranks_of(*run), "pp");
  if (places.empty()) return {};
  std::map<Stack, std::map<int64_t, int64_t>> offsets;  // by stage
  for (const auto& [stack, ranks] : numbers_of(*run, layer_in)) {
    const ByPlace stages = by_place(ranks, places);
    if (!have_common(stages)) continue;
    int64_t offset = 0;
    for (const auto& [stage, numbers] : stages) {
      offsets[stack][stage] = offset;
      offset += *numbers.rbegin() + 1;
    }
  }
  if (offsets.empty()) return {};
  const Offset offset = [&](const Stack& stack, int64_t stage) -> int64_t {
    const auto of_stack = offsets.find(stack);
    if (of_stack == offsets.end()) return 0;
    const auto of_stage = of_stack->second.find(stage);
    return of_stage == of_stack->second.end() ? 0 : of_stage->second;
  };
  Renumbering(run, layer_in, places, offset).apply();
  const auto& [second, begin] = *std::next(offsets.begin()->second.begin());
  return counted(offsets.begin()->second.size(), "stage") + " of the pipeline number their " +
         "layers from 0: they are numbered on, so that those of stage " + std::to_string(second) +
         " begin with " + std::to_string(begin);
}

std::vector<std::string> number_experts_on(Run* golden_run, Run* mine_run) {
  if (ranks_of(*golden_run).size() < 2 && ranks_of(*mine_run).size() < 2) return {};
  Experts golden(golden_run);
  Experts mine(mine_run);
  if (!golden.has_any() || !mine.has_any()) return {};
  std::vector<std::string> notes;
  const auto [golden_is_local, mine_is_local] = find_local(golden, mine);
  const bool are_alike = golden_is_local && mine_is_local && golden.size() == mine.size() &&
                         golden.ranks() == mine.ranks();
  if (are_alike) return {};
  const int64_t golden_all = golden.all(golden_is_local);
  const int64_t my_all = mine.all(mine_is_local);
  if (golden.look_local(my_all))
    notes.push_back("golden: " + golden.leave_out(my_all,
                                                  "host.parallel of its manifests would "
                                                  "tell which the others are"));
  if (mine.look_local(golden_all))
    notes.push_back("mine: " + mine.leave_out(golden_all,
                                              "--parallel with ep=N tells which the "
                                              "others are"));
  const int64_t all = std::max(golden_is_local ? golden.all_of_local(my_all) : golden_all,
                               mine_is_local ? mine.all_of_local(golden_all) : my_all);
  if (golden_is_local) notes.push_back("golden: " + golden.number_on(all));
  if (mine_is_local) notes.push_back("mine: " + mine.number_on(all));
  return notes;
}

}  // namespace assay::run
