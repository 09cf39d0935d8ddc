// SPDX-License-Identifier: Apache-2.0
// Pairs names, brings each side to float (de-quantised, or a GGUF file's values in the checkpoint's
// order), compares, and says whether rounding explains the difference.
#include "compare/weights.hpp"

#include <algorithm>
#include <cmath>

#include "compare/comparability.hpp"
#include "compare/dequantise.hpp"
#include "compare/gguf_weights.hpp"
#include "compare/pair_loop.hpp"
#include "compare/resident.hpp"
#include "pair/weight_names.hpp"
#include "run/checkpoint.hpp"
#include "run/load.hpp"
#include "run/natural_sort.hpp"
#include "run/strided_payload.hpp"
#include "tensor/convert.hpp"

namespace assay::compare {
namespace {

using run::Run;
using run::TensorRecord;

// ---- one pair ----

/// A side of a row: the tensor that is compared, and what made it.
struct Operand {
  Tensor tensor;
  std::string scheme;  // empty: as it is stored
  std::string dtype;
};

class WeightComparer {
 public:
  /// golden_gguf, my_gguf   of a side that is a GGUF file and was renamed; otherwise null
  WeightComparer(const pair::CheckpointSide& golden, const pair::CheckpointSide& mine,
                 const GgufSide* golden_gguf, const GgufSide* my_gguf,
                 const CompareOptions& options)
      : golden_(golden),
        mine_(mine),
        golden_gguf_(golden_gguf),
        my_gguf_(my_gguf),
        options_(options),
        resident_(options.max_memory) {}

  Row compare(const pair::WeightPair& pair, int jobs) {
    const pair::Weight& golden = golden_.weights()[pair.golden];
    const pair::Weight& mine = mine_.weights()[pair.mine];
    Row row;
    // A tied head is named by the side that has one.
    row.label = pair.rule == pair::Rule::TiedEmbedding && mine.name.ends_with("lm_head.weight")
                    ? mine.name
                    : golden.name;
    row.matched_by = pair.rule;
    row.note = pair.note;
    row.golden = describe(golden_, golden);
    row.mine = describe(mine_, mine);
    note_gguf(golden, mine, &row);
    const Subject subject(row);
    compare_into(golden, mine, jobs, &row);
    if (!row.comparable) judge_row(options_, subject.get(row), &row);
    set_sqnr(&row);
    return row;
  }

  [[nodiscard]] uint64_t compared_bytes() const { return compared_bytes_; }

 private:
  struct Subject {
    explicit Subject(const Row& row)
        : golden_path(row.golden.path.str()), mine_path(row.mine.path.str()), label(row.label) {}
    [[nodiscard]] LimitSubject get(const Row& row) const {
      return {golden_path, mine_path, label, "", row.mine.dtype};
    }
    std::string golden_path;
    std::string mine_path;
    std::string label;
  };

  static SideSummary describe(const pair::CheckpointSide& side, const pair::Weight& weight) {
    const TensorRecord& record = side.record_of(weight);
    SideSummary out;
    out.path = RecordPath(record);
    if (record.dtype) out.dtype = torch_name(*record.dtype);
    if (record.shape) out.shape = list_text(record.shape->span());
    return out;
  }

  /// What the converter did to a weight; nullptr when its side is no renamed GGUF file.
  [[nodiscard]] const GgufWeight* gguf_weight(const pair::CheckpointSide& side,
                                              size_t record_index) const {
    const GgufSide* gguf = &side == &golden_ ? golden_gguf_ : my_gguf_;
    if (gguf == nullptr) return nullptr;
    const auto found = gguf->weights.find(record_index);
    return found == gguf->weights.end() ? nullptr : &found->second;
  }

  void note_gguf(const pair::Weight& golden, const pair::Weight& mine, Row* row) const {
    const auto add = [&](std::string_view side, const GgufWeight* weight) {
      if (weight == nullptr) return;
      if (row->matched_by != pair::Rule::TiedEmbedding) row->matched_by = pair::Rule::GgufNames;
      row->note += (row->note.empty() ? "" : "; ") + std::string(side) + ": " + weight->note();
    };
    const GgufWeight* of_golden = gguf_weight(golden_, golden.record);
    const GgufWeight* of_mine = gguf_weight(mine_, mine.record);
    // A note about a prefix speaks of names that no file has.
    if ((of_golden || of_mine) && row->matched_by == pair::Rule::PrefixedNames) row->note.clear();
    add("golden", of_golden);
    add("my", of_mine);
  }

