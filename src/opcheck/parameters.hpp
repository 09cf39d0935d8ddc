// SPDX-License-Identifier: Apache-2.0
// What an operation was told besides tensors: op_param.json, or the OpParam cell of a list.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace assay::opcheck {

/// Values are found by path: "headNum", "normParam.epsilon"; spellings of several versions of the
/// host
/// stand beside each other, the first that is there counts: "transposeA|transA|trans_a". A missing
/// or null value is the default of the library. Cheap to copy.
class Parameters {
 public:
  Parameters();  // an operation without parameters
  /// errors  Invalid (no JSON, or JSON that is no object) with offset
  [[nodiscard]] static Result<Parameters> parse(std::string_view json);

  [[nodiscard]] bool empty() const;
  [[nodiscard]] bool has(std::string_view path) const;  // there and not null

  // errors of all: Invalid "parameter headNum is "x", not an integer"
  [[nodiscard]] Result<int64_t> integer(std::string_view path, int64_t otherwise) const;
  [[nodiscard]] Result<double> number(std::string_view path, double otherwise) const;
  /// true, false, or an integer other than 0.
  [[nodiscard]] Result<bool> boolean(std::string_view path, bool otherwise) const;
  [[nodiscard]] Result<std::string> text(std::string_view path, std::string_view otherwise) const;
  /// A list of integers; a single integer is a list of one, a missing value the empty list.
  [[nodiscard]] Result<std::vector<int64_t>> integers(std::string_view path) const;
  [[nodiscard]] Result<std::vector<double>> numbers(std::string_view path) const;

  /// The same with one value at the top set: what a part of an operation is told.
  [[nodiscard]] Parameters with(std::string_view key, bool value) const;

  /// Paths of the values that are not in `known`, in file order.
  /// known    paths and their spellings, separated by blanks; a path stands for all below it
  [[nodiscard]] std::vector<std::string> unknown(std::string_view known) const;
  /// As Python's json.dumps() writes it: {"transposeA": false}; "{}" without parameters.
  [[nodiscard]] std::string python_text() const;

  struct Document;

 private:
  std::shared_ptr<const Document> document_;
};

}  // namespace assay::opcheck
