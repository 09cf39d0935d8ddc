// SPDX-License-Identifier: Apache-2.0
// Every way to make one tensor of each side's shards is listed; of those whose shapes fit, the
// values at sampled positions choose. Replicas that a way leaves out are then compared in full.
#include "pair/merge_ranks.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <optional>

#include "base/text.hpp"
#include "tensor/convert.hpp"
#include "tensor/equal_bytes.hpp"

namespace assay::pair {
namespace {

// Values are looked at in runs of neighbours: a mapped file then costs one page a run.
constexpr int64_t kSampleRuns = 128;
constexpr int64_t kRunLength = 16;
// A candidate within this factor of the nearest is as good: low precision explains that much.
constexpr double kSameDistance = 2;
// Relative L2 distance from which on two tensors have nothing to do with each other. Unrelated
// tensors of one norm are sqrt(2) apart, a partial sum and the sum about 0.7.
constexpr double kUnrelated = 0.5;
// Replicas are the same computation; the limit is SGLang's.
constexpr double kReplicaRelL2 = 1e-6;
// Shards that differ by more are partial sums rather than damaged replicas.
constexpr double kPartialRelL2 = 0.3;
// So near that no other way has to be tried.
constexpr double kNear = 0.01;
constexpr uint64_t kFullCheckBytes = uint64_t{256} << 20;
constexpr int64_t kMaxQueryHeadsPerKeyHead = 16;

struct Shard {
  size_t record = 0;
  int rank = 0;
  std::optional<Dims> shape;
  std::optional<DType> dtype;
  std::optional<Tensor> tensor;
  std::string problem;
};

/// A stretch of one shard's axis; a merged axis is a sequence of them.
struct Segment {
  size_t shard = 0;  // place in Way::members
  int64_t first = 0;
  int64_t length = 0;
};

/// One way to make a tensor of one side's shards.
struct Way {
  Merge merge = Merge::None;
  std::vector<size_t> members;  // shards that take part
  Dims shape;                   // of the result
  size_t axis = 0;
  int blocks = 1;
  std::vector<Segment> segments = {};  // of Concat and Interleave
  bool reorders = false;               // Concat, then a permutation along the axis
  bool flat = false;                   // Concat of lists, then `shape` made of their first values
  std::string name = {};               // "cat:1": what the note begins with
  int preference = 0;                  // smaller wins among equally near ones
  std::vector<double> samples = {};
};

bool same_but_axis(const Dims& a, const Dims& b, size_t axis) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (i != axis && a[i] != b[i]) return false;
  }
  return true;
}

// "0,1", "0-3", "0,2,5-7"
std::string rank_list(const std::vector<Shard>& shards, const std::vector<size_t>& members) {
  std::string text;
  for (size_t i = 0; i < members.size();) {
    size_t end = i + 1;
    while (end < members.size() && shards[members[end]].rank == shards[members[end - 1]].rank + 1)
      ++end;
    if (!text.empty()) text += ',';
    text += std::to_string(shards[members[i]].rank);
    if (end - i > 1) {
      text += end - i > 2 ? '-' : ',';
      text += std::to_string(shards[members[end - 1]].rank);
    }
    i = end;
  }
  return text;
}

std::vector<Shard> load_shards(const run::Run& run, std::span<const size_t> records,
                               std::string* problem) {
  std::vector<Shard> shards;
  for (const size_t index : records) {
    const run::TensorRecord& record = run.records[index];
    Shard shard{index, record.rank, record.shape, record.dtype, std::nullopt, {}};
    if (record.bytes) {
      if (auto plain = load_plain(record, nullptr)) {
        shard.tensor = std::move(plain->tensor);
        shard.shape = shard.tensor->view.shape;
        shard.dtype = shard.tensor->view.dtype;
      } else {
        shard.problem = plain.error().describe();
      }
    } else {
      shard.problem = record.problem.empty() ? "" : record.problem;
    }
    if (!shard.problem.empty() && problem->empty()) {
      *problem = "rank " + std::to_string(shard.rank) + ": " + shard.problem;
    }
    shards.push_back(std::move(shard));
  }
  return shards;
}

// ---- The ways one side can be merged ----

