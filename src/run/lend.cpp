// SPDX-License-Identifier: Apache-2.0
// Wanted records are indexed by digest. The lender's tensors of a wanted type and shape are read
// where they have no digest, and every record with that digest gets the place of the bytes.
#include "run/lend.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/text.hpp"
#include "run/checkpoint.hpp"
#include "run/folder.hpp"
#include "run/load.hpp"
#include "run/open.hpp"
#include "run/strided_payload.hpp"
#include "stats/whole_tensor.hpp"

namespace assay::run {
namespace {

bool is_leaf(const TensorRecord& record) {
  if (record.role == Role::Weight || record.role == Role::Buffer || !record.leaf.empty())
    return true;
  return record.is_of_operator() && record.role == Role::Input && record.producer < 0;
}

bool is_wanted(const TensorRecord& record) {
  return record.digest && !record.bytes && record.dtype && record.shape && is_leaf(record);
}

class Lending {
 public:
  explicit Lending(Run* borrower) : borrower_(borrower) {
    for (size_t i = 0; i < borrower->records.size(); ++i) {
      const TensorRecord& record = borrower->records[i];
      if (!is_wanted(record)) continue;
      wanted_[*record.digest].push_back(i);
      kinds_.insert(kind_of(record));
    }
  }

  void take_from(const Run& lender) {
    for (const TensorRecord& record : lender.records) {
      if (!record.bytes || !record.problem.empty() || !record.dtype || !record.shape ||
          !has_plain_values(record) || !kinds_.contains(kind_of(record)) ||
          !seen_.emplace(record.bytes->file, record.bytes->offset, record.bytes->member).second)
        continue;
      if (const std::optional<stats::Digest> digest = digest_of(record)) give(*digest, record);
    }
  }

  [[nodiscard]] size_t wanted() const { return wanted_.size(); }
  [[nodiscard]] size_t given() const { return given_.size(); }

 private:
  using Kind = std::pair<DType, std::vector<int64_t>>;

  static Kind kind_of(const TensorRecord& record) {
    return {*record.dtype, {record.shape->begin(), record.shape->end()}};
  }

  /// Nothing of a tensor that cannot be read: whoever needs it will say so.
  static std::optional<stats::Digest> digest_of(const TensorRecord& record) {
    if (record.digest) return record.digest;
    const Result<Tensor> tensor = load_tensor(record);
    return tensor ? std::optional(stats::digest_of(tensor->view)) : std::nullopt;
  }

  void give(const stats::Digest& digest, const TensorRecord& lender) {
    const auto found = wanted_.find(digest);
    if (found == wanted_.end()) return;
    for (const size_t i : found->second) {
      TensorRecord& record = borrower_->records[i];
      if (record.dtype != lender.dtype || record.shape != lender.shape) continue;
      record.bytes = lender.bytes;
      if (lender.made() != nullptr || record.made() != nullptr)
        record.set_made(lender.instead ? lender.instead->made : nullptr);
      given_.insert(digest);
    }
  }

  Run* borrower_;
  std::map<stats::Digest, std::vector<size_t>> wanted_;  // records by digest
  std::set<Kind> kinds_;
  std::set<std::tuple<std::string, uint64_t, std::string>> seen_;  // places of the lender's
  std::set<stats::Digest> given_;
};

}  // namespace

std::vector<std::string> lend_values(Run* borrower, const Run& lender) {
  if (!borrower->has(Trait::WithoutValues)) return {};
  Lending lending(borrower);
  if (lending.wanted() == 0) return {};
  lending.take_from(lender);
  if (lending.given() == 0) return {};
  return {std::to_string(lending.given()) + " of " + counted(lending.wanted(), "weight") +
          " that the fingerprint " + borrower->path + " has digests of are in " + lender.path};
}

Result<Run> open_weights(const std::string& path) {
  Result<Run> weights = is_folder(path) ? open_checkpoint(path) : open_run(path);
  // A run may hold them, too.
  if (!weights && is_folder(path)) {
    if (Result<Run> run = open_run(path)) weights = std::move(run);
  }
  if (weights) weights->path = path;
  return weights;
}

Result<std::vector<std::string>> lend_weights(Run* golden, const std::string& checkpoint) {
  if (checkpoint.empty()) return std::vector<std::string>();
  if (!golden->has(Trait::WithoutValues))
    return fail(Errc::Usage, "--golden-weights is for a golden fingerprint; " + golden->path +
                                 " holds its own values");
  ASSAY_TRY(const Run weights, open_weights(checkpoint));
  std::vector<std::string> notes = lend_values(golden, weights);
  if (notes.empty())
    notes.push_back("none of the weights of " + golden->path + " is in " + checkpoint +
                    ": it is another checkpoint, or holds another type");
  return notes;
}

}  // namespace assay::run
