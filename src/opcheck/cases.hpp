// SPDX-License-Identifier: Apache-2.0
// The executions of operations that a run holds, ready to be recomputed.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "opcheck/choice.hpp"
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
  bool in_table = true;         // some table lists the type
};

struct CaseOptions {
  std::vector<std::string> ids;    // "24_1": that operation and all below it; empty: all
  std::vector<std::string> names;  // parts of type names, any case; empty: all
  /// -c: the rows of this list are the cases, and their parameters where a folder has none.
  std::string csv_path;
  bool kernels = true;  // also the kernels of operations, where they were captured
};

/// The tensors of one execution, by number. Records belong to the run.
struct CaseTensors {
  struct Slot {
    const run::TensorRecord* before = nullptr;  // of an input
    const run::TensorRecord* after = nullptr;
  };
  std::vector<Slot> inputs;
  std::vector<const run::TensorRecord*> outputs;
};

/// One case: nothing of it is opened before it is checked.
struct CaseEntry {
  CaseDescription description;
  const OperationRow* op = nullptr;  // null: nothing knows this type
  /// The type whose table entry is used: of a kernel its operation's.
  std::string evaluated_as;
  bool is_kernel = false;
  std::string unsupported;  // of a kernel that is only a part of its operation: why it is left out
  Parameters parameters;
  CaseTensors tensors;
  uint64_t bytes = 0;  // of all its tensors
};

class CaseList {
 public:
  [[nodiscard]] const std::vector<CaseEntry>& entries() const { return entries_; }
  /// The same execution in all processes, by the parameter `rank`: entry i is of rank i.
  /// errors  NotFound "Cannot find data on rank 1! ..." | Invalid (two processes with one rank)
  [[nodiscard]] Result<std::vector<const CaseEntry*>> peers_of(const CaseEntry& entry,
                                                               int64_t rank_count) const;
  /// Those that peers_of() chooses from; none of an operation of one rank.
  [[nodiscard]] std::vector<const CaseEntry*> peers_like(const CaseEntry& entry) const;

  /// Cases that were listed elsewhere.
  /// run, peer_run   have the records of the entries, and of their peers
  [[nodiscard]] static CaseList of(std::shared_ptr<const run::Run> run,
                                   std::vector<CaseEntry> entries,
                                   std::shared_ptr<const run::Run> peer_run,
                                   std::vector<CaseEntry> peers);
  [[nodiscard]] const run::Run& run() const { return *run_; }
  /// Of the peers.
  [[nodiscard]] const run::Run& peer_run() const { return peer_run_ ? *peer_run_ : *run_; }

  std::string path;
  /// What has no case: graphs and operations that were listed but not captured, with how many.
  std::vector<std::pair<std::string, size_t>> unlisted;
  std::vector<std::string> warnings;
  std::string nothing_matched;  // of a choice that leaves no case: a sentence

 private:
  friend class CaseBuilder;
  std::shared_ptr<const run::Run> run_;
  std::shared_ptr<const run::Run> peer_run_;  // the whole dump, where ranks are needed
  std::vector<CaseEntry> entries_;
  std::vector<CaseEntry> peers_;  // multi-card operations of the whole dump
  using Execution = std::tuple<std::string, std::string, std::string>;  // step, id, type
  std::map<Execution, std::vector<size_t>> peers_by_execution_;         // ascending
  static Execution execution_of(const CaseEntry& entry);
  void set_peers(std::vector<CaseEntry> peers);
};

/// path     a dump, or any folder inside one down to that of a single operation
/// errors   of run::open_run() | WrongKind (no dump of ATB operations: "Input path is not in
///          msit_dump tensors directory: ...") | of reading the csv; "Cannot find enough info in
///          csv file: ..."
[[nodiscard]] Result<CaseList> list_cases(const std::string& path, const CaseOptions& options);

/// True when an id is wanted: one of `ids` followed by nothing or by further numbers.
[[nodiscard]] bool is_wanted_id(const std::string& id, const std::vector<std::string>& ids);

}  // namespace assay::opcheck
