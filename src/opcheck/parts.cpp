// SPDX-License-Identifier: Apache-2.0
// A part holds cases and their peers with the records that they name; its answer holds results in
// the same order. Each transfer() lists the members of a struct once, for writing and for reading.
#include "opcheck/parts.hpp"

#include <algorithm>
#include <map>

#include "opcheck/registry.hpp"
#include "run/do_parts.hpp"
#include "run/part_archive.hpp"

namespace assay {
namespace measure {

template <typename Archive, typename Any>
  requires std::same_as<std::remove_const_t<Any>, Accuracy>
void transfer(Archive& archive, Any& accuracy) {
  archive(accuracy.precision, accuracy.terms);
  run::check_range(archive, accuracy.precision <= Precision::Rand);
}
template <typename Archive, typename Any>
  requires std::same_as<std::remove_const_t<Any>, Measures>
void transfer(Archive& archive, Any& m) {
  archive(m.count, m.dtype, m.golden_nan, m.golden_inf, m.mine_nan, m.mine_inf,
          m.pattern_mismatches, m.first_pattern_mismatch, m.zero_sign_mismatches, m.max_abs_error,
          m.mean_abs_error, m.max_rel_error, m.mean_rel_error, m.worst_index, m.rmse, m.cosine,
          m.kl_divergence, m.relative_l2, m.nmse, m.mare, m.mere, m.error_balance, m.ulp_histogram,
          m.atb_within, m.mixed_within, m.mixed_too_far, m.legacy_o4_within, m.legacy_o4_max_rel,
          m.legacy_abs_within, m.legacy_max_abs, m.legacy_o1_within, m.legacy_o1_max_rel,
          m.legacy_o1_abs_within, m.legacy_o1_max_abs, m.inexact, m.truncated, m.away,
          m.away_truncated, m.away_values, m.kolmogorov_smirnov, m.kolmogorov_smirnov_p);
  run::check_range(archive, static_cast<int>(m.dtype) < kDTypeCount);
}
template <typename Archive, typename Any>
  requires std::same_as<std::remove_const_t<Any>, Judgement>
void transfer(Archive& archive, Any& judgement) {
  archive(judgement.passed, judgement.reason, judgement.remark, judgement.rate,
          judgement.error_balance);
}
template <typename Archive, typename Any>
  requires std::same_as<std::remove_const_t<Any>, LegacyLimits>
void transfer(Archive& archive, Any& limits) {
  archive(limits.etol, limits.needed);
}
template <typename Archive, typename Any>
  requires std::same_as<std::remove_const_t<Any>, Neighbourhood>
void transfer(Archive& archive, Any& place) {
  archive(place.index, place.golden, place.mine, place.first, place.golden_values,
          place.mine_values);
}

}  // namespace measure

namespace opcheck {

template <typename Archive, typename Any>
  requires std::same_as<std::remove_const_t<Any>, CaseDescription>
void transfer(Archive& archive, Any& about) {
  archive(about.id, about.op_type, about.folder, about.node, about.rank, about.step,
          about.parameters, about.parameter_error, about.in_table);
}

void transfer(ByteWriter& archive, const Parameters& parameters) {
  archive(parameters.python_text());
}
void transfer(ArchiveReader& archive, Parameters& parameters) {
  std::string text;
  archive(text);
  Result<Parameters> parsed = Parameters::parse(text);
  if (!parsed) return archive.fail_now();
  parameters = *std::move(parsed);
}

void transfer(ByteWriter& archive, const CustomMetric::Value& value) {
  archive(value.message);
  run::write_value(archive, value.value);
}
void transfer(ArchiveReader& archive, CustomMetric::Value& value) {
  archive(value.message);
  run::read_value(archive, &value.value);
}

/// All but `rounding`, which only captured operators have.
template <typename Archive, typename Any>
  requires std::same_as<std::remove_const_t<Any>, OutputRow>
void transfer(Archive& archive, Any& row) {
  archive(row.index, row.in_place, row.name, row.file, row.slot, row.outcome, row.reason, row.note,
          row.partial, row.compared, row.dtype, row.shape, row.accuracy, row.measures,
          row.judgements, row.legacy, row.worst, row.custom);
  run::check_range(archive, row.outcome <= CheckOutcome::Error);
}

/// All but description and bytes, which the process that asks has itself.
template <typename Archive, typename Any>
  requires std::same_as<std::remove_const_t<Any>, CaseResult>
void transfer(Archive& archive, Any& result) {
  archive(result.variant, result.unknown_parameters, result.rows, result.outcome, result.seconds);
  run::check_range(archive, result.outcome <= CheckOutcome::Error && !result.rows.empty());
}

namespace {

constexpr std::string_view kAnswerMark = "assay results 2";

/// The tensors of a case, by places among the records of a part; -1: none.
struct TensorPlaces {
  std::vector<int64_t> before, after;  // inputs
  std::vector<int64_t> outputs;
};

template <typename Archive, typename Any>
  requires std::same_as<std::remove_const_t<Any>, TensorPlaces>
void transfer(Archive& archive, Any& places) {
  archive(places.before, places.after, places.outputs);
}

/// Calls use(record) for all that an entry names.
void for_each_record(const CaseEntry& entry,
                     const std::function<void(const run::TensorRecord& record)>& use) {
  const auto visit = [&](const run::TensorRecord* record) {
    if (record != nullptr) use(*record);
  };
  for (const CaseTensors::Slot& slot : entry.tensors.inputs) {
    visit(slot.before);
    visit(slot.after);
  }
  std::ranges::for_each(entry.tensors.outputs, visit);
}

/// Entries on their way to a process that has the files: those of this run, or of the whole dump.
class EntryWriter {
 public:
  explicit EntryWriter(const run::Run& run) : run_(run), records_(run) {}

