// SPDX-License-Identifier: Apache-2.0
// Any operation of the table with any parameters over small tensors of any types, shapes and
// values: it must end in goldens or in an error, and what it gives must be measurable.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "measure/measures.hpp"
#include "measure/standards.hpp"
#include "opcheck/registry.hpp"
#include "reference/wide.hpp"

namespace {

using namespace assay;
using opcheck::Case;
using opcheck::Operands;

/// Numbers out of the fuzzer's bytes; zeros when they are used up.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  uint8_t next() { return at_ < size_ ? data_[at_++] : 0; }
  int64_t below(int64_t limit) { return next() % limit; }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

constexpr DType kTypes[] = {DType::Float16, DType::BFloat16, DType::Float32, DType::Int8,
                            DType::Int32,   DType::Int64,    DType::Bool,    DType::Float64,
                            DType::UInt8,   DType::UInt64,   DType::Int4,    DType::Float8E4M3FN};

Tensor make_tensor(Bytes* bytes) {
  const DType dtype = kTypes[bytes->below(std::size(kTypes))];
  Dims shape;
  const int64_t rank = bytes->below(5);
  for (int64_t i = 0; i < rank; ++i) {
    const uint8_t size = bytes->next();
    shape.push_back(size < 8 ? size : size < 200 ? (size % 4) * 4 : size % 67);
  }
  while (assay::element_count(shape).value_or(0) > 20000) shape.resize(shape.size() - 1);
  const int64_t count = *assay::element_count(shape);
  const uint8_t kind = bytes->next();
  reference::Wide values(shape);
  uint32_t state = kind;
  for (double& value : values.values) {
    state = state * 1664525u + 1013904223u;
    const auto low = static_cast<double>((state >> 16) & 15);
    value = kind < 128 ? low : kind < 192 ? (low - 8) / 3 : kind < 224 ? low - 12 : low * 1e30;
    if (kind > 250 && low == 3) value = NAN;
  }
  const Tensor wide = reference::to_tensor(std::move(values));
  if (dtype == DType::Int4) {
    auto packed = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(count + 1) / 2,
                                                           std::byte{kind});
    return {*make_view(dtype, shape, ByteSpan(packed->data(), packed->size())), packed};
  }
  return *reference::narrow(wide.view, dtype);
}

struct Slot {
  Tensor tensor;
  bool present = true;
  bool nz = false;
};

class MemoryOperands final : public Operands {
 public:
  explicit MemoryOperands(Bytes* bytes) {
    const int64_t inputs = bytes->below(14);
    const int64_t outputs = bytes->below(4);
    const uint8_t flags = bytes->next();
    before_ = (flags & 1) != 0;
    for (int64_t i = 0; i < inputs + outputs; ++i) {
      Slot slot{make_tensor(bytes), true, false};
      const uint8_t odd = bytes->next();
      slot.present = odd != 255;
      slot.nz = odd > 230;
      (i < inputs ? inputs_ : outputs_).push_back(std::move(slot));
    }
  }
  size_t input_count() const override { return inputs_.size(); }
  size_t output_count() const override { return outputs_.size(); }
  bool has_input(size_t i) const override { return i < inputs_.size() && inputs_[i].present; }
  bool has_output(size_t i) const override { return i < outputs_.size() && outputs_[i].present; }
  Result<Tensor> input(size_t i) const override { return take(inputs_, i); }
  Result<Tensor> output(size_t i) const override { return take(outputs_, i); }
  Result<Tensor> input_after(size_t i) const override { return take(inputs_, i); }
  bool has_before() const override { return before_; }
  bool is_nz_input(size_t i) const override { return i < inputs_.size() && inputs_[i].nz; }
  bool is_nz_output(size_t i) const override { return i < outputs_.size() && outputs_[i].nz; }