class Ways {
 public:
  explicit Ways(const std::vector<Shard>& shards) : shards_(shards) {}

  std::vector<Way> list() {
    const size_t count = shards_.size();
    for (const Shard& shard : shards_) {
      if (!shard.shape || !shard.dtype) return {};
    }
    if (count == 1) {
      ways_.push_back({.merge = Merge::None, .members = {0}, .shape = *shards_[0].shape});
      return std::move(ways_);
    }
    std::vector<size_t> all(count);
    for (size_t i = 0; i < count; ++i) all[i] = i;
    add_merges(all, 0);
    // Groups of ranks that hold the same: key heads when there are fewer of them than ranks.
    for (size_t group = 2; group < count; ++group) {
      if (count % group != 0) continue;
      std::vector<size_t> one_a_group;
      for (size_t i = 0; i < count; i += group) one_a_group.push_back(i);
      add_merges(one_a_group, 1);
      add_merges({all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count / group)}, 1);
    }
    ways_.push_back({.merge = Merge::Pick,
                     .members = {0},
                     .shape = *shards_[0].shape,
                     .name = "replica",
                     .preference = 0});
    return std::move(ways_);
  }

 private:
  void add_merges(const std::vector<size_t>& members, int penalty) {
    const Dims& first = *shards_[members[0]].shape;
    for (const size_t member : members) {
      if (shards_[member].dtype != shards_[members[0]].dtype) return;
    }
    bool equal = true;
    for (const size_t member : members) equal = equal && *shards_[member].shape == first;
    for (size_t axis = 0; axis < first.size(); ++axis) add_joins(members, axis, equal, penalty);
    if (equal) {
      ways_.push_back({.merge = Merge::Sum,
                       .members = members,
                       .shape = first,
                       .name = "sum",
                       .preference = 20 + penalty});
    }
  }

  void add_joins(const std::vector<size_t>& members, size_t axis, bool equal, int penalty) {
    const Dims& first = *shards_[members[0]].shape;
    Way way{.merge = Merge::Concat, .members = members, .shape = first, .axis = axis};
    way.shape[axis] = 0;
    bool halves = true;
    bool thirds = true;
    for (size_t k = 0; k < members.size(); ++k) {
      const Dims& shape = *shards_[members[k]].shape;
      if (!same_but_axis(shape, first, axis)) return;
      way.segments.push_back({k, 0, shape[axis]});
      if (add_overflows(way.shape[axis], shape[axis], &way.shape[axis])) return;
      halves = halves && shape[axis] % 2 == 0;
      thirds = thirds && shape[axis] % 3 == 0;
    }
    const std::string place = ":" + std::to_string(axis);
    way.name = "cat" + place;
    way.preference = 10 + penalty;
    ways_.push_back(way);
    if (way.shape[axis] == 0) return;
    if (halves) add_interleave(way, 2, place, penalty);
    if (thirds) add_interleave(way, 3, place, penalty);
    if (halves && equal) add_zigzag(way, place, penalty);
    const bool outermost_or_innermost = axis == 0 || axis + 1 == first.size();
    if (equal && outermost_or_innermost) add_grouped_heads(way, place, penalty);
  }

  void add_interleave(const Way& joined, int blocks, const std::string& place, int penalty) {
    Way way = joined;
    way.merge = Merge::Interleave;
    way.blocks = blocks;
    way.segments.clear();
    for (int block = 0; block < blocks; ++block) {
      for (const Segment& whole : joined.segments) {
        const int64_t length = whole.length / blocks;
        way.segments.push_back({whole.shard, block * length, length});
      }
    }
    way.name = "interleave" + place + " in " + std::to_string(blocks) + " blocks";
    way.preference = 30 + penalty;
    ways_.push_back(std::move(way));
  }

  // Rank r of n holds pieces r and 2n - 1 - r of a sequence, so that all have as much to attend to.
  void add_zigzag(const Way& joined, const std::string& place, int penalty) {
    Way way = joined;
    way.segments.clear();
    const size_t count = joined.segments.size();
    const int64_t half = joined.segments[0].length / 2;
    for (size_t k = 0; k < count; ++k) way.segments.push_back({k, 0, half});
    for (size_t k = count; k-- > 0;) way.segments.push_back({k, half, half});
    way.reorders = true;
    way.name = "zigzag" + place;
    way.preference = 40 + penalty;
    ways_.push_back(std::move(way));
  }

  // Fused q-k-v with g query heads for each key head: a shard is cut g : 1 : 1.
  void add_grouped_heads(const Way& joined, const std::string& place, int penalty) {
    for (int64_t g = 2; g <= kMaxQueryHeadsPerKeyHead; ++g) {
      if (joined.segments[0].length % (g + 2) != 0) continue;
      const int64_t unit = joined.segments[0].length / (g + 2);
      const Segment parts[3] = {{0, 0, g * unit}, {0, g * unit, unit}, {0, (g + 1) * unit, unit}};
      Way way = joined;
      way.segments.clear();
      for (const Segment& part : parts) {
        for (size_t k = 0; k < joined.segments.size(); ++k) {
          way.segments.push_back({k, part.first, part.length});
        }
      }
      way.reorders = true;
      way.name = "interleave" + place + " by " + std::to_string(g) + ":1:1";
      way.preference = 40 + penalty;
      ways_.push_back(std::move(way));
    }
  }

  const std::vector<Shard>& shards_;
  std::vector<Way> ways_;
};

