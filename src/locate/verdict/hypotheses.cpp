// SPDX-License-Identifier: Apache-2.0
// Each hypothesis undoes one mistake and measures what error is left. Those about all values come
// first; where a part of the tensor is wrong and the rest is not, the place itself is an
// explanation.
#include "locate/verdict/hypotheses.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <numeric>
#include <vector>

#include "measure/metrics.hpp"
#include "reference/wide.hpp"
#include "tensor/layouts.hpp"

namespace assay::locate {
namespace {

using reference::Wide;

// What is left of the error must be below this whatever the floor: values that agree to this are
// equal to a reader.
constexpr double kTiny = 1e-6;
// An explanation takes away at least this part of the error, so that noise near the limit is not
// explained away.
constexpr double kImprovement = 0.5;
// Fewer values than this fit too many stories.
constexpr int64_t kLeast = 8;
// Only the leading part of a larger tensor is looked at.   128 MiB for each side as fp64
constexpr int64_t kMost = int64_t{1} << 24;
// Permutations of more parts of an axis than this, as heads, are not searched for.
constexpr int64_t kMostParts = 128;

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g", value);
  return text;
}
std::string range_text(int64_t first, int64_t length) {
  return "[" + std::to_string(first) + ", " + std::to_string(first + length) + ")";
}
std::string axis_text(size_t axis) { return "axis " + std::to_string(axis); }

/// The tensor seen as [outer, size, inner] around one axis.
struct Axis {
  int64_t outer = 1;
  int64_t size = 1;
  int64_t inner = 1;
  [[nodiscard]] size_t place_of(int64_t flat) const {
    return static_cast<size_t>(flat / inner % size);
  }
};
Axis around(const Dims& shape, size_t axis) {
  Axis result;
  for (size_t i = 0; i < axis; ++i) result.outer *= shape[i];
  result.size = shape[axis];
  for (size_t i = axis + 1; i < shape.size(); ++i) result.inner *= shape[i];
  return result;
}

/// Calls use(index along the axis, flat index) for every value.
template <typename Use>
void for_each_value(const Axis& axis, Use use) {
  int64_t flat = 0;
  for (int64_t o = 0; o < axis.outer; ++o) {
    for (int64_t j = 0; j < axis.size; ++j) {
      for (int64_t i = 0; i < axis.inner; ++i) use(j, flat++);
    }
  }
}

/// sqrt(part / whole), and infinity for something out of nothing.
double relative(double part, double whole) {
  if (whole > 0) return std::sqrt(part / whole);
  return part > 0 ? INFINITY : 0;
}

class Search {
 public:
  Search(Wide right, Wide wrong, double limit)
      : right_(std::move(right)), wrong_(std::move(wrong)), limit_(limit) {}

  Hypothesis run() {
    if (!prepare()) return {};
    try_values();
    try_orders();
    if (best_.sentence.empty()) try_places();
    return best_;
  }

 private:
  [[nodiscard]] const Dims& shape() const { return right_.shape; }
  [[nodiscard]] int64_t count() const { return right_.size(); }
  [[nodiscard]] double right(int64_t i) const { return right_.data()[i]; }
  [[nodiscard]] double wrong(int64_t i) const { return wrong_.data()[i]; }

  /// What is left where undone(i) is what wrong(i) would be without the mistake.
  template <typename Undone>
  [[nodiscard]] double error_of(const Undone& undone) const {
    double sum = 0;
    for (int64_t i = 0; i < count(); ++i) {
      const double d = undone(i) - right(i);
      sum += d * d;
    }
    return relative(sum, right_square_);
  }

  /// Norms and slope; false where there is nothing to explain, or nothing to explain it with.
  bool prepare() {
    double product = 0;
    double error = 0;
    for (int64_t i = 0; i < count(); ++i) {
      const double d = wrong(i) - right(i);
      right_square_ += right(i) * right(i);
      wrong_square_ += wrong(i) * wrong(i);
      product += right(i) * wrong(i);
      error += d * d;
    }
    if (!std::isfinite(right_square_) || right_square_ == 0) return false;
    error_ = relative(error, right_square_);
    if (std::isfinite(error_) && error_ <= limit_) return false;
    slope_ = product / right_square_;
    return true;
  }