  /// Says of the side that is rounded to blocks whether that explains how far it is from the other.
  void add_rounding(const pair::CheckpointSide& side, const pair::Weight& weight,
                    const Operand& other, int jobs, Row* row) {
    const GgufWeight* known = gguf_weight(side, weight.record);
    const GgufWeight as_stored{.name = weight.name};
    const auto check =
        check_rounding(side.record_of(weight), known ? *known : as_stored, other.tensor.view, jobs);
    if (!check) {
      row->note += (row->note.empty() ? "" : "; ") + check.error().describe();
      return;
    }
    if (!*check) return;
    row->quantisation += (row->quantisation.empty() ? "" : "; ") +
                         std::string(&side == &golden_ ? "golden " : "") + (*check)->text();
    if ((*check)->unexplained == 0 || row->outcome == Outcome::NotJudged) return;
    row->outcome = Outcome::Fail;
    row->exceeded += (row->exceeded.empty() ? "" : "; ") + std::to_string((*check)->unexplained) +
                     " values beyond rounding";
  }

  Result<Tensor> load(const pair::CheckpointSide& side, size_t record_index) {
    const TensorRecord& record = side.record(record_index);
    if (!record.problem.empty()) return fail(Errc::NotFound, record.problem);
    ASSAY_TRY(Tensor tensor, run::load_tensor(record));
    compared_bytes_ +=
        storage_bytes(tensor.view.dtype, static_cast<uint64_t>(tensor.view.element_count()))
            .value_or(0);
    if (const GgufWeight* weight = gguf_weight(side, record_index))
      return in_checkpoint_order(std::move(tensor), *weight);
    return tensor;
  }

  // The shape of the float weight, where the side tells it.
  std::optional<Dims> unpacked_shape(const pair::CheckpointSide& side, const pair::Weight& weight) {
    const auto shape_of = [&](size_t record) { return side.record(record).shape; };
    const std::optional<Dims> stored = shape_of(weight.record);
    switch (weight.coding) {
      case pair::Coding::Plain:
      case pair::Coding::Codes:
      case pair::Coding::Levels:  // of programs alone, whose golden tells the shape
        return stored;
      case pair::Coding::CompressedTensors: {
        if (!weight.unpacked_shape) return std::nullopt;
        const Result<Tensor> tensor = load(side, *weight.unpacked_shape);
        if (!tensor || tensor->view.element_count() != 2) return std::nullopt;
        std::vector<double> sizes(2);
        if (values_per_element(tensor->view.dtype) != 1) return std::nullopt;
        read_values(tensor->view, 0, 2, sizes);
        constexpr double kMaxSize = 0x1p40;
        if (!(sizes[0] >= 0 && sizes[0] < kMaxSize && sizes[1] >= 0 && sizes[1] < kMaxSize)) {
          return std::nullopt;
        }
        return Dims{static_cast<int64_t>(sizes[0]), static_cast<int64_t>(sizes[1])};
      }
      case pair::Coding::QWeight: {
        const std::optional<Dims> scale = shape_of(*weight.scale);
        if (!stored || !scale || stored->size() != 2 || scale->size() != 2) return std::nullopt;
        // 4 bits a code, as all AWQ and nearly all GPTQ files have.
        if ((*stored)[1] == (*scale)[1]) return Dims{(*stored)[1], (*stored)[0] * 8};
        return Dims{(*scale)[1], (*stored)[0]};
      }
    }
    return std::nullopt;
  }

  Result<Operand> stored(const pair::CheckpointSide& side, const pair::Weight& weight) {
    Operand out;
    ASSAY_TRY(out.tensor, load(side, weight.record));
    return out;
  }