/// Where the shards are lists and the other side is one tensor of more axes: the lists one behind
/// the other hold all its values in order, and then less padding than a list is long.
std::optional<Way> flat_way(const std::vector<Shard>& shards, const std::optional<Dims>& whole) {
  if (!whole || whole->size() == 1) return std::nullopt;
  Way way{.members = {}, .shape = *whole, .flat = true, .name = "flat", .preference = 10};
  int64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    if (!shards[i].shape || shards[i].shape->size() != 1 || shards[i].dtype != shards[0].dtype)
      return std::nullopt;
    way.members.push_back(i);
    way.segments.push_back({i, 0, (*shards[i].shape)[0]});
    if (add_overflows(total, (*shards[i].shape)[0], &total)) return std::nullopt;
  }
  const int64_t values = element_count(*whole).value_or(0);
  if (total < values || total - values >= std::max<int64_t>(total / std::ssize(shards), 1))
    return std::nullopt;
  if (shards.size() > 1) way.merge = Merge::Concat;
  return way;
}

// ---- Looking at values ----

uint64_t mix(uint64_t value) {  // SplitMix64's finaliser
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

/// Flat positions that are looked at: all of a small tensor, else runs at fixed random places.
std::vector<int64_t> sample_positions(int64_t element_total) {
  std::vector<int64_t> positions;
  if (element_total <= kSampleRuns * kRunLength) {
    for (int64_t i = 0; i < element_total; ++i) positions.push_back(i);
    return positions;
  }
  const int64_t stride = element_total / kSampleRuns;
  for (int64_t run = 0; run < kSampleRuns; ++run) {
    const auto slack = static_cast<uint64_t>(stride - kRunLength + 1);
    const auto jitter = static_cast<int64_t>(mix(static_cast<uint64_t>(run) + 1) % slack);
    for (int64_t i = 0; i < kRunLength; ++i) positions.push_back(run * stride + jitter + i);
  }
  return positions;
}

class Sampler {
 public:
  Sampler(const std::vector<Shard>& shards, const Way& way) : shards_(shards), way_(way) {
    int64_t start = 0;
    for (const Segment& segment : way.segments) {
      starts_.push_back(start);
      start += segment.length;
    }
    length_ = way.flat ? start : way.shape.size() > way.axis ? way.shape[way.axis] : 1;
    if (way.flat || element_count(way.shape).value_or(0) == 0) return;
    for (size_t i = way.axis + 1; i < way.shape.size(); ++i) inner_ *= way.shape[i];
  }

  std::vector<double> at(const std::vector<int64_t>& positions) const {
    const auto width =
        static_cast<size_t>(values_per_element(shards_[way_.members[0]].tensor->view.dtype));
    std::vector<double> out(positions.size() * width);
    std::vector<double> values(width);
    for (size_t i = 0; i < positions.size(); ++i) {
      const std::span<double> target = std::span(out).subspan(i * width, width);
      if (way_.merge == Merge::Sum) {
        for (size_t k = 0; k < way_.members.size(); ++k) {
          read(k, positions[i], values);
          for (size_t j = 0; j < width; ++j) target[j] += values[j];
        }
      } else if (way_.segments.empty()) {
        read(0, positions[i], target);
      } else {
        read_joined(positions[i], target);
      }
    }
    return out;
  }

 private:
  void read(size_t member, int64_t position, std::span<double> out) const {
    read_values(shards_[way_.members[member]].tensor->view, position, 1, out);
  }
  void read_joined(int64_t position, std::span<double> out) const {
    const int64_t inner = position % inner_;
    const int64_t along = position / inner_ % length_;
    const int64_t outer = position / inner_ / length_;
    const auto after = std::upper_bound(starts_.begin(), starts_.end(), along);
    const auto index = static_cast<size_t>(after - starts_.begin()) - 1;
    const Segment& segment = way_.segments[index];
    const int64_t size = (*shards_[way_.members[segment.shard]].shape)[way_.axis];
    const int64_t place = segment.first + along - starts_[index];
    read(segment.shard, (outer * size + place) * inner_ + inner, out);
  }

  const std::vector<Shard>& shards_;
  const Way& way_;
  std::vector<int64_t> starts_;  // of the segments on the merged axis
  int64_t length_ = 1;           // of that axis
  int64_t inner_ = 1;
};

/// Relative L2 distance over the positions where both are finite; infinity when there is none.
double distance(std::span<const double> golden, std::span<const double> mine) {
  double difference = 0;
  double golden_squared = 0;
  double mine_squared = 0;
  size_t finite = 0;
  for (size_t i = 0; i < std::min(golden.size(), mine.size()); ++i) {
    if (!std::isfinite(golden[i]) || !std::isfinite(mine[i])) continue;
    ++finite;
    difference += (mine[i] - golden[i]) * (mine[i] - golden[i]);
    golden_squared += golden[i] * golden[i];
    mine_squared += mine[i] * mine[i];
  }
  if (finite == 0 && !golden.empty()) return std::numeric_limits<double>::infinity();
  const double scale = std::max(golden_squared, mine_squared);
  return scale == 0 ? 0 : std::sqrt(difference / scale);
}

/// The same of two shards of one shape, over samples.
double sampled_distance(const Shard& a, const Shard& b) {
  const Way alone{.members = {0}, .shape = *a.shape};
  const auto positions = sample_positions(element_count(*a.shape).value_or(0));
  const std::vector<Shard> first{a};
  const std::vector<Shard> second{b};
  return distance(Sampler(first, alone).at(positions), Sampler(second, alone).at(positions));
}

/// How far a replica is from the first: over all values, of very large tensors over samples.
double replica_distance(const run::Run& run, const Shard& first, const Shard& other) {
  const auto& first_digest = run.records[first.record].digest;
  const auto& other_digest = run.records[other.record].digest;
  if (first.shape != other.shape) return std::numeric_limits<double>::infinity();
  if (first_digest && first_digest == other_digest && first.dtype == other.dtype) return 0;
  const TensorView& a = first.tensor->view;
  const TensorView& b = other.tensor->view;
  const int64_t count = a.element_count();
  const uint64_t size = storage_bytes(a.dtype, static_cast<uint64_t>(count)).value_or(UINT64_MAX);
  if (size > 0 && size <= kFullCheckBytes && has_equal_bytes(a, b)) return 0;
  const double sampled = sampled_distance(first, other);
  if (size > kFullCheckBytes || sampled > kReplicaRelL2) return sampled;
  // The samples agree and the bytes do not: the difference is somewhere else.
  double difference = 0;
  double scale = 0;
  constexpr int64_t kBlock = 4096;
  const auto width = static_cast<size_t>(values_per_element(a.dtype));
  if (values_per_element(b.dtype) != static_cast<int>(width)) return sampled;
  std::vector<double> left(static_cast<size_t>(kBlock) * width);
  std::vector<double> right(left.size());
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t part = std::min(kBlock, count - at);
    const size_t values = static_cast<size_t>(part) * width;
    read_values(a, at, part, std::span(left).first(values));
    read_values(b, at, part, std::span(right).first(values));
    for (size_t i = 0; i < values; ++i) {
      if (left[i] == right[i] || (std::isnan(left[i]) && std::isnan(right[i]))) continue;
      if (!std::isfinite(left[i]) || !std::isfinite(right[i]))
        return std::numeric_limits<double>::infinity();
      difference += (left[i] - right[i]) * (left[i] - right[i]);
      scale += std::max(left[i] * left[i], right[i] * right[i]);
    }
  }
  // Relative to the values that differ, so that one wrong value among many is still seen.
  return scale == 0 ? 0 : std::sqrt(difference / scale);
}

