// SPDX-License-Identifier: Apache-2.0
// The getters of Arguments, which registry.hpp declares. A tensor of one element counts as a
// number, one integer as a list of one, and tensors come with torch's lazy conj and neg bits
// applied.
#include "reference/aten/registry.hpp"
#include "reference/movement/bytes.hpp"
#include "tensor/convert.hpp"

namespace assay::reference::aten {
namespace {

const Argument* find(const Call& call, std::string_view name) {
  const auto found = call.arguments.find(name);
  if (found == call.arguments.end()) return nullptr;
  return std::holds_alternative<std::monostate>(found->second.value) ? nullptr : &found->second;
}

/// A tensor of one element where torch takes a number.
std::optional<double> only_value(const Tensor& tensor) {
  if (tensor.view.element_count() != 1 || values_per_element(tensor.view.dtype) != 1) return {};
  double value = 0;
  read_values(tensor.view, 0, 1, std::span(&value, 1));
  return value;
}

std::optional<int64_t> as_integer(const Argument& argument) {
  if (const auto* integer = std::get_if<int64_t>(&argument.value)) return *integer;
  if (const auto* truth = std::get_if<bool>(&argument.value)) return *truth ? 1 : 0;
  if (const auto* tensor = std::get_if<Tensor>(&argument.value)) {
    if (tensor->view.element_count() != 1) return {};
    const Result<Whole> value = whole(tensor->view);
    if (value) return value->values[0];
  }
  return {};
}

std::optional<double> as_real(const Argument& argument) {
  if (const auto* real = std::get_if<double>(&argument.value)) return *real;
  if (const auto* tensor = std::get_if<Tensor>(&argument.value)) return only_value(*tensor);
  if (const auto integer = as_integer(argument)) return static_cast<double>(*integer);
  return {};
}

/// The values that torch's lazy neg and conj bits stand for: moves copy bytes and would lose them.
Result<Tensor> resolved(const Tensor& tensor) {
  if (!tensor.view.negative && !(tensor.view.conjugate && is_complex(tensor.view.dtype)))
    return tensor;
  ASSAY_TRY(const NewTensor copy, copy_of(tensor));
  apply_lazy_bits(tensor.view, {copy.data(), copy.bytes->values.size()});
  return copy.tensor();
}

}  // namespace

bool Arguments::has(std::string_view name) const { return find(call_, name) != nullptr; }

bool Arguments::is_tensor(std::string_view name) const {
  const Argument* argument = find(call_, name);
  return argument != nullptr && std::holds_alternative<Tensor>(argument->value);
}

bool Arguments::is_real_scalar(std::string_view name) const {
  const Argument* argument = find(call_, name);
  return argument != nullptr && std::holds_alternative<double>(argument->value);
}

bool Arguments::is_truth(std::string_view name) const {
  const Argument* argument = find(call_, name);
  return argument != nullptr && std::holds_alternative<bool>(argument->value);
}

Result<Tensor> Arguments::tensor(std::string_view name) const {
  ASSAY_TRY(std::optional<Tensor> found, optional_tensor(name));
  if (!found) return fail(invalid("argument ", name, " is missing"));
  return *std::move(found);
}

Result<std::optional<Tensor>> Arguments::optional_tensor(std::string_view name) const {
  const Argument* argument = find(call_, name);
  if (argument == nullptr) return std::optional<Tensor>();
  const auto* tensor = std::get_if<Tensor>(&argument->value);
  if (tensor == nullptr) return fail(invalid("argument ", name, " is no ", "tensor"));
  ASSAY_TRY(Tensor values, resolved(*tensor));
  return std::optional<Tensor>(std::move(values));
}

Result<std::vector<Tensor>> Arguments::tensors(std::string_view name) const {
  ASSAY_TRY(const std::vector<std::optional<Tensor>> found, optional_tensors(name));
  std::vector<Tensor> tensors;
  for (const std::optional<Tensor>& tensor : found) {
    if (!tensor) return fail(invalid("a tensor of list " + std::string(name) + " is None"));
    tensors.push_back(*tensor);
  }
  return tensors;
}

Result<std::vector<std::optional<Tensor>>> Arguments::optional_tensors(
    std::string_view name) const {
  const Argument* argument = find(call_, name);
  if (argument == nullptr) return fail(invalid("argument ", name, " is missing"));
  std::vector<std::optional<Tensor>> tensors;
  if (const auto* single = std::get_if<Tensor>(&argument->value)) {
    ASSAY_TRY(Tensor values, resolved(*single));
    tensors.emplace_back(std::move(values));
    return tensors;
  }
  const auto* list = std::get_if<ArgumentList>(&argument->value);
  if (list == nullptr) return fail(invalid("argument ", name, " is no ", "list of tensors"));
  for (const Argument& entry : *list) {
    if (std::holds_alternative<std::monostate>(entry.value)) {
      tensors.emplace_back();
      continue;
    }
    const auto* tensor = std::get_if<Tensor>(&entry.value);
    if (tensor == nullptr) return fail(invalid("argument ", name, " is no ", "list of tensors"));
    ASSAY_TRY(Tensor values, resolved(*tensor));
    tensors.emplace_back(std::move(values));
  }
  return tensors;
}

Result<int64_t> Arguments::integer(std::string_view name, std::optional<int64_t> fallback) const {
  const Argument* argument = find(call_, name);
  if (argument == nullptr) {
    if (fallback) return *fallback;
    return fail(invalid("argument ", name, " is missing"));
  }
  const std::optional<int64_t> value = as_integer(*argument);
  if (!value) return fail(invalid("argument ", name, " is no ", "integer"));
  return *value;
}

Result<double> Arguments::real(std::string_view name, std::optional<double> fallback) const {
  const Argument* argument = find(call_, name);
  if (argument == nullptr) {
    if (fallback) return *fallback;
    return fail(invalid("argument ", name, " is missing"));
  }
  const std::optional<double> value = as_real(*argument);
  if (!value) return fail(invalid("argument ", name, " is no ", "number"));
  return *value;
}

Result<bool> Arguments::truth(std::string_view name, std::optional<bool> fallback) const {
  ASSAY_TRY(const double value,
            real(name, fallback ? std::optional<double>(*fallback ? 1.0 : 0.0) : std::nullopt));
  return value != 0;
}

Result<std::string> Arguments::text(std::string_view name, std::string_view fallback) const {
  const Argument* argument = find(call_, name);
  if (argument == nullptr) return std::string(fallback);
  const auto* text = std::get_if<std::string>(&argument->value);
  if (text == nullptr) return fail(invalid("argument ", name, " is no ", "text"));
  return *text;
}

Result<std::vector<int64_t>> Arguments::integers(std::string_view name) const {
  ASSAY_TRY(std::optional<std::vector<int64_t>> found, optional_integers(name));
  if (!found) return fail(invalid("argument ", name, " is missing"));
  return *std::move(found);
}

Result<std::vector<int64_t>> Arguments::integers_each(std::string_view name, size_t count,
                                                      int64_t fallback) const {
  std::vector<int64_t> values;
  if (has(name)) {
    ASSAY_TRY(values, integers(name));
  }
  if (values.empty()) values.push_back(fallback);
  if (values.size() == 1) values.assign(count, values[0]);
  if (values.size() != count)
    return fail(invalid(name, " has ", values.size(), " values for ", count, " dimensions"));
  return values;
}

Result<std::optional<std::vector<int64_t>>> Arguments::optional_integers(
    std::string_view name) const {
  const Argument* argument = find(call_, name);
  if (argument == nullptr) return std::optional<std::vector<int64_t>>();
  std::vector<int64_t> integers;
  if (const auto* list = std::get_if<ArgumentList>(&argument->value)) {
    for (const Argument& entry : *list) {
      const std::optional<int64_t> value = as_integer(entry);
      if (!value) return fail(invalid("argument ", name, " is no ", "list of integers"));
      integers.push_back(*value);
    }
    return std::optional(std::move(integers));
  }
  const std::optional<int64_t> value = as_integer(*argument);
  if (!value) return fail(invalid("argument ", name, " is no ", "list of integers"));
  integers.push_back(*value);
  return std::optional(std::move(integers));
}

Result<std::optional<DType>> Arguments::dtype(std::string_view name) const {
  const Argument* argument = find(call_, name);
  if (argument == nullptr) return std::optional<DType>();
  const auto* dtype = std::get_if<DTypeArgument>(&argument->value);
  if (dtype == nullptr) return fail(invalid("argument ", name, " is no ", "dtype"));
  if (!dtype->dtype) return fail(unsupported("dtype " + dtype->name));
  return std::optional<DType>(*dtype->dtype);
}

}  // namespace assay::reference::aten
