// SPDX-License-Identifier: Apache-2.0
#include "locate/stored_parts.hpp"

#include <algorithm>
#include <cmath>

#include "compare/dequantise.hpp"
#include "compare/operand.hpp"
#include "reference/movement/bytes.hpp"
#include "reference/wide.hpp"
#include "tensor/convert.hpp"

namespace assay::locate {
namespace {

using compare::Coding;
using run::TensorRecord;

bool is_float8(DType dtype) { return is_float(dtype) && info(dtype).element_bits == 8; }

/// Codes of which each is 1, so that unpacking them without a zero point gives the step of every value.
Result<Tensor> ones_like(const Tensor& codes, bool pairs, Coding coding, int64_t values) {
  // A pair of 4-bit codes in a byte; offset-binary codes of a word, four or eight bits each.
  const auto words = codes.view.element_count();
  const bool nibbles = coding == Coding::CompressedTensors && words * 8 == values;
  const auto byte =
      static_cast<std::byte>(coding == Coding::CompressedTensors ? (nibbles ? 0x99 : 0x81)
                             : pairs                             ? 0x11
                                                                 : 0x01);
  ASSAY_TRY(const reference::NewTensor ones, reference::copy_of(codes));
  std::fill(ones.bytes->data(), ones.bytes->data() + ones.bytes->size(), byte);
  return ones.tensor();
}

/// Two neighbours of a float8 are at most this far apart, as a part of the larger.
double float8_step(DType dtype) {
  return dtype == DType::Float8E5M2 || dtype == DType::Float8E5M2FNUZ ? 0.25 : 0.125;
}

}  // namespace

StoredParts::StoredParts(const Program& mine) : mine_(mine) {
  for (const auto& [name, record] : mine.leaves) {
    names_.records.push_back(mine.run->records[record]);
    names_.records.back().node = name;
  }
  side_.emplace(names_, /*as_stored=*/false);
  for (size_t i = 0; i < side_->weights().size(); ++i) {
    const compare::Weight& weight = side_->weights()[i];
    if (weight.coding != Coding::Plain) coded_.emplace(names_.records[weight.record].node, i);
    if (weight.owner) parts_.insert(names_.records[weight.record].node);
  }
}

std::optional<std::string> StoredParts::coded_weight(const std::string& leaf) const {
  const auto found = coded_.find(leaf);
  if (found == coded_.end()) return std::nullopt;
  return side_->weights()[found->second].name;
}

Result<StepDifference> StoredParts::difference(const std::string& leaf,
                                               const TensorRecord& golden_record) const {
  const compare::Weight& weight = side_->weights()[coded_.at(leaf)];
  if (weight.coding == Coding::QWeight)
    return fail(Errc::Unsupported, "GPTQ and AWQ move weights further than their step");
  ASSAY_TRY(const Tensor golden, run::load_tensor(golden_record));
  ASSAY_TRY(const Tensor codes, run::load_tensor(side_->record_of(weight)));
  ASSAY_TRY(const Tensor scale, run::load_tensor(side_->record(*weight.scale)));
  std::optional<Tensor> zero;
  std::optional<Tensor> group_index;
  if (weight.zero) {
    ASSAY_TRY(zero, run::load_tensor(side_->record(*weight.zero)));
  }
  if (weight.group_index) {
    ASSAY_TRY(group_index, run::load_tensor(side_->record(*weight.group_index)));
  }
  compare::QuantisedParts parts;
  parts.coding = weight.coding;
  parts.codes = codes.view;
  parts.scale = scale.view;
  parts.scale_factor = weight.scale_factor;
  if (group_index) parts.group_index = group_index->view;
  if (zero) parts.zero = zero->view;
  const Dims& shape = golden.view.shape;
  ASSAY_TRY(const compare::Dequantised made, compare::dequantise(parts, shape, false, /*jobs=*/1));
  if (!(made.tensor.view.shape == shape))
    return fail(Errc::Invalid, "codes of another shape than golden's");
  const bool floats = is_float8(codes.view.dtype);
  if (codes.view.dtype == DType::HiFloat8)
    return fail(Errc::Unsupported, "hifloat8 has steps of its own");
  std::optional<compare::Dequantised> steps;
  std::optional<Tensor> ones;
  if (!floats) {
    const bool pairs = codes.view.element_count() * 2 == golden.view.element_count();
    ASSAY_TRY(ones, ones_like(codes, pairs, weight.coding, golden.view.element_count()));
    parts.codes = ones->view;
    parts.zero.reset();
    ASSAY_TRY(steps, compare::dequantise(parts, shape, false, /*jobs=*/1));
  }
  ASSAY_TRY(const reference::Wide g, reference::widen(golden.view));
  ASSAY_TRY(const reference::Wide m, reference::widen(made.tensor.view));
  std::optional<reference::Wide> s;
  if (steps) {
    ASSAY_TRY(s, reference::widen(steps->tensor.view));
  }
  StepDifference out{.scheme = made.scheme,
                     .may_be_calibrated = weight.coding == Coding::CompressedTensors};
  for (int64_t i = 0; i < g.size(); ++i) {
    const auto at = static_cast<size_t>(i);
    const double mine = m.values[at];
    const double step =
        s ? std::abs(s->values[at])
          : std::max(std::abs(mine), std::abs(g.values[at])) * float8_step(codes.view.dtype);
    const double off = std::abs(mine - g.values[at]);
    const double half_steps = off == 0 ? 0 : std::isfinite(off) ? 2 * off / step : INFINITY;
    if (out.worst >= 0 && !(half_steps > out.half_steps)) continue;
    out = {half_steps, i, g.values[at], mine, out.scheme, out.may_be_calibrated};
  }
  return out;
}

Result<Tensor> StoredParts::put_together(const TensorRecord& shard, const Dims& golden) const {
  std::map<int, const TensorRecord*> shards;  // by rank
  for (const TensorRecord& record : mine_.run->records) {
    if (record.role == shard.role && record.node == shard.node && record.slot == shard.slot &&
        record.step == shard.step && record.shape && record.bytes && record.dtype == shard.dtype)
      shards.emplace(record.rank, &record);
  }
  if (shards.empty()) return fail(Errc::Unsupported, "its bytes were not captured");
  run::Run parts;
  compare::Recipe recipe{.merge = compare::Merge::Concat};
  for (const auto& [rank, record] : shards) {
    recipe.records.push_back(parts.records.size());
    parts.records.push_back(*record);
  }
  if (shards.size() == 1) recipe.merge = compare::Merge::None;
  const Dims& first = *parts.records.front().shape;
  const int64_t wanted = element_count(golden).value_or(0);
  int64_t count = 0;
  for (const TensorRecord& record : parts.records)
    count += element_count(*record.shape).value_or(0);
  const std::string what =
      std::to_string(shards.size()) +
      (shards.size() == 1 ? " captured rank holds " : " captured ranks hold ") +
      std::to_string(count) + " of golden's " + std::to_string(wanted) + " values";
  if (count < wanted) return fail(Errc::Unsupported, what);
  const std::vector<int64_t> shape(golden.span().begin(), golden.span().end());
  if (first.size() == 1 && golden.size() != 1) {  // flat, padded behind the last
    recipe.axis = 0;
    if (count > wanted)
      recipe.steps.push_back({.kind = compare::Step::Kind::Range, .axis = 0, .last = wanted});
    recipe.steps.push_back({.kind = compare::Step::Kind::Reshape, .shape = shape});
    return compare::load_operand(parts, recipe);
  }
  if (count != wanted || first.size() != golden.size()) return fail(Errc::Unsupported, what);
  for (size_t axis = 0; axis < golden.size(); ++axis) {
    if (first[axis] == golden[axis]) continue;
    recipe.axis = static_cast<int>(axis);
    ASSAY_TRY(Tensor whole, compare::load_operand(parts, recipe));
    if (!(whole.view.shape == golden)) break;
    return whole;
  }
  return fail(Errc::Unsupported, what + ", in another order of axes");
}

}  // namespace assay::locate