  /// Keeps the explanation when it is good enough, and better than what was found.
  bool offer(double error, const std::function<std::string()>& sentence) {
    if (!(error <= limit_)) return false;
    const bool better =
        error <= kImprovement * error_ && (best_.sentence.empty() || error < best_.error);
    if (std::isfinite(error_) && !better) return false;  // else a place explains, whatever is there
    best_ = {sentence(), error};
    return true;
  }

  // ---- Values that are changed alike ------------------------------------------------------------

  void try_values() {
    if (!std::isfinite(error_)) return;
    if (wrong_square_ == 0) {
      best_ = {"all values are zero", 0};
      return;
    }
    if (try_factor() || try_constant()) return;
    try_factors_of_places();
    try_differences_of_places();
  }

  bool try_factor() {
    if (slope_ == 0) return false;
    return offer(error_of([&](int64_t i) { return wrong(i) / slope_; }), [&] {
      return std::fabs(slope_ + 1) <= limit_ ? "the sign is reversed"
                                             : "a constant factor " + number(slope_);
    });
  }

  bool try_constant() {
    double mean = 0;
    for (int64_t i = 0; i < count(); ++i) mean += wrong(i) - right(i);
    mean /= static_cast<double>(count());
    return offer(error_of([&](int64_t i) { return wrong(i) - mean; }),
                 [&] { return "a constant " + number(mean) + " is added"; });
  }

  /// Each place of an axis has as many values as this to agree on its own number.
  static constexpr int64_t kWitnesses = 4;

  /// A factor for every place of an axis: a missing or wrong weight of a norm, a scale of a
  /// quantisation.
  void try_factors_of_places() {
    for (size_t k = shape().size(); k-- > 0;) {
      const Axis axis = around(shape(), k);
      if (axis.size < 2 || axis.outer * axis.inner < kWitnesses) continue;
      std::vector<double> products(static_cast<size_t>(axis.size));
      std::vector<double> squares(products.size());
      for_each_value(axis, [&](int64_t j, int64_t i) {
        products[static_cast<size_t>(j)] += wrong(i) * right(i);
        squares[static_cast<size_t>(j)] += right(i) * right(i);
      });
      const double error = error_of([&](int64_t i) {
        const size_t place = axis.place_of(i);
        const double factor = squares[place] > 0 ? products[place] / squares[place] : 1;
        return factor == 0 ? 0 : wrong(i) / factor;
      });
      if (places_that_are_wrong(axis).size() < products.size()) continue;  // told better by place
      offer(error, [&] { return "every place of " + axis_text(k) + " has a factor of its own"; });
    }
  }

  /// A number added to every place of an axis.
  void try_differences_of_places() {
    for (size_t k = shape().size(); k-- > 0;) {
      const Axis axis = around(shape(), k);
      if (axis.size < 2 || axis.outer * axis.inner < kWitnesses) continue;
      std::vector<double> means(static_cast<size_t>(axis.size));
      for_each_value(axis, [&](int64_t j, int64_t i) {
        means[static_cast<size_t>(j)] += wrong(i) - right(i);
      });
      for (double& mean : means) mean /= static_cast<double>(axis.outer * axis.inner);
      if (2 * places_that_are_wrong(axis).size() < means.size()) continue;  // told better by place
      offer(error_of([&](int64_t i) { return wrong(i) - means[axis.place_of(i)]; }),
            [&] { return "every place of " + axis_text(k) + " has a number of its own added"; });
    }
  }

  // ---- Values in another order ------------------------------------------------------------------

  void try_orders() {
    if (!std::isfinite(error_)) return;
    const size_t rank = shape().size();
    try_transpose();
    for (size_t k = 0; k < rank; ++k) try_shift(k);
    if (rank == 0) return;
    for (int64_t parts = 1; parts <= kMostParts; ++parts) {
      for (size_t k = 0; k < rank; ++k) try_blocks(k, parts);
      try_interleaved(parts);
    }
    try_fractal();
  }

