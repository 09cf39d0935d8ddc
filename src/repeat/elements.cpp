// SPDX-License-Identifier: Apache-2.0
// Both outputs are held against the exact one in fp64 of the inputs they had. Without a reference
// the largest difference in ULP decides.
#include "repeat/elements.hpp"

#include <algorithm>
#include <vector>

#include "locate/judge/own_error.hpp"
#include "locate/program/pairing.hpp"
#include "repeat/spread.hpp"
#include "tensor/equal_bytes.hpp"
#include "tensor/float_grid.hpp"

namespace assay::repeat {
namespace {

using locate::OwnError;

/// What sums in two orders differ by at most, in ULP of the largest element: a handful of roundings
/// for the lengths that models have.
constexpr double kReorderedUlp = 32;

/// One run's side: its operator with what the arguments were.
struct Side {
  locate::Program program;
  size_t op = locate::kNone;
};

Result<Side> side_of(const run::Run& run, const Place& place, locate::Engines engines) {
  Side side{locate::make_program(run, engines), locate::kNone};
  const std::vector<locate::Operator>& operators = side.program.operators;
  const auto found = std::ranges::find_if(operators, [&](const locate::Operator& one) {
    return one.rank == place.rank && one.step == place.step && one.module_call == place.call &&
           one.node == place.node;
  });
  if (found == operators.end())
    return fail(Errc::NotFound, run.path + " has no operator " + place.node);
  side.op = static_cast<size_t>(found - operators.begin());
  return side;
}

/// How far the output is from fp64's; nothing where nobody can tell.
Result<std::optional<OwnError>> own_error_of(const Side& side, size_t output) {
  ASSAY_TRY(const locate::OwnErrors errors, locate::own_errors(side.program, {}));
  for (const OwnError& one : errors.outputs) {
    if (one.op != side.op || one.output != output) continue;
    if (one.state == OwnError::State::Judged || one.state == OwnError::State::Exact) return one;
  }
  return std::nullopt;
}

bool looks_reordered(const Spread& spread, DType dtype) {
  const std::optional<FloatGrid> grid = float_grid(dtype);
  return grid && spread.largest_error <= kReorderedUlp * grid->ulp(spread.largest_value);
}

Status judge(const Side& first, const Side& other, size_t output, Elements* elements) {
  const Side* sides[] = {&first, &other};
  for (int side = 0; side < 2; ++side) {
    ASSAY_TRY(const std::optional<OwnError> own, own_error_of(*sides[side], output));
    if (!own) return {};
    elements->kind = Kind::Reordering;
    if (!own->wrong) continue;
    elements->kind = Kind::WrongElement;
    elements->wrong_side = side;
    elements->off_ulp = own->worst_ulp;
    elements->allowed_ulp = own->allowed_ulp;
    return {};
  }
  return {};
}

Result<std::optional<Elements>> elements_of(const Side& first, const Side& other) {
  const std::vector<locate::Use>& a = first.program.operators[first.op].outputs;
  const std::vector<locate::Use>& b = other.program.operators[other.op].outputs;
  for (size_t output = 0; output < std::min(a.size(), b.size()); ++output) {
    ASSAY_TRY(const Tensor golden, locate::load_use(first.program, a[output]));
    ASSAY_TRY(const Tensor mine, locate::load_use(other.program, b[output]));
    if (has_equal_bytes(golden.view, mine.view)) continue;
    if (golden.view.dtype != mine.view.dtype || !(golden.view.shape == mine.view.shape))
      return std::nullopt;
    const Spread spread = spread_of(golden.view, mine.view);
    Elements elements;
    elements.count = golden.view.element_count();
    elements.different = spread.different;
    if (float_grid(golden.view.dtype)) elements.largest_ulp = spread.largest_ulp;
    elements.worst = spread.worst;
    elements.first = spread.first;
    elements.other = spread.other;
    if (spread.worst >= 0)
      elements.worst_place = locate::place_text(spread.worst, golden.view.shape);
    elements.kind =
        looks_reordered(spread, golden.view.dtype) ? Kind::LooksReordered : Kind::LooksWrong;
    ASSAY_TRY_STATUS(judge(first, other, output, &elements));
    return elements;
  }
  return std::nullopt;
}

}  // namespace

std::string_view kind_name(Kind kind) {
  switch (kind) {
    case Kind::Reordering:
      return "reordering";
    case Kind::WrongElement:
      return "wrong element";
    case Kind::LooksReordered:
      return "looks like a reordering";
    case Kind::LooksWrong:
      break;
  }
  return "looks like a wrong element";
}

Result<std::optional<Elements>> compare_elements(const run::Run& first, const run::Run& other,
                                                 const Place& place, locate::Engines engines) {
  ASSAY_TRY(const Side a, side_of(first, place, engines));
  ASSAY_TRY(const Side b, side_of(other, place, engines));
  const locate::Operator& one = a.program.operators[a.op];
  const locate::Operator& two = b.program.operators[b.op];
  if (one.inputs.size() != two.inputs.size()) return std::nullopt;
  for (size_t i = 0; i < one.inputs.size(); ++i) {
    const run::TensorRecord& golden = first.records[one.inputs[i].record];
    const run::TensorRecord& mine = other.records[two.inputs[i].record];
    if (golden.digest != mine.digest) return std::nullopt;
  }
  return elements_of(a, b);
}

}  // namespace assay::repeat