// ---- Deciding ----

class Side {
 public:
  Side(const run::Run& run, std::span<const size_t> records, std::string* problem)
      : run_(run), shards_(load_shards(run, records, problem)), ways_(Ways(shards_).list()) {}

  [[nodiscard]] const std::vector<Shard>& shards() const { return shards_; }
  [[nodiscard]] std::vector<Way>& ways() { return ways_; }
  /// One more way where the other side is whole.
  void add_flat_way(const Side& other) {
    if (other.shards_.size() != 1) return;
    if (auto way = flat_way(shards_, other.shards_[0].shape)) ways_.push_back(std::move(*way));
  }
  [[nodiscard]] bool has_values() const {
    return std::all_of(shards_.begin(), shards_.end(),
                       [](const Shard& shard) { return shard.tensor.has_value(); });
  }

  const std::vector<double>& samples(Way& way, const std::vector<int64_t>& positions) {
    if (way.samples.empty()) way.samples = Sampler(shards_, way).at(positions);
    return way.samples;
  }

  /// The first shard that is not what the way takes it for: a replica of a member.
  /// Empty when all are.
  std::string disagreement(const Way& way) const {
    if (way.members.size() == shards_.size() || !has_values()) return {};
    for (size_t i = 0; i < shards_.size(); ++i) {
      const size_t original = replaced_by(way, i);
      if (original == i) continue;
      const double far = replica_distance(run_, shards_[original], shards_[i]);
      if (far <= kReplicaRelL2) continue;
      char amount[64];
      std::snprintf(amount, sizeof(amount), "relative L2 %.3g", far);
      return "replicas differ: rank " + std::to_string(shards_[i].rank) + " from rank " +
             std::to_string(shards_[original].rank) + " by " + amount;
    }
    return {};
  }