  /// What is left when right[i] should stand at wrong[from(i)]; the first values decide whether the
  /// rest is looked at.
  template <typename From>
  [[nodiscard]] double error_after_move(From from) const {
    constexpr int64_t kGlance = 4096;
    const double glanced = right_square_ / static_cast<double>(count()) * kGlance;
    double sum = 0, square = 0;
    for (int64_t i = 0; i < count(); ++i) {
      const double d = wrong(from(i)) - right(i);
      sum += d * d;
      square += right(i) * right(i);
      if (i == kGlance && relative(sum, std::max(square, glanced)) > 4 * limit_) return INFINITY;
    }
    return relative(sum, right_square_);
  }

  /// The last two axes: exchanged, or their bytes read as those of the transposed matrix.
  void try_transpose() {
    const size_t rank = shape().size();
    if (rank < 2) return;
    const int64_t rows = shape()[rank - 2];
    const int64_t columns = shape()[rank - 1];
    if (rows < 2 || columns < 2) return;
    const auto offer_matrix = [&](int64_t r, int64_t c) {
      const double error = error_after_move([&](int64_t i) {
        const int64_t matrix = i / (r * c) * (r * c);
        const int64_t place = i % (r * c);
        return matrix + place % c * r + place / c;
      });
      offer(error, [&] { return std::string("the last two axes are transposed"); });
    };
    offer_matrix(rows, columns);
    if (rows != columns) offer_matrix(columns, rows);
  }

  void try_shift(size_t k) {
    const Axis axis = around(shape(), k);
    if (axis.size < 4) return;
    for (const int64_t shift : {int64_t{1}, int64_t{-1}}) {
      double sum = 0, square = 0;
      for_each_value(axis, [&](int64_t j, int64_t i) {
        if (j + shift < 0 || j + shift >= axis.size) return;
        const double d = wrong(i + shift * axis.inner) - right(i);
        sum += d * d;
        square += right(i) * right(i);
      });
      if (square == 0) continue;
      offer(relative(sum, square), [&] {
        return "shifted by one place " + std::string(shift > 0 ? "up" : "down") + " along " +
               axis_text(k);
      });
    }
  }

  /// wrong's block order[b] of an axis is right's block b: for every block the nearest one, if each
  /// is taken once.
  [[nodiscard]] std::vector<int64_t> order_of_blocks(const Axis& axis, int64_t blocks) const {
    const int64_t length = axis.size / blocks;
    const int64_t sampled_outer = std::min<int64_t>(axis.outer, 16);
    const int64_t sampled_inner = std::min<int64_t>(axis.inner, 16);
    const auto distance = [&](int64_t a, int64_t b) {
      double sum = 0;
      for (int64_t o = 0; o < sampled_outer; ++o) {
        for (int64_t j = 0; j < length; ++j) {
          const int64_t from = ((o * axis.size) + a * length + j) * axis.inner;
          const int64_t to = ((o * axis.size) + b * length + j) * axis.inner;
          for (int64_t i = 0; i < sampled_inner; ++i) {
            const double d = wrong(from + i) - right(to + i);
            sum += d * d;
          }
        }
      }
      return sum;
    };
    std::vector<int64_t> order;
    std::vector<bool> taken(static_cast<size_t>(blocks), false);
    for (int64_t b = 0; b < blocks; ++b) {
      // Its own place first, so that equal blocks stay where they are.
      int64_t nearest = b;
      double least = distance(b, b);
      for (int64_t a = 0; a < blocks; ++a) {
        const double d = taken[static_cast<size_t>(a)] ? INFINITY : distance(a, b);
        if (d < least || taken[static_cast<size_t>(nearest)]) {
          nearest = a;
          least = d;
        }
      }
      if (taken[static_cast<size_t>(nearest)]) return {};
      taken[static_cast<size_t>(nearest)] = true;
      order.push_back(nearest);
    }
    return order;
  }

