// SPDX-License-Identifier: Apache-2.0
// Three rounds, each leaving less for the next: nearness of fingerprints; groups of equal content
// by execution order; sequence alignment of what is left between the pairs found.
#include "pair/by_value.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_set>

#include "base/thread_pool.hpp"
#include "pair/fingerprint.hpp"
#include "pair/nearest_points.hpp"
#include "run/load.hpp"

namespace assay::pair {
namespace {

using run::Run;
using run::TensorRecord;
using Source = Fingerprint::Source;

// Relative distance up to which two tensors can be the same: rounding of half precision accumulated
// over a network stays below 2e-2, integer quantisation below this.
constexpr double kMaxDistance = 0.06;
// The second best must be this much farther away; the estimate of a distance is good to 25 %.
constexpr double kMargin = 2;
// Distances below are equal: rounding of the sums.
constexpr double kEqual = 1e-7;
constexpr double kValueConfidence = 0.97;
constexpr double kConfidencePerDistance = 3;
constexpr double kGroupFactor = 0.9;  // one of several with the same content
// Share of the sure pairs that must be in one order on both sides before order means something.
constexpr double kOrderedShare = 0.8;
constexpr double kStatisticsFactor = 0.7;  // four numbers instead of 64
constexpr double kZeroFactor = 0.6;        // all zeros or all equal say little
constexpr double kAlignedConfidence = 0.5;
constexpr double kLooselyAlignedConfidence = 0.4;  // nothing known before or after
// Distance from which on the directions of two tensors have little in common; of independent ones
// it is sqrt(2).
constexpr double kUnrelated = 0.5;
// Share of pairs by value after a place from which on a tensor there that differs is another
// tensor.
constexpr double kHealthyShare = 0.5;
constexpr uint64_t kMaxAlignmentCells = 40'000'000;

enum class ValueClass : uint8_t { Float, Complex, Integer, Bits, Unknown };

ValueClass class_of(const std::optional<DType>& dtype) {
  if (!dtype) return ValueClass::Unknown;
  switch (info(*dtype).kind) {
    case DTypeKind::Float:
      return ValueClass::Float;
    case DTypeKind::Complex:
      return ValueClass::Complex;
    case DTypeKind::SignedInt:
    case DTypeKind::UnsignedInt:
    case DTypeKind::Bool:
      return ValueClass::Integer;
    case DTypeKind::Bits:
      return ValueClass::Bits;
  }
  return ValueClass::Unknown;
}

/// A candidate of one side.
struct Item {
  size_t record = 0;
  uint64_t order = 0;
  Fingerprint print;
  // Of the record, or of its file's header.
  ValueClass value_class = ValueClass::Unknown;
  std::optional<Dims> shape;
  bool paired = false;
};

/// What two tensors must share before their values are looked at.
using Key = std::tuple<Role, ValueClass, int64_t, bool>;  // ..., value count, all zero

/// Indices of items of both sides.
struct Members {
  std::vector<size_t> golden;
  std::vector<size_t> mine;
};

// ---- Points ----

constexpr size_t kValueDimensions = 1 + 2 * kSketchSize;
constexpr size_t kStatisticsDimensions = 4;

double norm_coordinate(double norm) { return norm > 0 ? std::log(norm) : 0; }

/// The distance of two such points is about the relative L2 distance of the tensors: the root mean
/// square of that of the values and that of the roots.
void append_value_point(const Fingerprint& print, std::vector<double>* out) {
  out->push_back(norm_coordinate(print.l2_norm));
  const double value_scale = print.l2_norm > 0 ? std::sqrt(0.5) / print.l2_norm : 0;
  const double root_scale = print.l2_norm > 0 ? std::sqrt(0.5) / print.root_norm : 0;
  for (const double entry : print.sketch) out->push_back(entry * value_scale);
  for (const double entry : print.root_sketch) out->push_back(entry * root_scale);
}

/// Each coordinate differs by no more than about the relative distance of the tensors.
void append_statistics_point(const Fingerprint& print, std::vector<double>* out) {
  const auto count = static_cast<double>(std::max<int64_t>(1, print.value_count));
  const double root_mean_square = print.l2_norm / std::sqrt(count);
  const double largest = std::max(std::fabs(print.min), std::fabs(print.max));
  out->push_back(norm_coordinate(print.l2_norm));
  out->push_back(root_mean_square > 0 ? print.mean / root_mean_square : 0);
  out->push_back(largest > 0 ? print.min / largest : 0);
  out->push_back(largest > 0 ? print.max / largest : 0);
}

bool has_statistics(const Fingerprint& print) {
  return print.source != Source::None && std::isfinite(print.l2_norm) &&
         std::isfinite(print.mean) && std::isfinite(print.min) && std::isfinite(print.max);
}
// A tensor without a finite value other than 0 but with others has nothing to be recognised by.
bool has_values(const Fingerprint& print) {
  return print.source == Source::Values && !(print.l2_norm == 0 && print.non_finite_count > 0);
}
bool says_little(const Fingerprint& print) {
  return print.value_count <= 1 || print.l2_norm == 0 || print.min == print.max;
}

class DisjointSets {
 public:
  explicit DisjointSets(size_t count) : parent_(count) {
    std::iota(parent_.begin(), parent_.end(), size_t{0});
  }
  size_t find(size_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void join(size_t a, size_t b) {
    a = find(a);
    b = find(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<size_t> parent_;
};

/// Points of one side, each with all items that have exactly it.
struct Points {
  std::vector<double> coordinates;
  std::vector<std::vector<size_t>> items;

  [[nodiscard]] std::span<const double> at(size_t i, size_t dimensions) const {
    return {coordinates.data() + i * dimensions, dimensions};
  }
};

Points distinct_points(const std::vector<size_t>& indices, const std::vector<Item>& items,
                       void (*append)(const Fingerprint&, std::vector<double>*)) {
  Points points;
  std::map<std::vector<double>, size_t> known;
  for (const size_t index : indices) {
    std::vector<double> point;
    append(items[index].print, &point);
    const auto [place, is_new] = known.emplace(std::move(point), points.items.size());
    if (is_new) {
      points.coordinates.insert(points.coordinates.end(), place->first.begin(), place->first.end());
      points.items.emplace_back();
    }
    points.items[place->second].push_back(index);
  }
  return points;
}

/// Items of both sides that are each other's nearest, or as good as that.
struct Group {
  Members members;
  double distance = 0;     // the largest between two that are near
  bool contested = false;  // one of several groups that are hard to tell apart
};

/// Points of the two sides that are near each other.
class NearPoints {
 public:
  /// Keeps every two points that no other candidate of either fits clearly better.
  NearPoints(const Points& golden, const Points& mine, size_t dimensions, unsigned jobs)
      : golden_(golden),
        mine_(mine),
        near_(golden.items.size()),
        golden_best_(golden.items.size()),
        mine_best_(mine.items.size()),
        sets_(golden.items.size() + mine.items.size()) {
    const NearestPoints golden_tree(golden.coordinates, dimensions);
    const NearestPoints mine_tree(mine.coordinates, dimensions);
    parallel_for(mine_best_.size(), jobs, [&](size_t i) {
      mine_best_[i] = golden_tree.nearest(mine.at(i, dimensions), kMaxDistance);
    });
    parallel_for(golden_best_.size(), jobs, [&](size_t i) {
      const auto point = golden.at(i, dimensions);
      golden_best_[i] = mine_tree.nearest(point, kMaxDistance);
      if (!golden_best_[i]) return;
      near_[i] = mine_tree.within(point, reach(*golden_best_[i]));
      std::erase_if(near_[i], [&](const NearestPoints::Hit& hit) {
        return hit.distance > reach(*mine_best_[hit.index]);
      });
    });
    for (size_t i = 0; i < near_.size(); ++i) {
      for (const NearestPoints::Hit& hit : near_[i]) sets_.join(i, near_.size() + hit.index);
    }
  }

  /// The connected components.
  std::vector<Group> groups() {
    std::map<size_t, Members> components;  // of points
    for (size_t i = 0; i < near_.size(); ++i) {
      if (!near_[i].empty()) components[sets_.find(i)].golden.push_back(i);
    }
    for (size_t i = 0; i < mine_best_.size(); ++i) {
      const auto found = components.find(sets_.find(near_.size() + i));
      if (found != components.end()) found->second.mine.push_back(i);
    }
    std::vector<Group> out;
    for (const auto& [root, points] : components) add_groups(points, &out);
    return out;
  }

 private:
  static double reach(const NearestPoints::Hit& best) {
    return std::min(kMaxDistance, kMargin * best.distance + kEqual);
  }

  // Several points of each side in one component are told apart when each is the nearest of its
  // partner and execution order says the same; a contradiction between the two decides nothing.
  void add_groups(const Members& points, std::vector<Group>* out) const {
    if (points.golden.size() == 1 || !are_mutual(points)) {
      out->push_back(group_of(points));
      return;
    }
    std::vector<Group> parts;
    for (const size_t i : points.golden) parts.push_back(group_of({{i}, {golden_best_[i]->index}}));
    std::sort(parts.begin(), parts.end(), [](const Group& a, const Group& b) {
      return a.members.golden[0] < b.members.golden[0];
    });
    for (size_t k = 0; k < parts.size(); ++k) {
      if (k > 0 && parts[k].members.mine[0] < parts[k - 1].members.mine[0]) return;
      parts[k].contested = true;
    }
    out->insert(out->end(), parts.begin(), parts.end());
  }

  bool are_mutual(const Members& points) const {
    return points.golden.size() == points.mine.size() &&
           std::all_of(points.golden.begin(), points.golden.end(),
                       [&](size_t i) { return mine_best_[golden_best_[i]->index]->index == i; });
  }

  Group group_of(const Members& points) const {
    Group group;
    for (const size_t i : points.golden) {
      const std::vector<size_t>& items = golden_.items[i];
      group.members.golden.insert(group.members.golden.end(), items.begin(), items.end());
      for (const NearestPoints::Hit& hit : near_[i]) {
        if (std::find(points.mine.begin(), points.mine.end(), hit.index) != points.mine.end())
          group.distance = std::max(group.distance, hit.distance);
      }
    }
    for (const size_t i : points.mine) {
      const std::vector<size_t>& items = mine_.items[i];
      group.members.mine.insert(group.members.mine.end(), items.begin(), items.end());
    }
    std::sort(group.members.golden.begin(), group.members.golden.end());
    std::sort(group.members.mine.begin(), group.members.mine.end());
    return group;
  }

  const Points& golden_;
  const Points& mine_;
  std::vector<std::vector<NearestPoints::Hit>> near_;  // of mine, by point of golden
  std::vector<std::optional<NearestPoints::Hit>> golden_best_;
  std::vector<std::optional<NearestPoints::Hit>> mine_best_;
  DisjointSets sets_;
};

std::vector<Group> group_by_nearness(const Members& candidates, const std::vector<Item>& golden,
                                     const std::vector<Item>& mine, bool by_values, unsigned jobs) {
  const auto append = by_values ? append_value_point : append_statistics_point;
  const Points golden_points = distinct_points(candidates.golden, golden, append);
  const Points mine_points = distinct_points(candidates.mine, mine, append);
  return NearPoints(golden_points, mine_points,
                    by_values ? kValueDimensions : kStatisticsDimensions, jobs)
      .groups();
}

// ---- Matching ----

class ValueMatcher {
 public:
  ValueMatcher(const Run& golden, const Run& mine, const ValueMatchOptions& options)
      : golden_run_(golden), mine_run_(mine), jobs_(resolve_job_count(options.jobs)) {}

  void add_candidates(std::span<const size_t> golden, std::span<const size_t> mine,
                      std::span<const ValuePair> anchors, const ValueMatchOptions& options) {
    std::unordered_set<size_t> golden_taken;
    std::unordered_set<size_t> mine_taken;
    for (const ValuePair& anchor : anchors) {
      golden_taken.insert(anchor.golden);
      mine_taken.insert(anchor.mine);
      anchors_.emplace_back(golden_run_.records[anchor.golden].order,
                            mine_run_.records[anchor.mine].order);
    }
    fill(golden_run_, golden, golden_taken, options, &golden_);
    fill(mine_run_, mine, mine_taken, options, &mine_);
    find_shared_types();
  }

  std::vector<ValuePair> run() {
    match_prints(Source::Values, Source::Values);
    match_prints(Source::Statistics, Source::Values);
    match_prints(Source::Values, Source::Statistics);
    match_prints(Source::Statistics, Source::Statistics);
    pair_groups();
    align_rest();
    std::sort(pairs_.begin(), pairs_.end(), [&](const ValuePair& a, const ValuePair& b) {
      return mine_run_.records[a.mine].order < mine_run_.records[b.mine].order;
    });
    return std::move(pairs_);
  }

 private:
  static void fill(const Run& run, std::span<const size_t> candidates,
                   const std::unordered_set<size_t>& taken, const ValueMatchOptions& options,
                   std::vector<Item>* items) {
    std::vector<size_t> records;
    for (const size_t record : candidates) {
      if (!taken.contains(record)) records.push_back(record);
    }
    std::sort(records.begin(), records.end(), [&](size_t a, size_t b) {
      return std::pair(run.records[a].order, a) < std::pair(run.records[b].order, b);
    });
    const auto prints = fingerprint_records(run, records, options.jobs, options.interrupted);
    for (size_t i = 0; i < records.size(); ++i) {
      const TensorRecord& record = run.records[records[i]];
      Item item{records[i], record.order, prints[i], class_of(record.dtype), record.shape, false};
      if (record.bytes && (!record.dtype || !record.shape)) read_header(record, &item);
      items->push_back(std::move(item));
    }
  }

  // A file that cannot be read has no fingerprint either, so nothing is lost.
  static void read_header(TensorRecord record, Item* item) {
    if (!run::load_header(record)) return;
    item->value_class = class_of(record.dtype);
    item->shape = record.shape;
  }

  const TensorRecord& golden_record(size_t item) const {
    return golden_run_.records[golden_[item].record];
  }
  const TensorRecord& mine_record(size_t item) const {
    return mine_run_.records[mine_[item].record];
  }

  // Types mean something between the sides only where both use them.
  void find_shared_types() {
    std::set<std::string> golden_types;
    std::set<std::string> mine_types;
    for (const Item& item : golden_) golden_types.insert(golden_run_.records[item.record].op_type);
    for (const Item& item : mine_) mine_types.insert(mine_run_.records[item.record].op_type);
    std::set_intersection(golden_types.begin(), golden_types.end(), mine_types.begin(),
                          mine_types.end(), std::inserter(shared_types_, shared_types_.end()));
    shared_types_.erase("");
  }
  // A type that only one side knows says nothing.
  std::string type_of(const TensorRecord& record) const {
    return shared_types_.contains(record.op_type) ? record.op_type.str() : std::string();
  }
  bool types_agree(size_t golden, size_t mine) const {
    const std::string left = type_of(golden_record(golden));
    const std::string right = type_of(mine_record(mine));
    return left.empty() || right.empty() || left == right;
  }

  // ---- nearness ----

  static Key key_of(const TensorRecord& record, const Item& item) {
    return {record.role, item.value_class, item.print.value_count, item.print.l2_norm == 0};
  }

  void match_prints(Source golden_source, Source mine_source) {
    const bool by_values = golden_source == Source::Values && mine_source == Source::Values;
    const auto usable = [&](const Item& item, Source source) {
      return !item.paired && item.print.source == source &&
             (by_values ? has_values(item.print) : has_statistics(item.print));
    };
    std::map<Key, Members> buckets;
    for (size_t i = 0; i < golden_.size(); ++i) {
      if (!usable(golden_[i], golden_source)) continue;
      buckets[key_of(golden_record(i), golden_[i])].golden.push_back(i);
    }
    for (size_t i = 0; i < mine_.size(); ++i) {
      if (!usable(mine_[i], mine_source)) continue;
      const auto found = buckets.find(key_of(mine_record(i), mine_[i]));
      if (found != buckets.end()) found->second.mine.push_back(i);
    }
    for (const auto& [key, members] : buckets) {
      if (members.mine.empty()) continue;
      for (Group& group : group_by_nearness(members, golden_, mine_, by_values, jobs_)) {
        double confidence = kValueConfidence - kConfidencePerDistance * group.distance;
        if (!by_values) confidence *= kStatisticsFactor;
        if (group.contested) confidence *= kGroupFactor;
        if (says_little(golden_[group.members.golden[0]].print)) confidence *= kZeroFactor;
        if (group.members.golden.size() == 1 && group.members.mine.size() == 1) {
          // Types that both sides know and that differ: the counterparts of both were not captured.
          const size_t g = group.members.golden[0];
          const size_t m = group.members.mine[0];
          if (types_agree(g, m)) add(g, m, confidence);
        } else {
          // What is in a group waits for its others and does not take part in a later round.
          groups_.emplace_back(std::move(group.members), confidence * kGroupFactor);
          for (const size_t i : groups_.back().first.golden) golden_[i].paired = true;
          for (const size_t i : groups_.back().first.mine) mine_[i].paired = true;
        }
      }
    }
  }

  void add(size_t golden, size_t mine, double confidence, bool by_place = false) {
    golden_[golden].paired = true;
    mine_[mine].paired = true;
    pairs_.push_back({golden_[golden].record, mine_[mine].record, confidence, by_place});
    anchors_.emplace_back(golden_[golden].order, mine_[mine].order);
  }

  // ---- groups of equal content ----

  // Where the sure pairs have the same order on both sides, equal tensors are partners only between
  // the same two of them. Where they have not, or there are none, their own order has to do.
  void pair_groups() {
    for (const auto& [members, confidence] : groups_) {
      for (const size_t i : members.golden) golden_[i].paired = false;
      for (const size_t i : members.mine) mine_[i].paired = false;
    }
    const size_t sure_count = anchors_.size();
    const Chain chain = longest_chain();
    const bool is_ordered = sure_count > 0 && static_cast<double>(chain.golden.size()) >=
                                                  kOrderedShare * static_cast<double>(sure_count);
    for (auto& [members, confidence] : groups_) {
      if (!is_ordered) {
        pair_equals(members, confidence);
        continue;
      }
      std::map<size_t, Members> places;
      for (const size_t i : members.golden) {
        places[chain.before_golden(golden_[i].order)].golden.push_back(i);
      }
      for (const size_t i : members.mine) {
        places[chain.before_mine(mine_[i].order)].mine.push_back(i);
      }
      for (auto& [place, inside] : places) pair_equals(inside, confidence);
    }
  }

  void pair_equals(Members members, double confidence) {
    pair_by_type(members, confidence);
    drop_paired(&members);
    pair_in_order(members, confidence);
  }

  void drop_paired(Members* members) const {
    std::erase_if(members->golden, [&](size_t i) { return golden_[i].paired; });
    std::erase_if(members->mine, [&](size_t i) { return mine_[i].paired; });
  }

  // Items are sorted by execution order, so their indices are as well.
  void pair_in_order(const Members& members, double confidence) {
    if (members.golden.size() != members.mine.size()) return;
    for (size_t k = 0; k < members.golden.size(); ++k) {
      if (!types_agree(members.golden[k], members.mine[k])) return;
    }
    for (size_t k = 0; k < members.golden.size(); ++k) {
      add(members.golden[k], members.mine[k], confidence);
    }
  }

  void pair_by_type(const Members& members, double confidence) {
    std::map<std::tuple<std::string, std::string, std::string>, Members> by_type;
    const auto key = [&](const TensorRecord& record, const Item& item) {
      return std::tuple(type_of(record), record.slot,
                        item.shape ? list_text(item.shape->span()) : std::string());
    };
    for (const size_t i : members.golden)
      by_type[key(golden_record(i), golden_[i])].golden.push_back(i);
    for (const size_t i : members.mine) by_type[key(mine_record(i), mine_[i])].mine.push_back(i);
    for (const auto& [type, same] : by_type) {
      if (!std::get<0>(type).empty()) pair_in_order(same, confidence);
    }
  }

  // ---- execution order ----

  /// Pairs that are in the same order on both sides.
  struct Chain {
    std::vector<uint64_t> golden;
    std::vector<uint64_t> mine;
    static size_t before(const std::vector<uint64_t>& orders, uint64_t order) {
      return static_cast<size_t>(std::upper_bound(orders.begin(), orders.end(), order) -
                                 orders.begin());
    }
    [[nodiscard]] size_t before_golden(uint64_t order) const { return before(golden, order); }
    [[nodiscard]] size_t before_mine(uint64_t order) const { return before(mine, order); }
  };

  // Longest increasing subsequence of the known pairs.
  Chain longest_chain() {
    std::sort(anchors_.begin(), anchors_.end());
    std::vector<size_t> ends;  // of the best chain of each length
    std::vector<size_t> previous(anchors_.size(), SIZE_MAX);
    for (size_t i = 0; i < anchors_.size(); ++i) {
      const auto place = std::lower_bound(
          ends.begin(), ends.end(), anchors_[i].second,
          [&](size_t end, uint64_t order) { return anchors_[end].second < order; });
      if (place != ends.begin()) previous[i] = *(place - 1);
      if (place == ends.end()) {
        ends.push_back(i);
      } else {
        *place = i;
      }
    }
    Chain chain;
    for (size_t i = ends.empty() ? SIZE_MAX : ends.back(); i != SIZE_MAX; i = previous[i]) {
      chain.golden.push_back(anchors_[i].first);
      chain.mine.push_back(anchors_[i].second);
    }
    std::reverse(chain.golden.begin(), chain.golden.end());
    std::reverse(chain.mine.begin(), chain.mine.end());
    return chain;
  }

  // ---- alignment of what values do not pair ----

  /// What a tensor looks like from outside: role, values, last axis that is not 1, whether
  /// integers.
  using Look = std::tuple<Role, int64_t, int64_t, bool>;

  /// Nothing when not even the number of values is known.
  static std::optional<Look> look_of(const TensorRecord& record, const Item& item) {
    int64_t count = item.print.source == Source::None ? -1 : item.print.value_count;
    int64_t last = -1;
    if (item.shape) {
      if (count < 0) count = element_count(*item.shape).value_or(-1);
      for (const int64_t size : item.shape->span()) {
        if (size != 1) last = size;
      }
    }
    if (count < 0) return std::nullopt;
    return Look{record.role, count, last, item.value_class == ValueClass::Integer};
  }

  void align_rest() {
    const Chain chain = longest_chain();
    std::map<size_t, Members> places;
    for (size_t i = 0; i < golden_.size(); ++i) {
      if (!golden_[i].paired) places[chain.before_golden(golden_[i].order)].golden.push_back(i);
    }
    for (size_t i = 0; i < mine_.size(); ++i) {
      if (!mine_[i].paired) places[chain.before_mine(mine_[i].order)].mine.push_back(i);
    }
    count_healthy();
    count_kinds();
    for (const auto& [place, members] : places) {
      const bool bounded = place > 0 && place < chain.golden.size();
      align(members, bounded ? kAlignedConfidence : kLooselyAlignedConfidence);
    }
  }

  // For each item of golden, how many of those after it were paired by value.
  void count_healthy() {
    healthy_after_.assign(golden_.size() + 1, 0);
    for (size_t i = golden_.size(); i-- > 0;) {
      healthy_after_[i] = healthy_after_[i + 1] + (golden_[i].paired ? 1 : 0);
    }
  }

  // How many tensors of each type and look the sides have.
  void count_kinds() {
    for (size_t i = 0; i < golden_.size(); ++i) {
      ++kinds_[{type_of(golden_record(i)), look_of(golden_record(i), golden_[i])}].first;
    }
    for (size_t i = 0; i < mine_.size(); ++i) {
      ++kinds_[{type_of(mine_record(i)), look_of(mine_record(i), mine_[i])}].second;
    }
  }

  // Both have values that point in different directions, and yet most of what comes later agrees:
  // other tensors, not a wrong one. A wrong scale or a mild fault keeps the direction; and where
  // both sides have equally many of a type, each of them has its partner.
  bool contradicts(size_t golden, size_t mine) const {
    const std::string type = type_of(golden_record(golden));
    if (!type.empty() && type == type_of(mine_record(mine))) {
      const auto found = kinds_.find({type, look_of(golden_record(golden), golden_[golden])});
      if (found != kinds_.end() && found->second.first == found->second.second) return false;
    }
    const Fingerprint& left = golden_[golden].print;
    const Fingerprint& right = mine_[mine].print;
    if (!has_values(left) || !has_values(right)) return false;
    std::vector<double> a;
    std::vector<double> b;
    append_value_point(left, &a);
    append_value_point(right, &b);
    a[0] = b[0];  // the norms
    if (squared_distance(a, b, INFINITY) <= kUnrelated * kUnrelated) return false;
    const auto after = static_cast<double>(golden_.size() - golden - 1);
    return static_cast<double>(healthy_after_[golden + 1]) > kHealthyShare * after;
  }

  /// Longest common subsequence of types and looks (Needleman-Wunsch with 1 for a match and 0 for a
  /// gap). A pair counts when every best alignment has it.
  void align(const Members& members, double confidence) {
    const size_t rows = members.golden.size();
    const size_t columns = members.mine.size();
    if (rows == 0 || columns == 0 || (rows + 1) * (columns + 1) > kMaxAlignmentCells) return;
    // Numbers for looks and types; -1: nothing known, 0: a type that says nothing.
    std::map<Look, int> look_numbers;
    std::map<std::string, int> type_numbers{{"", 0}};
    struct Kind {
      int look;
      int type;
    };
    const auto kind_of = [&](const TensorRecord& record, const Item& item) {
      const auto look = look_of(record, item);
      const auto number = [](auto& numbers, const auto& key) {
        return numbers.emplace(key, static_cast<int>(numbers.size())).first->second;
      };
      return Kind{look ? number(look_numbers, *look) : -1, number(type_numbers, type_of(record))};
    };
    std::vector<Kind> golden;
    std::vector<Kind> mine;
    for (const size_t i : members.golden) golden.push_back(kind_of(golden_record(i), golden_[i]));
    for (const size_t i : members.mine) mine.push_back(kind_of(mine_record(i), mine_[i]));
    const auto fits = [&](size_t i, size_t j) {
      const Kind& left = golden[i];
      const Kind& right = mine[j];
      return left.look >= 0 && left.look == right.look &&
             (left.type == 0 || right.type == 0 || left.type == right.type);
    };
    const size_t width = columns + 1;
    std::vector<uint32_t> before((rows + 1) * width, 0);  // of the first i and j
    std::vector<uint32_t> after((rows + 1) * width, 0);   // from i and j on
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < columns; ++j) {
        uint32_t best = std::max(before[i * width + j + 1], before[(i + 1) * width + j]);
        if (fits(i, j)) best = std::max(best, before[i * width + j] + 1);
        before[(i + 1) * width + j + 1] = best;
      }
    }
    for (size_t i = rows; i-- > 0;) {
      for (size_t j = columns; j-- > 0;) {
        uint32_t best = std::max(after[(i + 1) * width + j], after[i * width + j + 1]);
        if (fits(i, j)) best = std::max(best, after[(i + 1) * width + j + 1] + 1);
        after[i * width + j] = best;
      }
    }
    const uint32_t total = after[0];
    for (size_t i = 0; i < rows; ++i) {
      size_t partner = SIZE_MAX;
      bool is_certain = true;
      for (size_t j = 0; j < width && is_certain; ++j) {
        // Best alignments that leave i alone, or give it another partner.
        if (before[i * width + j] + after[(i + 1) * width + j] == total) is_certain = false;
        if (j < columns && fits(i, j) &&
            before[i * width + j] + 1 + after[(i + 1) * width + j + 1] == total) {
          if (partner != SIZE_MAX) is_certain = false;
          partner = j;
        }
      }
      if (!is_certain || partner == SIZE_MAX) continue;
      if (contradicts(members.golden[i], members.mine[partner])) continue;
      add(members.golden[i], members.mine[partner], confidence, true);
    }
  }

  const Run& golden_run_;
  const Run& mine_run_;
  unsigned jobs_;
  std::vector<Item> golden_;  // in execution order
  std::vector<Item> mine_;
  std::set<std::string> shared_types_;
  std::vector<std::pair<uint64_t, uint64_t>> anchors_;  // orders of known pairs
  std::vector<std::pair<Members, double>> groups_;      // with their confidence
  std::vector<uint64_t> healthy_after_;
  std::map<std::pair<std::string, std::optional<Look>>, std::pair<int, int>> kinds_;
  std::vector<ValuePair> pairs_;
};

}  // namespace

std::vector<ValuePair> match_by_value(const run::Run& golden,
                                      std::span<const size_t> golden_candidates,
                                      const run::Run& mine, std::span<const size_t> mine_candidates,
                                      std::span<const ValuePair> anchors,
                                      const ValueMatchOptions& options) {
  ValueMatcher matcher(golden, mine, options);
  matcher.add_candidates(golden_candidates, mine_candidates, anchors, options);
  if (options.interrupted != nullptr && options.interrupted->load()) return {};
  return matcher.run();
}

}  // namespace assay::pair
