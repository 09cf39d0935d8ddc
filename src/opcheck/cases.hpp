// SPDX-License-Identifier: Apache-2.0
// The executions of operations that a run holds, ready to be recomputed.   spec opcheck 2
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "opcheck/operation.hpp"
#include "run/run.hpp"

namespace assay::opcheck {

/// What a report says about a case.
struct CaseDescription {
  std::string id;               // "0_1": place of the operation and of the graphs around it
  std::string op_type;          // "LinearOperation"; of a kernel its name
  std::string folder;           // of the operation; empty when the run is not made of folders
  std::string node;             // "0_Prefill_layer/1_LinearOperation"
  int rank = 0;                 // place of the process in the run
  std::string step;             // run count: name of the folder
  std::string parameters;       // JSON with Python's spacing; "{}" without parameters
  std::string parameter_error;  // the parameters are no JSON; empty when all is well
};

struct CaseFilter {
  std::vector<std::string> ids;    // "24_1": that operation and all below it
  std::vector<std::string> names;  // parts of type names, any case
};

struct CaseOptions {
  CaseFilter filter;
  std::string csv_path;  // -c: the cases and their parameters; empty: the folders
};

/// Everything is listed, nothing opened.
class CaseList {
 public:
  struct Entry;
  CaseList();
  CaseList(CaseList&&) noexcept;
  CaseList& operator=(CaseList&&) noexcept;
  ~CaseList();

  [[nodiscard]] size_t size() const;
  [[nodiscard]] const Entry& entry(size_t index) const;

  std::string path;
  std::vector<std::pair<std::string, size_t>> unlisted;
  std::vector<std::string> warnings;

  struct State;
  std::unique_ptr<State> state;
};

/// path     a dump, or any folder inside one down to that of a single operation
/// errors   of run::open_run() | Invalid (not an ATB dump: "Input path is not in msit_dump tensors
///          directory: ...") | NotFound, Invalid for the csv ("Cannot find enough info in csv file: ...")
[[nodiscard]] Result<CaseList> list_cases(const std::string& path, const CaseOptions& options);

}  // namespace assay::opcheck