  void try_blocks(size_t k, int64_t blocks) {
    const Axis axis = around(shape(), k);
    if (blocks < 2 || axis.size % blocks != 0) return;
    const std::vector<int64_t> order = order_of_blocks(axis, blocks);
    if (order.empty()) return;
    const int64_t length = axis.size / blocks * axis.inner;
    const double error = error_after_move([&](int64_t i) {
      const int64_t block = i / length;
      return (block / blocks * blocks + order[static_cast<size_t>(block % blocks)]) * length +
             i % length;
    });
    offer(error, [&] { return order_sentence(order, k); });
  }

  [[nodiscard]] std::string order_sentence(const std::vector<int64_t>& order, size_t k) const {
    std::vector<size_t> moved;
    for (size_t i = 0; i < order.size(); ++i) {
      if (order[i] != static_cast<int64_t>(i)) moved.push_back(i);
    }
    const int64_t length = shape()[k] / static_cast<int64_t>(order.size());
    if (moved.size() == 2)
      return range_text(order[moved[1]] * length, length) + " and " +
             range_text(order[moved[0]] * length, length) + " of " + axis_text(k) +
             " are exchanged";
    const std::string parts = std::to_string(order.size()) + " parts of " + axis_text(k);
    if (order.size() > 16) return "the " + parts + " stand in another order";
    std::string text = "the " + parts + " stand in the order";
    for (size_t i = 0; i < order.size(); ++i)
      text += (i == 0 ? " " : ", ") + std::to_string(order[i]);
    return text;
  }

  /// The last axis in groups [b, a, length] where it should be [a, b, length].
  [[nodiscard]] double error_after_regroup(int64_t a, int64_t b, int64_t length) const {
    const int64_t group = a * b * length;
    return error_after_move([=](int64_t i) {
      const int64_t place = i % group / length;
      return i / group * group + (place % b * a + place / b) * length + i % length;
    });
  }

  /// 2 or 3 parts (gate and up; query, key and value) one after the other, or by turns: value by
  /// value within each of some groups (heads), or group by group.
  void try_interleaved(int64_t groups) {
    const int64_t size = shape()[shape().size() - 1];
    if (groups < 1 || size % groups != 0) return;
    const std::string counted = std::to_string(groups) + " parts of the last axis";
    const std::string each = groups > 1 ? "each of " + counted : "the last axis";
    for (const int64_t parts : {int64_t{2}, int64_t{3}}) {
      const int64_t places = size / groups;
      const std::string named = parts == 2 ? "halves" : "thirds";
      if (places % parts != 0) continue;
      const int64_t length = places / parts;
      if (length > 1) {
        // right [parts, length], wrong [length, parts].
        offer(error_after_regroup(parts, length, 1),
              [&] { return "the " + named + " of " + each + " are interleaved"; });
        if (length != parts)
          offer(error_after_regroup(length, parts, 1),
                [&] { return "the interleaved places of " + each + " stand as " + named; });
      }
      if (groups > 1) {
        offer(error_after_regroup(parts, groups, length), [&] {
          return "the " + named + " of the last axis are interleaved in " + std::to_string(groups) +
                 " parts";
        });
        if (groups != parts)
          offer(error_after_regroup(groups, parts, length),
                [&] { return "the " + named + " of " + counted + " stand one after the other"; });
      }
    }
  }

  /// Matrices of tiles 16 wide, [columns / 16, rows, 16]: written in one order and read in the
  /// other.
  void try_fractal() {
    const size_t rank = shape().size();
    if (rank < 2) return;
    const int64_t rows = shape()[rank - 2];
    const int64_t columns = shape()[rank - 1];
    for (const int64_t tile : {int64_t{16}, int64_t{32}}) {
      if (rows < 2 || columns <= tile || columns % tile != 0) continue;
      const int64_t matrix = rows * columns;
      const TiledMatrix tiles{rows, columns, tile};
      const auto moved = [&](auto place) {
        return error_after_move([&](int64_t i) { return i / matrix * matrix + place(i % matrix); });
      };
      offer(moved([&](int64_t i) { return tiles.place_of(i); }),
            [] { return std::string("stored in FRACTAL_NZ order, read as ND"); });
      offer(moved([&](int64_t i) { return tiles.element_at(i); }),
            [] { return std::string("stored in ND order, read as FRACTAL_NZ"); });
    }
  }