  /// Largest sampled distance between shards that the way takes for replicas.
  double sampled_disagreement(const Way& way) const {
    double largest = 0;
    for (size_t i = 0; i < shards_.size(); ++i) {
      const size_t original = replaced_by(way, i);
      if (original == i) continue;
      if (shards_[original].shape != shards_[i].shape) return kUnrelated * 4;
      largest = std::max(largest, sampled_distance(shards_[original], shards_[i]));
    }
    return largest;
  }

  Recipe recipe(const Way& way) const {
    Recipe recipe;
    recipe.merge = way.merge;
    recipe.axis = static_cast<int>(way.axis);
    recipe.blocks = way.blocks;
    for (const size_t member : way.members) recipe.records.push_back(shards_[member].record);
    if (way.flat) add_unflattening(way, &recipe);
    if (way.merge == Merge::None) return recipe;
    std::vector<size_t> named = way.members;
    if (way.merge == Merge::Pick) {
      named.clear();
      for (size_t i = 0; i < shards_.size(); ++i) named.push_back(i);
      recipe.records.clear();
      for (const Shard& shard : shards_) recipe.records.push_back(shard.record);
    }
    recipe.note = way.name + " of ranks " + rank_list(shards_, named);
    if (way.reorders) recipe.steps.push_back(order_step(way));
    return recipe;
  }

 private:
  // The member that holds what shard i holds: its group's, in either numbering of groups.
  static size_t group_member(const Way& way, size_t i, size_t shard_count) {
    const size_t group = shard_count / way.members.size();
    const bool neighbours = way.members.size() > 1 && way.members[1] == group;
    return neighbours || way.members.size() == 1 ? way.members[i / group]
                                                 : way.members[i % way.members.size()];
  }
  size_t replaced_by(const Way& way, size_t i) const {
    return way.members.size() == shards_.size() ? i : group_member(way, i, shards_.size());
  }

