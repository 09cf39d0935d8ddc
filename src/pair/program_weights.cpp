// SPDX-License-Identifier: Apache-2.0
// Each leaf of mine looks for golden's of its own name, then for the operand that golden's paired
// operator reads in its place, then for the weight that its codes stand for.
#include "pair/program_weights.hpp"

#include <algorithm>

namespace assay::pair {
namespace {

class LeafMatcher {
 public:
  LeafMatcher(const ProgramLeaves& golden, const ProgramLeaves& mine, const CodedLeaves& coded,
              const OperatorPairs& operators)
      : golden_(golden), mine_(mine), coded_(coded), operators_(operators) {
    for (const LeafRead& read : mine.reads) first_reads_.try_emplace({read.leaf, read.op}, &read);
    for (const LeafRead& read : golden.reads) operands_.try_emplace({read.op, read.slot}, &read);
  }

  LeafPairs match() {
    for (const auto& [name, record] : mine_.records) {
      size_t golden = partner_of(name);
      if (const Weight* weight = golden == kNoPartner ? coded_.weight_at(name) : nullptr)
        golden = partner_of(weight->name);
      if (golden != kNoPartner) {
        out_.pairs.push_back({name, golden, record});
      } else if (!coded_.is_part(name)) {
        out_.lonely.push_back(name);
      }
    }
    find_missing();
    drop_unread();
    out_.judged = out_.pairs.size() + out_.lonely.size();
    return std::move(out_);
  }

 private:
  [[nodiscard]] size_t golden_record(std::string_view name) const {
    const auto found = golden_.records.find(name);
    return found == golden_.records.end() ? kNoPartner : found->second;
  }

  /// Golden's record of that name; else of the leaf that a paired operator reads in the same slot.
  [[nodiscard]] size_t partner_of(std::string_view name) const {
    if (const size_t same = golden_record(name); same != kNoPartner) return same;
    for (auto it = first_reads_.lower_bound({name, 0});
         it != first_reads_.end() && it->first.first == name; ++it) {
      const LeafRead& read = *it->second;
      const size_t golden_operator = operators_.golden_of[read.op];
      if (golden_operator == kNoPartner) continue;
      const auto operand = operands_.find({golden_operator, read.slot});
      if (operand == operands_.end()) continue;
      if (const size_t other = golden_record(operand->second->leaf); other != kNoPartner)
        return other;
    }
    return kNoPartner;
  }

  void find_missing() {
    std::set<size_t> partners;
    for (const LeafPair& one : out_.pairs) partners.insert(one.golden);
    std::set<std::string_view> missing;
    for (const LeafRead& read : golden_.reads) {
      const size_t record = golden_record(read.leaf);
      if (record == kNoPartner || !partners.contains(record)) missing.insert(read.leaf);
    }
    out_.missing.assign(missing.begin(), missing.end());
  }

  /// Takes out lonely leaves that cannot be one of golden's under another name: all of them, where
  /// every leaf that golden's program reads has its partner; else those that no operator of mine
  /// reads.
  void drop_unread() {
    const bool golden_tells = !operators_.mine_of.empty() && out_.missing.empty();
    if (!golden_tells && operators_.golden_of.empty()) return;
    std::erase_if(out_.lonely, [&](std::string_view name) {
      const auto read = first_reads_.lower_bound({name, 0});
      return golden_tells || read == first_reads_.end() || read->first.first != name;
    });
  }

  const ProgramLeaves& golden_;
  const ProgramLeaves& mine_;
  const CodedLeaves& coded_;
  const OperatorPairs& operators_;
  std::map<std::pair<std::string_view, size_t>, const LeafRead*> first_reads_;  // leaf, operator
  std::map<std::pair<size_t, std::string_view>, const LeafRead*> operands_;     // operator, slot
  LeafPairs out_;
};

}  // namespace

CodedLeaves::CodedLeaves(const run::Run& run, const LeafRecords& leaves,
                         std::optional<CodeNames> own)
    : names_(std::make_unique<run::Run>()) {
  for (const auto& [name, record] : leaves) {
    names_->records.push_back(run.records[record]);
    names_->records.back().node = name;
  }
  side_.emplace(*names_, /*as_stored=*/false, std::move(own));
  for (const Weight& weight : side_->weights()) {
    if (weight.owner) parts_.insert(side_->record_of(weight).node);
  }
}

const Weight* CodedLeaves::weight_at(std::string_view leaf) const {
  const std::vector<run::TensorRecord>& records = names_->records;  // by name, as the leaves are
  const auto found = std::ranges::lower_bound(
      records, leaf, {}, [](const run::TensorRecord& record) { return record.node.str(); });
  if (found == records.end() || found->node != leaf) return nullptr;
  const Weight& weight = side_->weights()[static_cast<size_t>(found - records.begin())];
  return weight.coding == Coding::Plain ? nullptr : &weight;
}

const Weight* CodedLeaves::find(std::string_view weight) const {
  for (const Weight& one : side_->weights()) {
    if (one.coding != Coding::Plain && one.name == weight) return &one;
  }
  return nullptr;
}

LeafPairs pair_leaves(const ProgramLeaves& golden, const ProgramLeaves& mine,
                      const CodedLeaves& coded, const OperatorPairs& operators) {
  return LeafMatcher(golden, mine, coded, operators).match();
}

}  // namespace assay::pair
