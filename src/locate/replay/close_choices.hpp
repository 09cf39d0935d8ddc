// SPDX-License-Identifier: Apache-2.0
// Choices that rounding may decide: a router's experts, a token. Which rows are open, and what
// another choice would be.
#pragma once
#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "reference/aten/call.hpp"
#include "reference/wide.hpp"

namespace assay::locate {

/// One choice (top-k, arg max, sort along an axis) of a replayed program, made for each row of its
/// scores.
struct Choice {
  enum class Row : uint8_t {
    Settled,  // no score that is not taken is within the noise of one that is
    Swap,     // only the last one taken and the first one not taken are within it
    Open,     // others are, too: several choices are right
  };
  Dims shape;                      // of the scores
  int64_t length = 0;              // scores of a row
  int64_t taken = 0;               // of them
  bool last_axis = true;           // each row's scores are neighbours; otherwise no row is Swap
  bool ordered = true;             // what is taken comes in the order of its scores
  std::vector<double> scores;      // exact, row by row, the largest is taken first
  std::vector<double> noise;       // by row: how far two scores may be apart and change places
  std::vector<double> share;       // by row: the same as a share of the larger score
  std::vector<int64_t> runner_up;  // by row: place of the first one not taken; -1: all are
  std::vector<int64_t> last;       // by row: place of the last one taken
  std::vector<Row> rows;
  // by row: two that are taken are within the noise, and may come in either order
  std::vector<bool> order_open;
  reference::Whole places;  // that were taken, as the operator returned them

  [[nodiscard]] int64_t row_count() const { return static_cast<int64_t>(rows.size()); }
  /// Of two scores of a row; of probabilities the largest has nearly all of the noise.
  [[nodiscard]] bool may_change_places(size_t row, double a, double b) const {
    const double size = std::max(std::abs(a), std::abs(b));
    return std::abs(a - b) <= std::min(noise[row], share[row] * size);
  }
};

/// What of a choice rounding may decide; nothing when no row is open.
///
/// exact, simulated  the scores, and what rounding makes of them: the largest difference of a row
///                   is its noise
/// places            that the operator returned for the exact scores
/// errors            of widening
[[nodiscard]] Result<std::optional<Choice>> close_choice(const reference::aten::Call& call,
                                                         const TensorView& exact,
                                                         const TensorView& simulated,
                                                         const TensorView& places);

/// The places with the runner-up in place of the last one taken, in the rows that are Swap.
[[nodiscard]] Tensor with_runners_up(const Choice& choice);

/// The axis that a call chooses along, from the end where it is negative.
[[nodiscard]] int64_t dim_of(const reference::aten::Call& call);

/// True for topk(sorted=False): a set, in whatever order a kernel leaves it.
[[nodiscard]] bool is_set(const reference::aten::Call& call);

/// The places in mine's order, in each row of the last axis where mine has the same ones; true:
/// in all of them. Precondition: the same shape, of at least one axis.
[[nodiscard]] Result<std::pair<Tensor, bool>> in_order_of(const TensorView& places,
                                                          const TensorView& mine);

/// The scores at the places, in the places' shape. Precondition: choice.last_axis.
[[nodiscard]] Result<Tensor> scores_at(const TensorView& scores, const TensorView& places);

/// True when `mine` are places that could have been taken: each one's score is within the noise of
/// the score of the place that was taken instead, and no place comes twice. Precondition:
/// choice.last_axis.
[[nodiscard]] bool could_be_taken(const Choice& choice, const TensorView& mine);

/// The rows of the choices as tokens of a tensor of this shape: the leading axes that both have. A
/// token is as open as the most open of its rows; an open order counts where the tensor has an axis
/// of what was taken. Nothing when it has no such leading axes.
[[nodiscard]] std::optional<std::vector<Choice::Row>> tokens_of(const std::vector<Choice>& choices,
                                                                const Dims& shape);

/// A value of mine, and what golden's program gives for it.
struct Replica {
  Tensor reference;  // fp64, or integers
  Tensor simulated;  // the same with the rounding of a kernel
};
struct Compared {
  Tensor mine;
  Replica golden;
};

/// The tokens of a value as a matrix of one row each. Where a token is not settled the replica that
/// is nearer to mine is taken: golden's choice, or the other one. Tokens that are Open are left out
/// unless `with_open`. Precondition: all have the same shape, and tokens.size() divides its element
/// count.
[[nodiscard]] Result<Compared> compared_tokens(const Tensor& mine, const Replica& taken,
                                               const Replica& other,
                                               const std::vector<Choice::Row>& tokens,
                                               bool with_open);

}  // namespace assay::locate