  Result<Operand> unpacked(const pair::CheckpointSide& side, const pair::Weight& weight,
                           const Dims& wanted, int jobs) {
    if (weight.coding == pair::Coding::Plain) return stored(side, weight);
    QuantisedParts parts;
    parts.coding = weight.coding;
    parts.scale_factor = weight.scale_factor;
    parts.zero_is_less_one = side.property("checkpoint_format") != "gptq_v2";
    ASSAY_TRY(const Tensor codes, load(side, weight.record));
    ASSAY_TRY(const Tensor scale, load(side, *weight.scale));
    std::optional<Tensor> zero;
    std::optional<Tensor> group_index;
    if (weight.zero) {
      ASSAY_TRY(zero, load(side, *weight.zero));
      parts.zero = zero->view;
    }
    if (weight.group_index) {
      ASSAY_TRY(group_index, load(side, *weight.group_index));
      parts.group_index = group_index->view;
    }
    parts.codes = codes.view;
    parts.scale = scale.view;
    const auto watch = resident_.watch(codes.view.storage);
    const bool like_torch = options_.conventions.weight_pairs != nullptr;
    ASSAY_TRY(Dequantised made, dequantise(parts, wanted, like_torch, jobs));
    return Operand{std::move(made.tensor), std::move(made.scheme), std::move(made.dtype)};
  }

  void compare_into(const pair::Weight& golden, const pair::Weight& mine, int jobs, Row* row) {
    const bool alike = pair::are_stored_alike(golden_, golden, mine_, mine);
    std::optional<Dims> wanted;
    if (!alike) {
      // A plain weight has the true shape; codes may be two to a byte.
      const bool golden_first =
          golden.coding == pair::Coding::Plain || mine.coding != pair::Coding::Plain;
      wanted = golden_first ? unpacked_shape(golden_, golden) : unpacked_shape(mine_, mine);
      if (!wanted) {
        wanted = golden_first ? unpacked_shape(mine_, mine) : unpacked_shape(golden_, golden);
      }
      if (!wanted) wanted = Dims{};
    }
    const auto operand = [&](const pair::CheckpointSide& side, const pair::Weight& weight) {
      return alike ? stored(side, weight) : unpacked(side, weight, *wanted, jobs);
    };
    const Result<Operand> golden_side = operand(golden_, golden);
    const Result<Operand> mine_side = operand(mine_, mine);
    const auto refuse = [&](std::string_view side, const Result<Operand>& result) {
      if (result) return;
      if (!row->fail_reason.empty()) row->fail_reason += " ";
      row->fail_reason += std::string(side) + ": " + result.error().describe() + ".";
    };
    refuse("golden", golden_side);
    refuse("my", mine_side);
    if (!golden_side || !mine_side) return;
    const TensorView& g = golden_side->tensor.view;
    const TensorView& m = mine_side->tensor.view;
    const auto golden_watch = resident_.watch(g.storage);
    const auto mine_watch = resident_.watch(m.storage);
    const Subject subject(*row);
    const std::string note = std::move(row->note);
    row->note.clear();
    compare_pair_into(g, m, options_, jobs, subject.get(*row), row);
    describe_operands(*golden_side, *mine_side, row);
    if (!note.empty()) row->note += (row->note.empty() ? "" : "; ") + note;
    explain_missing_scale(golden, mine, row);
    const auto stored_type = [](const pair::CheckpointSide& side, const pair::Weight& weight) {
      const run::TensorRecord& record = side.record_of(weight);
      return run::has_plain_values(record) ? InternedText() : record.memory_format;
    };
    // Two sides of one block type are equal or not by their values.
    if (stored_type(golden_, golden) == stored_type(mine_, mine) &&
        !stored_type(mine_, mine).empty()) {
      row->quantisation = stored_type(mine_, mine);
      return;
    }
    if (is_gguf(mine_, mine)) add_rounding(mine_, mine, *golden_side, jobs, row);
    if (is_gguf(golden_, golden)) add_rounding(golden_, golden, *mine_side, jobs, row);
    note_order(mine_, mine, *golden_side, row);
    note_order(golden_, golden, *mine_side, row);
  }

  void note_order(const pair::CheckpointSide& side, const pair::Weight& weight,
                  const Operand& other, Row* row) const {
    constexpr double kFar = 0.9;  // cosine
    const GgufWeight* known = gguf_weight(side, weight.record);
    if (known == nullptr || !row->metrics || !(row->metrics->cosine_similarity < kFar)) return;
    const Result<Tensor> as_stored = run::load_tensor(side.record_of(weight));
    if (!as_stored) return;  // it was read a moment ago, and the row has its numbers
    const auto sentence = other_order(*as_stored, *known, other.tensor.view);
    if (sentence && *sentence) row->note += "; " + **sentence;
  }