  // ---- A part that is wrong ---------------------------------------------------------------------

  /// Beyond this a value counts as wrong by itself.
  [[nodiscard]] double allowed(double square, int64_t values) const {
    const double mean = right_square_ / static_cast<double>(count());
    return 4 * limit_ * limit_ * std::max(square, mean * static_cast<double>(values));
  }

  [[nodiscard]] std::vector<int64_t> places_that_are_wrong(const Axis& axis) const {
    std::vector<double> errors(static_cast<size_t>(axis.size));
    std::vector<double> squares(errors.size());
    for_each_value(axis, [&](int64_t j, int64_t i) {
      const double d = wrong(i) - right(i);
      errors[static_cast<size_t>(j)] += d * d;
      squares[static_cast<size_t>(j)] += right(i) * right(i);
    });
    std::vector<int64_t> places;
    for (size_t j = 0; j < errors.size(); ++j) {
      // NaN counts as wrong.
      if (!(errors[j] <= allowed(squares[j], axis.outer * axis.inner)))
        places.push_back(static_cast<int64_t>(j));
    }
    return places;
  }

  /// Error of all values but those that `excluded` names.
  template <typename Excluded>
  [[nodiscard]] double error_without(Excluded excluded) const {
    return error_of([&](int64_t i) { return excluded(i) ? right(i) : wrong(i); });
  }

  void try_places() {
    if (try_one_element()) return;
    if (try_diagonal()) return;
    // The axis on which the smallest part is wrong says most.
    double least = 1;
    for (size_t k = 0; k < shape().size(); ++k) {
      const Axis axis = around(shape(), k);
      if (axis.size < 3) continue;
      const std::vector<int64_t> places = places_that_are_wrong(axis);
      if (places.empty()) continue;
      const auto part = static_cast<double>(places.size()) / static_cast<double>(axis.size);
      if (part >= least) continue;
      if (try_regular_places(k, axis, places)) least = part;
    }
  }

  /// NaN is.
  [[nodiscard]] bool is_wrong(int64_t i) const {
    const double d = wrong(i) - right(i);
    return !(d * d <= allowed(right(i) * right(i), 1));
  }

  bool try_one_element() {
    int64_t found = -1;
    for (int64_t i = 0; i < count(); ++i) {
      if (!is_wrong(i)) continue;
      if (found >= 0) return false;
      found = i;
    }
    if (found < 0) return false;
    return offer(error_without([=](int64_t i) { return i == found; }), [&] {
      std::string place;
      const Dims strides = contiguous_strides(shape());
      for (size_t k = 0; k < shape().size(); ++k)
        place += (k == 0 ? "" : ", ") + std::to_string(found / strides[k] % shape()[k]);
      return "only element [" + place + "] differs: " + number(wrong(found)) + " instead of " +
             number(right(found));
    });
  }

  /// Square matrices of scores that are wrong on one side of the diagonal only.
  bool try_diagonal() {
    const size_t rank = shape().size();
    if (rank < 2 || shape()[rank - 1] != shape()[rank - 2] || shape()[rank - 1] < 3) return false;
    const int64_t size = shape()[rank - 1];
    const auto is_above = [=](int64_t i) { return i % size > i / size % size; };
    int64_t above = 0, elsewhere = 0;
    for (int64_t i = 0; i < count(); ++i) {
      if (is_wrong(i)) ++(is_above(i) ? above : elsewhere);
    }
    const int64_t places = count() / (size * size) * (size * (size - 1) / 2);
    if (elsewhere == 0 && 2 * above > places)
      return offer(error_without(is_above),
                   [] { return std::string("only values above the diagonal differ"); });
    return false;
  }