 private:
  static Result<Tensor> take(const std::vector<Slot>& slots, size_t i) {
    if (i >= slots.size() || !slots[i].present)
      return fail(Errc::NotFound, "tensor " + std::to_string(i) + " is not in the dump");
    return slots[i].tensor;
  }
  std::vector<Slot> inputs_, outputs_;
  bool before_ = false;
};

nlohmann::json make_value(Bytes* bytes) {
  const uint8_t kind = bytes->next();
  const auto small = [&] { return static_cast<int64_t>(static_cast<int8_t>(bytes->next())); };
  if (kind < 120) return kind % 12;
  if (kind < 150) return kind % 2 == 0;
  if (kind < 200) {
    nlohmann::json list = nlohmann::json::array();
    for (int64_t i = bytes->below(6); i > 0; --i) list.push_back(small());
    return list;
  }
  if (kind < 230) return small();
  if (kind < 240) return static_cast<double>(small()) / 8;
  if (kind < 245) return INT64_MAX;
  if (kind < 250) return INT64_MIN;
  return "text";
}

opcheck::Parameters make_parameters(const opcheck::OperationRow& op, Bytes* bytes) {
  nlohmann::json root = nlohmann::json::object();
  std::string_view rest = op.parameters;
  while (!rest.empty()) {
    const size_t end = rest.find(' ');
    std::string path(rest.substr(0, end));
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    if (path.empty() || bytes->next() % 2 == 0) continue;
    path = path.substr(0, path.find('|'));
    nlohmann::json* at = &root;
    for (size_t dot = 0; (dot = path.find('.')) != std::string::npos; path = path.substr(dot + 1)) {
      nlohmann::json& child = (*at)[path.substr(0, dot)];
      if (!child.is_object()) child = nlohmann::json::object();
      at = &child;
    }
    (*at)[path] = make_value(bytes);
  }
  return *opcheck::Parameters::parse(root.dump());
}

void try_golden(const opcheck::Expectation& expectation, const Result<Tensor>& golden,
                const Operands& operands) {
  if (!golden) {
    if (golden.error().message.empty()) std::abort();  // every refusal has its reason
    return;
  }
  const Result<Tensor> mine = expectation.mine       ? Result<Tensor>(*expectation.mine)
                              : expectation.in_place ? operands.input_after(expectation.index)
                                                     : operands.output(expectation.index);
  if (!mine || mine->view.element_count() != golden->view.element_count()) return;
  measure::MeasureOptions options;
  options.atb_error = 0x1p-8;
  const Result<measure::Measures> measures =
      measure::measures_of(golden->view, mine->view, options);
  if (!measures) return;
  for (int i = 0; i < 5; ++i)
    (void)measure::judge(static_cast<measure::Standard>(i), *measures, expectation.accuracy,
                         nullptr);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes bytes(data, size);
  const auto operators = opcheck::all_operators();
  const opcheck::OperationRow& op =
      operators[static_cast<size_t>(bytes.below(static_cast<int64_t>(operators.size())))];
  Case one;
  one.op_type = op.name;
  one.parameters = make_parameters(op, &bytes);
  const MemoryOperands operands(&bytes);
  one.operands = &operands;
  one.peers = [&](int64_t count) -> Result<std::vector<Case::Peer>> {
    if (count < 1 || count > 4) return fail(Errc::NotFound, "Cannot find data on rank 1!");
    return std::vector<Case::Peer>(static_cast<size_t>(count), {one.parameters, &operands});
  };
  const Result<opcheck::Evaluation> evaluation = op.evaluate(one);
  if (!evaluation) {
    if (evaluation.error().message.empty()) std::abort();
    return 0;
  }
  for (const opcheck::Expectation& expectation : evaluation->outputs) {
    if (expectation.candidates.empty()) std::abort();
    for (const opcheck::Candidate& candidate : expectation.candidates) {
      try_golden(expectation, candidate.golden(), operands);
      if (candidate.second) try_golden(expectation, candidate.second(), operands);
    }
  }
  return 0;
}