  static void add_unflattening(const Way& way, Recipe* recipe) {
    int64_t total = 0;
    for (const Segment& segment : way.segments) total += segment.length;
    const int64_t values = element_count(way.shape).value_or(0);
    if (total > values)
      recipe->steps.push_back({.kind = RecipeStep::Kind::Range, .axis = 0, .last = values});
    recipe->steps.push_back(
        {.kind = RecipeStep::Kind::Reshape, .shape = {way.shape.begin(), way.shape.end()}});
  }

  static RecipeStep order_step(const Way& way) {
    std::vector<int64_t> shard_starts(way.members.size(), 0);
    std::vector<int64_t> shard_sizes(way.members.size(), 0);
    for (const Segment& segment : way.segments) shard_sizes[segment.shard] += segment.length;
    for (size_t k = 1; k < shard_starts.size(); ++k) {
      shard_starts[k] = shard_starts[k - 1] + shard_sizes[k - 1];
    }
    RecipeStep step{.kind = RecipeStep::Kind::Permute, .axis = static_cast<int>(way.axis)};
    for (const Segment& segment : way.segments) {
      for (int64_t i = 0; i < segment.length; ++i) {
        step.order.push_back(shard_starts[segment.shard] + segment.first + i);
      }
    }
    return step;
  }

  const run::Run& run_;
  std::vector<Shard> shards_;
  std::vector<Way> ways_;
};

struct Choice {
  Way* golden = nullptr;
  Way* mine = nullptr;
  int preference = 0;
  double distance = std::numeric_limits<double>::infinity();
};

bool shapes_fit(ShapeRelation relation) {
  return relation == ShapeRelation::Same || relation == ShapeRelation::Squeezed ||
         relation == ShapeRelation::Merged;
}

/// All combinations whose shapes fit, the preferred first.
std::vector<Choice> fitting(std::vector<Way>& golden_ways, std::vector<Way>& mine_ways) {
  std::vector<Choice> choices;
  for (Way& golden : golden_ways) {
    for (Way& mine : mine_ways) {
      const ShapeRelation relation = shape_relation(golden.shape, mine.shape);
      if (!shapes_fit(relation)) continue;
      const int preference =
          10 * (golden.preference + mine.preference) + static_cast<int>(relation);
      choices.push_back({&golden, &mine, preference});
    }
  }
  std::stable_sort(choices.begin(), choices.end(),
                   [](const Choice& a, const Choice& b) { return a.preference < b.preference; });
  return choices;
}

// Replicas that differ so much that they are none come after every other way; shards that are equal
// are no partial sums.
void weigh_replicas(Side& side) {
  if (side.shards().size() == 1) return;
  bool all_equal = false;
  for (Way& way : side.ways()) {
    if (way.members.size() == side.shards().size()) continue;
    const double disagreement = side.sampled_disagreement(way);
    if (disagreement > kPartialRelL2) way.preference += 100;
    if (way.merge == Merge::Pick) all_equal = disagreement <= kReplicaRelL2;
  }
  if (all_equal) std::erase_if(side.ways(), [](const Way& way) { return way.merge == Merge::Sum; });
}

/// The first choice that is about as near as the nearest one. When none is near, values say nothing
/// and the first one stands.
const Choice& nearest(Side& golden, Side& mine, std::vector<Choice>& choices) {
  double best = std::numeric_limits<double>::infinity();
  for (Choice& choice : choices) {
    const auto positions = sample_positions(element_count(choice.golden->shape).value_or(0));
    choice.distance =
        distance(golden.samples(*choice.golden, positions), mine.samples(*choice.mine, positions));
    if (choice.distance <= kNear) return choice;
    best = std::min(best, choice.distance);
  }
  if (best > kUnrelated) return choices.front();
  return *std::find_if(choices.begin(), choices.end(), [&](const Choice& choice) {
    return choice.distance <= kSameDistance * best;
  });
}

