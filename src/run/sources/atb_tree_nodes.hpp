// SPDX-License-Identifier: Apache-2.0
// The folders of operations below one run count of an ATB dump.   docs/formats/atb-tree.md
//
//   {id}_{operation}/op_param.json   before/intensor0.bin   after/outtensor0.bin   {id}_{operation}/...
#pragma once
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "run/atb_names.hpp"
#include "run/folder.hpp"
#include "run/record.hpp"

namespace assay::run::sources {

inline constexpr int kMaxAtbDepth = 1000;  // graphs in graphs, as the topology files

/// The run count that is read.
struct AtbStep {
  std::string boundary;  // real path that links may not leave
  int rank = 0;
  std::string name;
  std::map<std::string, std::string> parameters;  // "2_0" -> JSON, from the lists of operations

  /// A record or operation of this run count; the type stands in the node's last part.
  [[nodiscard]] TensorRecord record_of(const std::string& node) const;
  [[nodiscard]] OperationRecord operation_of(const std::string& node, std::string op_type,
                                             std::string parameters) const;
};

/// Files that gave no records, for the warnings.
struct AtbLeftovers {
  size_t unfinished_files = 0;  // .tmp
  size_t appended_files = 0;    // with more than one record in them
  std::string first_appended;
  size_t unknown_files = 0;
  std::string first_unknown;

  /// Counts a file that has no place in the layout.
  void note(const FolderEntry& entry);
  /// Adds those of folders that stand behind.
  void add(AtbLeftovers&& later);
};

/// Where the records of a node stand in execution order.
struct AtbNodePlace {
  uint64_t entry = 0;
  uint64_t exit = 0;
};

/// "0" or "0_x": a slot as the name of the file says it, before finish().
[[nodiscard]] std::string atb_raw_slot(const AtbFileName& name);

/// What there is of a run count, or of some of its folders.
struct AtbNodes {
  std::vector<std::string> names;     // of all nodes, also of those without records
  std::vector<TensorRecord> records;  // until finish() with raw slots, and without `order`
  std::vector<OperationRecord> operations;
  std::vector<std::string> warnings;
  AtbLeftovers leftovers;
  std::unordered_map<std::string, size_t> file_by_reference;  // "0_0_intensor0.bin" -> record
  std::map<size_t, std::string> references;                   // record -> its data=

  // Since finish():
  uint64_t place_count = 0;  // all places are below
  std::unordered_map<std::string, AtbNodePlace> places;

  /// Adds more, which stands behind.
  void append(AtbNodes&& later);
  /// Gives records their slots and their places in the order of execution, and operations without
  /// parameters those of the lists; once, when all are here.
  void finish(const AtbStep& step);

 private:
  void add_listed_parameters(const AtbStep& step);
  void name_slots();
  void number_places();
};

/// Appends, and leaves `from` without use.
template <typename T>
void move_to_end(std::vector<T>* from, std::vector<T>* to) {
  if (to->empty()) {
    to->swap(*from);
  } else {
    to->insert(to->end(), std::move_iterator(from->begin()), std::move_iterator(from->end()));
  }
}

/// Reads folders of operations, parallel where there are several next to each other. The result
/// does not depend on the number of threads.
/// folders   in order; what is no folder of an operation gives a warning
[[nodiscard]] AtbNodes read_atb_nodes(const std::vector<FolderEntry>& folders, const AtbStep& step);

}  // namespace assay::run::sources
