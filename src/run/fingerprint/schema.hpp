// SPDX-License-Identifier: Apache-2.0
// The names in a fingerprint, once for the writer and the reader.   docs/formats/fingerprint.md
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

namespace assay::run::fingerprint {

inline constexpr std::string_view kFormat = "assay-fingerprint";
inline constexpr int64_t kVersion = 1;

namespace key {
inline constexpr const char* kFormat = "format";
inline constexpr const char* kVersion = "version";
inline constexpr const char* kProperties = "properties";
inline constexpr const char* kCoverage = "coverage";
inline constexpr const char* kFindings = "findings";
inline constexpr const char* kTopology = "topology";
inline constexpr const char* kFloors = "floors";
inline constexpr const char* kTexts = "texts";
inline constexpr const char* kForms = "forms";
inline constexpr const char* kLists = "lists";
inline constexpr const char* kGroups = "groups";
inline constexpr const char* kDigests = "digests";
inline constexpr const char* kKept = "kept";
inline constexpr const char* kChoices = "choices";
inline constexpr const char* kRounded = "statistics";
inline constexpr const char* kExact = "exact_statistics";
// of a group
inline constexpr const char* kRank = "rank";
inline constexpr const char* kStep = "step";
inline constexpr const char* kColumns = "columns";
// of statistics
inline constexpr const char* kL2 = "l2";
inline constexpr const char* kMin = "min";
inline constexpr const char* kMax = "max";
inline constexpr const char* kMean = "mean";
inline constexpr const char* kScale = "scale";
inline constexpr const char* kSketch = "sketch";
// of choices
inline constexpr const char* kTokens = "tokens";
inline constexpr const char* kLogits = "logits";
}  // namespace key

/// Columns of a group. Of records:
namespace column {
inline constexpr std::string_view kOf = "of", kNode = "node", kType = "type", kCall = "call",
                                  kRole = "role", kSlot = "slot", kState = "state", kText = "text",
                                  kValue = "value", kFrom = "from";
// of values that the group is the first to have
inline constexpr std::string_view kKnown = "known", kForm = "form", kNewForm = "new_form",
                                  kId = "id", kStorage = "storage", kOffset = "offset",
                                  kWrites = "writes", kLeaf = "leaf", kMemory = "memory",
                                  kHas = "has", kCount = "count", kNan = "nan",
                                  kPositiveInf = "positive_inf", kNegativeInf = "negative_inf",
                                  kRows = "rows";
// of operators
inline constexpr std::string_view kOperatorType = "op_type", kOperatorModule = "op_module",
                                  kOperatorCall = "op_call", kOperatorNumber = "op_number",
                                  kOperatorPlace = "op_place", kArguments = "op_args",
                                  kNewArguments = "new_args", kWritten = "op_writes";
}  // namespace column

/// What a record is.
enum class State : int64_t { Tensor, Value, NotCaptured, Problem };

/// What is known of a value: bits of the column "has".
inline constexpr int64_t kHasRounded = 1, kHasExact = 2, kHasSketch = 4, kHasDigest = 8,
                         kIsKept = 16, kHasChoices = 32, kAllBits = 63;

/// Codes of the column "from": an input's maker.
inline constexpr int64_t kNoMaker = 0;
inline constexpr int64_t kUsualMaker = 1;   // Makers::maker_of()
inline constexpr int64_t kMakerBefore = 1;  // more: that many records before, plus this

/// A list that grows while codes for its entries are read or written: 0 for a new one, k for the
/// k-th from its end.
template <typename Key>
class BackReferences {
 public:
  /// Of the writer: the code of a key, which is in the list from now on.
  int64_t code_of(const Key& key) {
    const auto [found, is_new] = places_.try_emplace(key, size_);
    if (is_new) ++size_;
    return is_new ? 0 : size_ - found->second;
  }
  [[nodiscard]] int64_t size() const { return size_; }

 private:
  std::map<Key, int64_t> places_;
  int64_t size_ = 0;
};

/// Of the reader: the place of an entry in a list of `size`; `size` itself for a new one, nothing
/// for a code that means none.
[[nodiscard]] inline std::optional<int64_t> place_of_code(int64_t code, int64_t size) {
  if (code < 0 || code > size) return std::nullopt;
  return code == 0 ? size : size - code;
}

/// Which operator's record an input with a value id is usually from: the first of the latest step
/// that returned it.
class Makers {
 public:
  /// records are seen in order; `group` numbers the steps of ranks
  void see_output(int64_t value_id, int64_t record, size_t group) {
    const auto [found, is_new] = makers_.try_emplace(value_id, record, group);
    if (!is_new && found->second.second != group) found->second = {record, group};
  }
  /// -1: none
  [[nodiscard]] int64_t maker_of(int64_t value_id) const {
    const auto found = makers_.find(value_id);
    return found == makers_.end() ? -1 : found->second.first;
  }

 private:
  std::map<int64_t, std::pair<int64_t, size_t>> makers_;
};

}  // namespace assay::run::fingerprint