  void add(const CaseEntry& entry) {
    TensorPlaces places;
    for (const CaseTensors::Slot& slot : entry.tensors.inputs) {
      places.before.push_back(place_of(slot.before));
      places.after.push_back(place_of(slot.after));
    }
    for (const run::TensorRecord* output : entry.tensors.outputs)
      places.outputs.push_back(place_of(output));
    entries_(entry.description, std::string(entry.op == nullptr ? "" : entry.op->name),
             entry.evaluated_as, entry.is_kernel, entry.unsupported, entry.parameters, places,
             entry.bytes);
    ++count_;
  }
  void write(ByteWriter& out) const {
    records_.write(out);
    out(count_, entries_.bytes());
  }

 private:
  int64_t place_of(const run::TensorRecord* record) {
    if (record == nullptr) return -1;
    return static_cast<int64_t>(
        records_.place_of(static_cast<size_t>(record - run_.records.data())));
  }

  const run::Run& run_;
  run::SomeRecords records_;
  ByteWriter entries_;
  uint64_t count_ = 0;
};

/// A record of the run by its place; nullptr for -1.
const run::TensorRecord* record_at(ArchiveReader& archive, const run::Run& run, int64_t place) {
  if (place < 0) return nullptr;
  if (static_cast<size_t>(place) < run.records.size())
    return &run.records[static_cast<size_t>(place)];
  archive.fail_now();
  return nullptr;
}

void read_entry(ArchiveReader& archive, const run::Run& run, CaseEntry* entry) {
  std::string op;
  TensorPlaces places;
  archive(entry->description, op, entry->evaluated_as, entry->is_kernel, entry->unsupported,
          entry->parameters, places, entry->bytes);
  if (!archive.is_good()) return;
  entry->op = op.empty() ? nullptr : find_operator(op);
  if ((entry->op == nullptr) != op.empty() || places.before.size() != places.after.size())
    return archive.fail_now();
  for (size_t i = 0; i < places.before.size(); ++i)
    entry->tensors.inputs.push_back(
        {record_at(archive, run, places.before[i]), record_at(archive, run, places.after[i])});
  for (const int64_t place : places.outputs)
    entry->tensors.outputs.push_back(record_at(archive, run, place));
}

/// errors   Invalid
Status read_entries(ArchiveReader& archive, run::Run* run, std::vector<CaseEntry>* entries) {
  uint64_t count = 0;
  std::string packed;
  run::read_run(archive, run);
  archive(count, packed);
  ASSAY_TRY_STATUS(archive.status());
  ArchiveReader one_by_one(as_bytes(packed));
  for (uint64_t i = 0; i < count && one_by_one.is_good(); ++i)
    read_entry(one_by_one, *run, &entries->emplace_back());
  ASSAY_TRY_STATUS(one_by_one.status());
  if (!one_by_one.is_at_end()) return fail(Errc::Invalid, "the part has more than its cases");
  return {};
}

class CasesElsewhere {
 public:
  CasesElsewhere(const CaseList& cases, const CheckOptions& options,
                 const std::function<void(size_t, std::optional<CaseResult>)>& done)
      : cases_(cases), options_(options), done_(done) {}

  Result<std::vector<size_t>> check() {
    return run::do_parts(
        *options_.parts,
        {.count = cases_.entries().size(),
         .can_be_sent = [&](size_t i) { return can_be_sent(i); },
         .place_of = [&](size_t i) { return place_of(cases_.entries()[i]); },
         .files_of = [&](const run::Part& part) { return files_of(part); },
         .pack = [&](const run::Part& part) { return pack(part); },
         .take = [&](const run::Part& part,
                     run::PartRunner::Outcome outcome) { take(part, std::move(outcome)); }});
  }

 private:
  [[nodiscard]] bool can_be_sent(size_t number) const {
    bool is_plain = true;
    const auto look = [&](const run::TensorRecord& record) {
      is_plain &= record.made() == nullptr;
    };
    const CaseEntry& entry = cases_.entries()[number];
    for_each_record(entry, look);
    for (const CaseEntry* peer : cases_.peers_like(entry)) for_each_record(*peer, look);
    return is_plain;
  }