  static bool is_gguf(const pair::CheckpointSide& side, const pair::Weight& weight) {
    const TensorRecord& record = side.record_of(weight);
    return record.bytes && record.bytes->file.ends_with(".gguf");
  }

  static void describe_operands(const Operand& golden, const Operand& mine, Row* row) {
    if (!golden.dtype.empty()) row->golden.dtype = golden.dtype;
    if (!mine.dtype.empty()) row->mine.dtype = mine.dtype;
    row->quantisation = mine.scheme;
    if (golden.scheme.empty()) return;
    row->quantisation = "golden " + golden.scheme;
    if (!mine.scheme.empty()) row->quantisation += "; my " + mine.scheme;
  }

  void explain_missing_scale(const pair::Weight& golden, const pair::Weight& mine, Row* row) const {
    if (row->comparable || row->metrics) return;
    const bool golden_has_codes = golden_.record_of(golden).dtype == DType::Int8;
    const pair::Weight& codes = golden_has_codes ? golden : mine;
    row->fail_reason = std::string(golden_has_codes ? "golden" : "my") +
                       " weight is torch.int8 and '" + codes.name + "_scale' is missing.";
  }

  static void set_sqnr(Row* row) {
    if (!row->metrics || row->metrics->state != measure::PairState::Compared) return;
    const double distance = row->metrics->relative_euclidean_distance;
    const bool both_zero = distance == 0 && row->golden_norm == 0;
    if (!both_zero) row->sqnr_db = -20 * std::log10(distance);
  }

