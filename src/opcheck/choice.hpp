// SPDX-License-Identifier: Apache-2.0
// What a choice of operations that matches none was probably meant to be.
#pragma once
#include <set>
#include <string>
#include <vector>

namespace assay::opcheck {

/// What there was to choose from, each once.
class KnownOperations {
 public:
  std::vector<std::string> types;  // "LinearOperation", "aten.linear.default"
  std::vector<std::string> ids;    // "0_1"

  void add(const std::string& type, const std::string& id);

 private:
  std::set<std::string> seen_types_;
  std::set<std::string> seen_ids_;
};

/// The nearest beginning of a type to one of the words of `given`, a list with commas: "linear" for
/// "liner", of LinearOperation or aten.linear.default; empty when none is near.
[[nodiscard]] std::string nearest_operation(const std::string& given,
                                            const std::vector<std::string>& types);

/// "a,b"
[[nodiscard]] std::string comma_list(const std::vector<std::string>& words);

/// "no operation matches -opname 'liner'; did you mean -opname linear? these ran: LinearOperation,
/// RmsNormOperation"
/// ids, names  lists with commas as they were given; empty where nothing was
[[nodiscard]] std::string no_operation_text(const std::string& ids, const std::string& names,
                                            const KnownOperations& known);

}  // namespace assay::opcheck