  run::TaskPlace place_of(const CaseEntry& entry) {
    run::TaskPlace place{.rank = entry.description.rank, .bytes = entry.bytes};
    place.step = static_cast<int64_t>(
        steps_.try_emplace(entry.description.step, steps_.size()).first->second);
    const std::vector<const CaseEntry*> peers = cases_.peers_like(entry);
    if (peers.size() < 2) return place;
    // Its ranks are checked together, so that tensors travel once.
    place.rank = 0;
    place.crosses_ranks = true;
    place.group =
        1 + executions_
                .try_emplace({entry.description.id, entry.description.op_type}, executions_.size())
                .first->second;
    return place;
  }

  /// The peers of a part's cases, each once.
  [[nodiscard]] std::vector<const CaseEntry*> peers_of(const run::Part& part) const {
    std::vector<const CaseEntry*> peers;
    for (const size_t number : part.tasks) {
      for (const CaseEntry* peer : cases_.peers_like(cases_.entries()[number]))
        peers.push_back(peer);
    }
    std::ranges::sort(peers);  // by their place in the list, whose order decides among them
    peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
    return peers;
  }

  [[nodiscard]] std::vector<std::string> files_of(const run::Part& part) const {
    run::PartFiles files;
    const auto add = [&](const run::TensorRecord& record) { files.add(record); };
    for (const size_t number : part.tasks) for_each_record(cases_.entries()[number], add);
    for (const CaseEntry* peer : peers_of(part)) for_each_record(*peer, add);
    return files.list();
  }

  [[nodiscard]] std::string pack(const run::Part& part) const {
    ByteWriter out;
    out(std::string(kCasesMark), options_.standard, options_.precision_mode,
        options_.kl_divergence);
    EntryWriter entries(cases_.run());
    for (const size_t number : part.tasks) entries.add(cases_.entries()[number]);
    entries.write(out);
    const std::vector<const CaseEntry*> peers = peers_of(part);
    EntryWriter of_peers(cases_.peer_run());
    for (const CaseEntry* peer : peers) of_peers.add(*peer);
    of_peers.write(out);
    return out.take();
  }

  void take(const run::Part& part, run::PartRunner::Outcome outcome) {
    std::vector<CaseResult> results;
    Status taken;
    if (outcome) {
      taken = unpack(as_bytes(*outcome), part.tasks.size(), &results);
    } else {
      taken = fail(outcome.error());
    }
    for (size_t i = 0; i < part.tasks.size(); ++i) {
      const CaseEntry& entry = cases_.entries()[part.tasks[i]];
      if (!taken && taken.error().code == Errc::Interrupted) {
        done_(part.tasks[i], std::nullopt);
        continue;
      }
      CaseResult result;
      if (taken) {
        result = std::move(results[i]);
      } else {
        result.rows.emplace_back().reason = "not checked: " + taken.error().describe();
      }
      result.description = entry.description;
      result.bytes = entry.bytes;
      done_(part.tasks[i], std::move(result));
    }
  }

  static Status unpack(ByteSpan answer, size_t count, std::vector<CaseResult>* results) {
    if (run::mark_of(answer) != kAnswerMark)
      return fail(Errc::Invalid, "the answer is of another version of assay");
    ArchiveReader archive(answer);
    std::string mark;
    archive(mark, *results);
    ASSAY_TRY_STATUS(archive.status());
    if (results->size() != count)
      return fail(Errc::Invalid, "the answer has other cases than the part");
    return {};
  }

  const CaseList& cases_;
  const CheckOptions& options_;
  const std::function<void(size_t, std::optional<CaseResult>)>& done_;
  std::map<std::string, size_t> steps_;
  std::map<std::pair<std::string, std::string>, size_t> executions_;
};

}  // namespace

Result<std::vector<size_t>> check_elsewhere(
    const CaseList& cases, const CheckOptions& options,
    const std::function<void(size_t, std::optional<CaseResult>)>& done) {
  return CasesElsewhere(cases, options, done).check();
}

Result<std::string> run_part(ByteSpan request, CheckOptions options) {
  if (run::mark_of(request) != kCasesMark)
    return fail(Errc::Invalid, "the part is of another version of assay");
  ArchiveReader archive(request);
  std::string mark;
  archive(mark, options.standard, options.precision_mode, options.kl_divergence);
  if (!archive.is_good() || options.standard > measure::Standard::Mixed ||
      options.precision_mode > PrecisionMode::ForceFp32)
    return fail(Errc::Invalid, "the part asks for what this version does not know");
  const auto run = std::make_shared<run::Run>();
  const auto peer_run = std::make_shared<run::Run>();
  std::vector<CaseEntry> entries;
  std::vector<CaseEntry> peers;
  ASSAY_TRY_STATUS(read_entries(archive, run.get(), &entries));
  ASSAY_TRY_STATUS(read_entries(archive, peer_run.get(), &peers));
  if (!archive.is_at_end()) return fail(Errc::Invalid, "the part has more than its cases");
  options.parts = nullptr;
  const size_t count = entries.size();
  ASSAY_TRY(
      const Report report,
      check_cases(CaseList::of(run, std::move(entries), peer_run, std::move(peers)), options));
  if (report.cases.size() != count) return fail(Errc::Interrupted, "interrupted");
  ByteWriter out;
  out(std::string(kAnswerMark), report.cases);
  return out.take();
}

}  // namespace opcheck
}  // namespace assay