  const pair::CheckpointSide& golden_;
  const pair::CheckpointSide& mine_;
  const GgufSide* golden_gguf_;
  const GgufSide* my_gguf_;
  const CompareOptions& options_;
  ResidentLimit resident_;
  std::atomic<uint64_t> compared_bytes_{0};
};

// ---- all of them ----

void list_unmatched(const pair::CheckpointSide& golden, const pair::CheckpointSide& mine,
                    const pair::WeightPairing& pairing, pair::Matching* matching) {
  const auto reason = [](const TensorRecord& record, const char* otherwise) {
    return record.problem.empty() ? std::string(otherwise) : record.problem.str();
  };
  for (size_t i = 0; i < golden.weights().size(); ++i) {
    if (pairing.is_matched_golden(i) || pairing.is_used_up_golden(i)) continue;
    matching->unmatched.push_back(
        {pair::Side::Golden, i, reason(golden.record(i), "weight exists only in golden")});
  }
  const size_t golden_count = matching->unmatched.size();
  for (size_t i = 0; i < mine.weights().size(); ++i) {
    if (pairing.is_matched_mine(i) || pairing.is_used_up_mine(i)) continue;
    matching->unmatched.push_back(
        {pair::Side::Mine, i, reason(mine.record(i), "weight exists only in mine")});
  }
  matching->golden_matched = matching->mine_matched = matching->pairs.size();
  matching->golden_candidates = matching->golden_matched + golden_count;
  matching->mine_candidates = matching->mine_matched + matching->unmatched.size() - golden_count;
}

// Place of each row in the natural order of names, so that layers.2 comes before layers.10.
void set_orders(std::vector<Row>* rows) {
  std::vector<size_t> by_name(rows->size());
  for (size_t i = 0; i < by_name.size(); ++i) by_name[i] = i;
  std::stable_sort(by_name.begin(), by_name.end(), [&](size_t a, size_t b) {
    return run::natural_less((*rows)[a].label, (*rows)[b].label);
  });
  for (size_t place = 0; place < by_name.size(); ++place) (*rows)[by_name[place]].order = place;
}

uint64_t float_bytes(const TensorRecord& record) {
  const auto count = record.shape ? element_count(*record.shape) : std::nullopt;
  return count ? static_cast<uint64_t>(*count) * sizeof(float) : 0;
}

Status compare_pairs(const CompareOptions& options, const pair::CheckpointSide& golden,
                     const pair::CheckpointSide& mine, const GgufSide* golden_gguf,
                     const GgufSide* my_gguf, const std::vector<pair::WeightPair>& pairs,
                     Comparison* out) {
  WeightComparer comparer(golden, mine, golden_gguf, my_gguf, options);
  std::vector<Row>& rows = out->sheets[0].rows;
  rows.resize(pairs.size());
  ASSAY_TRY_STATUS(for_each_pair(
      pairs.size(), options,
      [&](size_t i) {
        return float_bytes(golden.record_of(golden.weights()[pairs[i].golden])) +
               float_bytes(mine.record_of(mine.weights()[pairs[i].mine]));
      },
      [&](size_t i, int threads) { rows[i] = comparer.compare(pairs[i], threads); }));
  out->compared_bytes = comparer.compared_bytes();
  return {};
}

bool is_gguf_run(const run::Run& run) { return run.has(run::Trait::GgufNames); }

}  // namespace

Result<Checkpoints> open_checkpoints(const std::string& golden_path, const std::string& my_path,
                                     const CompareOptions& options) {
  Checkpoints out;
  ASSAY_TRY(out.golden, run::open_checkpoint(golden_path));
  const bool as_stored = options.conventions.weight_pairs != nullptr;
  ASSAY_TRY(out.mine, run::open_checkpoint(my_path, as_stored));
  if (as_stored || is_gguf_run(out.golden) == is_gguf_run(out.mine)) return out;
  if (is_gguf_run(out.golden)) {
    take_experts_apart(&out.golden, &out.mine);
  } else {
    take_experts_apart(&out.mine, &out.golden);
  }
  return out;
}

Result<Comparison> compare_weights(const run::Run& golden_run, const run::Run& mine_run,
                                   const CompareOptions& options) {
  const Conventions& conventions = options.conventions;
  const bool as_stored = conventions.weight_pairs != nullptr;
  Comparison out = begin_comparison(golden_run, mine_run, options);
  out.weights = true;
  out.warnings = golden_run.warnings;
  out.warnings.insert(out.warnings.end(), mine_run.warnings.begin(), mine_run.warnings.end());
  out.sheets.resize(1);
  Sheet& sheet = out.sheets[0];
  sheet.name = "weights";

  // A GGUF file against a checkpoint gets the checkpoint's names; two of them have their own.
  std::optional<GgufSide> golden_gguf;
  std::optional<GgufSide> my_gguf;
  if (is_gguf_run(golden_run) && !is_gguf_run(mine_run))
    golden_gguf = as_checkpoint(golden_run, mine_run);
  if (is_gguf_run(mine_run) && !is_gguf_run(golden_run))
    my_gguf = as_checkpoint(mine_run, golden_run);
  const pair::CheckpointSide golden(golden_gguf ? golden_gguf->run : golden_run, as_stored);
  pair::CheckpointSide mine(my_gguf ? my_gguf->run : mine_run, as_stored);
  const pair::WeightPairing pairing(golden, mine);
  const std::vector<pair::WeightPair> pairs =
      as_stored ? conventions.weight_pairs(golden, &mine) : pairing.pairs();
  for (const pair::WeightPair& pair : pairs) {
    sheet.matching.pairs.push_back({.golden = pair.golden, .mine = pair.mine, .rule = pair.rule});
  }
  if (!as_stored) list_unmatched(golden, mine, pairing, &sheet.matching);
  ASSAY_TRY_STATUS(compare_pairs(options, golden, mine, golden_gguf ? &*golden_gguf : nullptr,
                                 my_gguf ? &*my_gguf : nullptr, pairs, &out));
  set_orders(&sheet.rows);
  if (conventions.finish != nullptr) conventions.finish(golden_run, mine_run, &out);
  for (size_t i = 0; i < sheet.rows.size(); ++i) {
    sheet.rows[i].data_id = static_cast<int64_t>(i);
  }
  if (!conventions.trusting)
    out.gaps = find_gaps(golden_gguf ? golden_gguf->run : golden_run, mine_run, out, options);
  return out;
}

Result<Comparison> compare_weights(const std::string& golden_path, const std::string& my_path,
                                   const CompareOptions& options) {
  ASSAY_TRY(const Checkpoints sides, open_checkpoints(golden_path, my_path, options));
  return compare_weights(sides.golden, sides.mine, options);
}

}  // namespace assay::compare
