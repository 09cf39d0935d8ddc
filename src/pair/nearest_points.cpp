// SPDX-License-Identifier: Apache-2.0
// Nodes are split at the median of the dimension in which their points are spread the most, down to
// leaves of a dozen points. Removed points are counted out, so that empty subtrees are passed over.
#include "pair/nearest_points.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace assay::pair {
namespace {
constexpr size_t kLeafPoints = 12;
constexpr size_t kSpreadPoints = 256;
}  // namespace

double squared_distance(std::span<const double> a, std::span<const double> b, double bound) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = a[i] - b[i];
    sum += difference * difference;
    if (sum > bound) return sum;
  }
  return sum;
}

NearestPoints::NearestPoints(std::vector<double> coordinates, size_t dimensions)
    : coordinates_(std::move(coordinates)), dimensions_(dimensions) {
  const size_t count = dimensions_ == 0 ? 0 : coordinates_.size() / dimensions_;
  order_.resize(count);
  std::iota(order_.begin(), order_.end(), size_t{0});
  leaf_of_.resize(count);
  removed_.resize(count);
  if (count > 0) build(0, count, 0);
}

size_t NearestPoints::widest_dimension(size_t begin, size_t end) const {
  // Some points show the spread well enough; all are asked when these lie in one place.
  for (size_t step = std::max<size_t>(1, (end - begin) / kSpreadPoints);; step = 1) {
    size_t widest = kNone;
    double largest_spread = 0;
    for (size_t k = 0; k < dimensions_; ++k) {
      double sum = 0;
      double squares = 0;
      double count = 0;
      const double first = point(order_[begin])[k];
      for (size_t i = begin; i < end; i += step) {
        const double value = point(order_[i])[k] - first;
        sum += value;
        squares += value * value;
        count += 1;
      }
      const double spread = (squares - sum * sum / count) / count;
      if (spread > largest_spread) {
        largest_spread = spread;
        widest = k;
      }
    }
    if (widest != kNone || step == 1) return widest;
  }
}

size_t NearestPoints::build(size_t begin, size_t end, size_t parent) {
  const size_t index = nodes_.size();
  nodes_.push_back({.begin = begin, .end = end, .parent = parent, .alive = end - begin});
  const auto leaf = [&] {
    for (size_t i = begin; i < end; ++i) leaf_of_[order_[i]] = index;
    return index;
  };
  if (end - begin <= kLeafPoints) return leaf();
  const size_t widest = widest_dimension(begin, end);
  if (widest == kNone) return leaf();  // all in one place
  const size_t middle = begin + (end - begin) / 2;
  const auto at = [&](size_t i) { return order_.begin() + static_cast<std::ptrdiff_t>(i); };
  std::nth_element(at(begin), at(middle), at(end), [&](size_t a, size_t b) {
    const double left = point(a)[widest];
    const double right = point(b)[widest];
    return left < right || (left == right && a < b);
  });
  const double split = point(order_[middle])[widest];
  const size_t left = build(begin, middle, index);
  const size_t right = build(middle, end, index);
  Node& node = nodes_[index];
  node.dimension = widest;
  node.split = split;
  node.left = left;
  node.right = right;
  return index;
}

template <typename Visit>
void NearestPoints::search(size_t index, std::span<const double> query, const double& bound_squared,
                           const Visit& visit) const {
  const Node& node = nodes_[index];
  if (node.alive == 0) return;
  if (node.left == 0) {
    for (size_t i = node.begin; i < node.end; ++i) {
      if (!removed_[order_[i]]) visit(order_[i]);
    }
    return;
  }
  const double side = query[node.dimension] - node.split;
  search(side < 0 ? node.left : node.right, query, bound_squared, visit);
  if (side * side <= bound_squared) {
    search(side < 0 ? node.right : node.left, query, bound_squared, visit);
  }
}

std::optional<NearestPoints::Hit> NearestPoints::nearest(std::span<const double> query,
                                                         double max_distance,
                                                         size_t excluded) const {
  if (nodes_.empty()) return std::nullopt;
  double best = max_distance * max_distance;
  size_t found = kNone;
  search(0, query, best, [&](size_t candidate) {
    if (candidate == excluded) return;
    const double squared = squared_distance(query, point(candidate), best);
    if (squared < best) {
      best = squared;
      found = candidate;
    }
  });
  if (found == kNone) return std::nullopt;
  return Hit{found, std::sqrt(best)};
}

std::vector<NearestPoints::Hit> NearestPoints::within(std::span<const double> query,
                                                      double distance) const {
  std::vector<Hit> hits;
  if (nodes_.empty()) return hits;
  const double bound = distance * distance;
  search(0, query, bound, [&](size_t candidate) {
    const double squared = squared_distance(query, point(candidate), bound);
    if (squared <= bound) hits.push_back({candidate, std::sqrt(squared)});
  });
  std::sort(hits.begin(), hits.end(), [](const Hit& a, const Hit& b) { return a.index < b.index; });
  return hits;
}

void NearestPoints::remove(size_t index) {
  if (removed_[index]) return;
  removed_[index] = true;
  size_t node = leaf_of_[index];
  while (true) {
    --nodes_[node].alive;
    if (node == 0) return;
    node = nodes_[node].parent;
  }
}

}  // namespace assay::pair
