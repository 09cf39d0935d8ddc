// SPDX-License-Identifier: Apache-2.0
// Nearest neighbours among points of many dimensions: a k-d tree.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace assay::pair {

/// Built once, then asked; points can be taken out one by one. Fast where a query has neighbours
/// that are much nearer than points are to each other, or none within the given distance. Results
/// depend on the points and their order only.
class NearestPoints {
 public:
  /// coordinates   [points, dimensions], finite
  NearestPoints(std::vector<double> coordinates, size_t dimensions);

  struct Hit {
    size_t index = 0;
    double distance = 0;  // Euclidean
  };
  static constexpr size_t kNone = SIZE_MAX;

  /// Nothing when no point other than `excluded` lies nearer than max_distance.
  [[nodiscard]] std::optional<Hit> nearest(std::span<const double> query, double max_distance,
                                           size_t excluded = kNone) const;
  /// All points within the distance, by index.
  [[nodiscard]] std::vector<Hit> within(std::span<const double> query, double distance) const;
  void remove(size_t index);

 private:
  struct Node {
    size_t begin = 0;  // of order_
    size_t end = 0;
    size_t left = 0;  // 0: a leaf; the right child follows the left one's subtree
    size_t right = 0;
    size_t parent = 0;
    size_t alive = 0;
    size_t dimension = 0;
    double split = 0;
  };
  [[nodiscard]] std::span<const double> point(size_t index) const {
    return {coordinates_.data() + index * dimensions_, dimensions_};
  }
  /// kNone when all points are in one place.
  [[nodiscard]] size_t widest_dimension(size_t begin, size_t end) const;
  size_t build(size_t begin, size_t end, size_t parent);
  template <typename Visit>
  void search(size_t node, std::span<const double> query, const double& bound_squared,
              const Visit& visit) const;

  std::vector<double> coordinates_;
  size_t dimensions_;
  std::vector<size_t> order_;  // points, leaf by leaf
  std::vector<Node> nodes_;
  std::vector<size_t> leaf_of_;  // by point
  std::vector<bool> removed_;    // by point
};

/// Squared Euclidean distance of two points of one dimension; stops adding beyond `bound`.
[[nodiscard]] double squared_distance(std::span<const double> a, std::span<const double> b,
                                      double bound);

}  // namespace assay::pair