std::string shapes_text(const Side& side) {
  std::vector<size_t> all(side.shards().size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  std::string text = all.size() == 1 ? "rank " : "ranks ";
  text += rank_list(side.shards(), all) + " ";
  const std::optional<Dims>& first = side.shards()[0].shape;
  text += first ? list_text(first->span()) : "of unknown shape";
  for (const Shard& shard : side.shards()) {
    if (shard.shape != first) return text + " and others";
  }
  return text;
}

}  // namespace

MergedPair merge_shards(const run::Run& golden_run, std::span<const size_t> golden_shards,
                        const run::Run& mine_run, std::span<const size_t> mine_shards) {
  MergedPair pair;
  pair.golden.records = {golden_shards[0]};
  pair.mine.records = {mine_shards[0]};
  Side golden(golden_run, golden_shards, &pair.problem);
  Side mine(mine_run, mine_shards, &pair.problem);
  golden.add_flat_way(mine);
  mine.add_flat_way(golden);
  const bool by_value = golden.has_values() && mine.has_values();
  if (by_value) {
    weigh_replicas(golden);
    weigh_replicas(mine);
  }
  std::vector<Choice> choices = fitting(golden.ways(), mine.ways());
  if (choices.empty()) {
    const bool merges = golden_shards.size() > 1 || mine_shards.size() > 1;
    if (merges && pair.problem.empty()) {
      pair.problem = "no way to merge the ranks makes the shapes equal: golden " +
                     shapes_text(golden) + ", mine " + shapes_text(mine);
    }
    return pair;
  }
  const Choice& choice = by_value ? nearest(golden, mine, choices) : choices.front();
  pair.golden = golden.recipe(*choice.golden);
  pair.mine = mine.recipe(*choice.mine);
  for (const std::string& doubt :
       {golden.disagreement(*choice.golden), mine.disagreement(*choice.mine)}) {
    if (pair.problem.empty()) pair.problem = doubt;
  }
  return pair;
}

ShardKey shard_key(const run::TensorRecord& record) {
  return {record.step, record.node, record.role, record.slot, record.call, record.graph};
}

namespace {

/// By rank; of several records of a rank the first with bytes.
std::vector<size_t> shards_like(const run::Run& run, size_t record) {
  const ShardKey key = shard_key(run.records[record]);
  std::map<int, size_t> shards;
  for (size_t i = 0; i < run.records.size(); ++i) {
    const run::TensorRecord& one = run.records[i];
    if (one.node == run.records[record].node && one.shape && one.bytes && shard_key(one) == key)
      shards.emplace(one.rank, i);
  }
  std::vector<size_t> records;
  for (const auto& [rank, i] : shards) records.push_back(i);
  return records;
}

}  // namespace

Result<WholeTensor> load_whole(const run::Run& golden_run, size_t golden, const run::Run& mine_run,
                               size_t mine) {
  const std::vector<size_t> shards = shards_like(mine_run, mine);
  const InternedDims shape = golden_run.records[golden].shape;
  if (shards.empty() || !shape) return fail(Errc::Unsupported, "its bytes were not captured");
  int64_t held = 0;
  for (const size_t i : shards) held += element_count(*mine_run.records[i].shape).value_or(0);
  const int64_t wanted = element_count(*shape).value_or(0);
  const std::string what = counted(shards.size(), "captured rank") +
                           (shards.size() == 1 ? " holds " : " hold ") + std::to_string(held) +
                           " of golden's " + std::to_string(wanted) + " values";
  if (held < wanted) return fail(Errc::Unsupported, what);
  const std::array whole{golden};
  const MergedPair merged = merge_shards(golden_run, whole, mine_run, shards);
  if (!merged.problem.empty()) return fail(Errc::Unsupported, merged.problem);
  ASSAY_TRY(Tensor tensor, load_operand(mine_run, merged.mine));
  if (!(tensor.view.shape == *shape))
    return fail(Errc::Unsupported, what + ", in another order of axes");
  const bool plain = merged.mine.merge == Merge::Concat &&
                     std::ranges::none_of(merged.mine.steps, [](const RecipeStep& step) {
                       return step.kind == RecipeStep::Kind::Permute;
                     });
  return WholeTensor{std::move(tensor),
                     plain || merged.mine.merge == Merge::None ? "" : merged.mine.note};
}

}  // namespace assay::pair