  /// One place, neighbours, or every n-th; with a factor where one explains them.
  bool try_regular_places(size_t k, const Axis& axis, const std::vector<int64_t>& places) {
    const auto wrong_count = static_cast<int64_t>(places.size());
    const int64_t step = wrong_count > 1 ? places[1] - places[0] : 1;
    for (size_t i = 1; i < places.size(); ++i) {
      if (places[i] - places[i - 1] != step) return false;
    }
    // Every n-th place means all of them, from the first of its kind to the end.
    if (step > 1 && (places.front() >= step || places.back() + step < axis.size || wrong_count < 3))
      return false;
    std::vector<bool> chosen(static_cast<size_t>(axis.size), false);
    for (const int64_t place : places) chosen[static_cast<size_t>(place)] = true;
    const auto is_chosen = [&](int64_t i) { return chosen[axis.place_of(i)]; };
    const std::string where = place_text(k, places, step);
    if (are_zeros(is_chosen))
      return offer(error_without(is_chosen), [&] { return where + " is zero"; });
    if (offer_factor(is_chosen, where)) return true;
    return offer(error_without(is_chosen), [&] { return "only " + where + " differs"; });
  }

  template <typename Chosen>
  [[nodiscard]] bool are_zeros(Chosen is_chosen) const {
    for (int64_t i = 0; i < count(); ++i)
      if (is_chosen(i) && wrong(i) != 0) return false;
    return true;
  }

  static std::string place_text(size_t k, const std::vector<int64_t>& places, int64_t step) {
    if (places.size() == 1) {
      return "place " + std::to_string(places[0]) + " of " + axis_text(k);
    }
    if (step > 1) {
      return "every " + std::to_string(step) +
             (step == 2   ? "nd"
              : step == 3 ? "rd"
                          : "th") +
             " place of " + axis_text(k) + " from " + std::to_string(places[0]);
    }
    return "the range " + range_text(places.front(), places.back() + 1 - places.front()) + " of " +
           axis_text(k);
  }

  /// One factor for the chosen values.
  template <typename Chosen>
  bool offer_factor(Chosen is_chosen, const std::string& where) {
    double product = 0;
    double square = 0;
    int64_t values = 0;
    for (int64_t i = 0; i < count(); ++i) {
      if (!is_chosen(i)) continue;
      product += wrong(i) * right(i);
      square += right(i) * right(i);
      ++values;
    }
    const double factor = product / square;
    if (values < kWitnesses || !std::isfinite(factor) || factor == 0) return false;
    return offer(error_of([&](int64_t i) { return wrong(i) / (is_chosen(i) ? factor : 1); }),
                 [&] { return "a factor " + number(factor) + " at " + where; });
  }

  Wide right_;
  Wide wrong_;
  double limit_;
  double right_square_ = 0;
  double wrong_square_ = 0;
  double slope_ = 0;
  double error_ = 0;
  Hypothesis best_;
};

/// The leading part along the first axes that has at most kMost values.
TensorView leading(TensorView view) {
  for (size_t i = 0; i < view.shape.size() && view.element_count() > kMost; ++i) {
    const int64_t others = view.element_count() / view.shape[i];
    view.shape[i] = std::clamp<int64_t>(kMost / std::max<int64_t>(others, 1), 1, view.shape[i]);
  }
  return view;
}

}  // namespace

Hypothesis explain(const TensorView& right, const TensorView& wrong, double floor) {
  TensorView other = wrong;
  const size_t rank = other.shape.size();
  const bool turned = right.shape != wrong.shape && rank >= 2;
  if (turned) {
    std::swap(other.shape[rank - 1], other.shape[rank - 2]);
    std::swap(other.strides[rank - 1], other.strides[rank - 2]);
  }
  if (right.shape != other.shape || right.element_count() < kLeast) return {};
  const Result<Wide> golden = reference::widen(leading(right));
  const Result<Wide> mine = reference::widen(leading(other));
  if (!golden || !mine) return {};  // no real numbers: nothing to say about them
  const double limit = std::max(2 * (std::isfinite(floor) ? floor : 0), kTiny);
  if (!turned) return Search(*golden, *mine, limit).run();
  const double error =
      measure::relative_l2(reference::to_tensor(*golden).view, reference::to_tensor(*mine).view);
  return error <= limit ? Hypothesis{"the last two axes are transposed", error} : Hypothesis{};
}

}  // namespace assay::locate
