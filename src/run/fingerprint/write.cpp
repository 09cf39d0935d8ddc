// SPDX-License-Identifier: Apache-2.0
// A run becomes a fingerprint: records, values and operators of one step of one rank are a group of
// columns, and columns that several groups have are written once.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "base/numbers.hpp"
#include "base/text.hpp"
#include "formats/gzip.hpp"
#include "run/fingerprint/fingerprint.hpp"
#include "run/fingerprint/numbers.hpp"
#include "run/fingerprint/schema.hpp"
#include "run/load.hpp"
#include "run/logits.hpp"
#include "run/strided_payload.hpp"
#include "stats/whole_tensor.hpp"

namespace assay::run {
namespace {

using namespace fingerprint;  // NOLINT(google-build-using-namespace)
using nlohmann::json;

/// Of one group, by name.
using GroupColumns = std::map<std::string_view, std::vector<int64_t>>;
using GroupKey = std::pair<int, int64_t>;  // rank, step

bool is_float_tensor(const TensorRecord& record) { return record.dtype && is_float(*record.dtype); }

bool is_parameter_or_buffer(const TensorRecord& record) {
  return record.role == Role::Weight || record.role == Role::Buffer;
}

// ---- tables -------------------------------------------------------------------------------------

/// Numbers things in the order in which they are first asked for.
template <typename Key>
class Numbers {
 public:
  int64_t of(const Key& key) {
    const auto [found, is_new] = numbers_.try_emplace(key, static_cast<int64_t>(list_.size()));
    if (is_new) list_.push_back(key);
    return found->second;
  }
  [[nodiscard]] const std::vector<Key>& list() const { return list_; }

 private:
  std::map<Key, int64_t> numbers_;
  std::vector<Key> list_;
};

/// Type, shape and strides of a tensor, as JSON: null for what is not known, and for strides
/// without gaps.
std::string form_of(const TensorRecord& record) {
  const auto list = [](const std::optional<Dims>& dims) {
    return dims ? json(std::vector<int64_t>(dims->begin(), dims->end())) : json();
  };
  json strides = list(record.strides);
  if (record.shape && record.strides && *record.strides == contiguous_strides(*record.shape))
    strides = true;
  return json::array({record.dtype ? json(name(*record.dtype)) : json(), list(record.shape),
                      std::move(strides)})
      .dump();
}

/// The names of parameters, as the tree of modules has them: what else has a name is a buffer.
void collect_parameters(const TopologyNode& node, std::set<std::string>* names) {
  for (const auto& [name, type] : node.parameter_types)
    names->insert(node.name.empty() ? name : node.name + "." + name);
  for (const TopologyNode& child : node.children) collect_parameters(child, names);
}

json tree_json(const TopologyNode& node) {
  json object = {{"name", node.name}, {"type", node.type}};
  if (!node.source.empty()) object["source"] = node.source;
  if (node.exec_order) object["exec_order"] = *node.exec_order;
  json parameters = json::array();
  for (const auto& [name, dtype] : node.parameter_types)
    parameters.push_back({{"name", name}, {"dtype", dtype}});
  if (!parameters.empty()) object["parameters"] = std::move(parameters);
  json children = json::array();
  for (const TopologyNode& child : node.children) children.push_back(tree_json(child));
  object["children"] = std::move(children);
  return object;
}

// ---- properties ---------------------------------------------------------------------------------

/// The words of a command line, of paths outside the working folder only the last part.
std::string portable_program(const std::string& text) {
  json words = json::parse(text, nullptr, false);
  if (!words.is_array()) return {};
  for (json& word : words) {
    if (!word.is_string()) continue;
    const auto& full = word.get_ref<const std::string&>();
    if (full.starts_with('/')) word = full.substr(full.rfind('/') + 1);
  }
  return words.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// Versions and configuration; nothing of the machine and of the hour.
std::map<std::string, std::string> portable_properties(const Run& run) {
  std::map<std::string, std::string> kept;
  for (const auto& [name, text] : run.properties) {
    if (name == "host.program") {
      kept[name] = portable_program(text);
    } else if (name == "tool" || name == "host.torch" || name == "host.python" ||
               name == "host.transformers" || name == "host.threads" ||
               name.starts_with("config.")) {
      kept[name] = text;
    }
  }
  return kept;
}

// ---- values -------------------------------------------------------------------------------------

/// One tensor as the records name it: records with the same of all this are of one value.
using ValueKey = std::tuple<int, int64_t, std::string, uint64_t, std::string, int64_t, int64_t,
                            int64_t, std::string, std::string>;

struct Value {
  std::vector<size_t> records;  // of the run
  std::string form;
  int64_t has = 0;
  stats::TensorStats stats = {};
  stats::Digest digest = {};
  std::string kept = {};
  std::optional<TopChoices> choices = {};
};

class Writer {
 public:
  Writer(const Run& run, const FingerprintOptions& options) : run_(run), options_(options) {
    if (run.topology) collect_parameters(*run.topology, &parameters_);
    texts_.of("");
  }

  Result<FingerprintFile> write() {
    find_values();
    for (Value& value : values_) ASSAY_TRY_STATUS(complete(&value));
    json groups = json::array();
    for (const GroupKey& key : group_keys()) groups.push_back(group(key));
    FingerprintFile file = count();
    if (file.operators + file.statistics + file.weights == 0)
      return fail(Errc::Invalid,
                  "there is nothing to keep: no statistics, no operators, no weights");
    json document = head();
    document[key::kGroups] = std::move(groups);
    add_tables(&document);
    ASSAY_TRY(file.bytes,
              formats::gzip(document.dump(-1, ' ', false, json::error_handler_t::replace) + "\n"));
    return file;
  }

 private:
  // ---- which values there are, and what is kept of them

  /// Where its bytes lay is nothing of a value.
  static InternedText memory_of(const TensorRecord& record) {
    return has_plain_values(record) ? InternedText() : record.memory_format;
  }

  ValueKey key_of(size_t index) const {
    const TensorRecord& record = run_.records[index];
    // Without ids the same bytes are the same value; without bytes each is one for itself.
    std::string file;
    uint64_t place = index;
    if (record.value_id < 0 && record.bytes) {
      file = record.bytes->file + ":" + record.bytes->member;
      place = record.bytes->offset;
      if (is_strided(record)) file += ":" + std::to_string(record.strides.handle());
    } else if (record.value_id >= 0) {
      place = 0;
    }
    return {record.rank,
            record.value_id,
            file,
            place,
            form_of(record),
            record.storage_id,
            record.storage_offset,
            record.storage_version,
            record.leaf,
            memory_of(record)};
  }

  void find_values() {
    std::map<ValueKey, size_t> known;
    value_of_.assign(run_.records.size(), 0);
    for (size_t i = 0; i < run_.records.size(); ++i) {
      if (!is_written(i) || !run_.records[i].value.empty()) continue;
      const auto [found, is_new] = known.try_emplace(key_of(i), values_.size());
      if (is_new) values_.push_back({{}, form_of(run_.records[i])});
      values_[found->second].records.push_back(i);
      value_of_[i] = found->second;
    }
  }

  [[nodiscard]] bool is_written(size_t index) const {
    const TensorRecord& record = run_.records[index];
    return record.kind == RecordKind::Operand && (options_.program || !record.is_of_operator());
  }

  [[nodiscard]] bool any_of(const Value& value, auto is) const {
    return std::ranges::any_of(value.records, [&](size_t i) { return is(run_.records[i]); });
  }

  /// Statistics of what modules return and are given: exact ones of integers, and of parameters,
  /// since limits for equal types are narrow; the digest of what somebody else may have the values of.
  Status complete(Value* value) {
    const TensorRecord& first = run_.records[value->records.front()];
    const bool is_captured_weight = any_of(*value, is_parameter_or_buffer);
    const bool is_of_module = any_of(*value, [](const TensorRecord& record) {
      return !record.is_of_operator() && record.kind == RecordKind::Operand;
    });
    ASSAY_TRY_STATUS(keep(value));
    if (options_.statistics && is_of_module)
      ASSAY_TRY_STATUS(add_statistics(value, is_captured_weight || !is_float_tensor(first)));
    ASSAY_TRY_STATUS(add_choices(value));
    const bool is_given = any_of(*value, [](const TensorRecord& record) {
      return record.role == Role::Input && record.producer < 0;
    });
    if ((value->has & kIsKept) == 0 &&
        (is_weight(*value) || (is_of_module && !has_program()) || is_given))
      ASSAY_TRY_STATUS(add_digest(value));
    return {};
  }

  [[nodiscard]] bool is_weight(const Value& value) const {
    return any_of(value, [](const TensorRecord& record) {
      return is_parameter_or_buffer(record) || !record.leaf.empty();
    });
  }

  [[nodiscard]] bool has_program() const { return options_.program && !run_.operations.empty(); }

  /// The record of the value that has its bytes; null: none has.
  [[nodiscard]] const TensorRecord* stored(const Value& value) const {
    for (const size_t i : value.records) {
      const TensorRecord& record = run_.records[i];
      if (record.bytes && record.problem.empty()) return &record;
    }
    return nullptr;
  }

  Status add_statistics(Value* value, bool exact) {
    const auto with_stats = std::ranges::find_if(
        value->records, [&](size_t i) { return run_.records[i].stats.has_value(); });
    if (with_stats != value->records.end()) {
      value->stats = *run_.records[*with_stats].stats;
    } else if (const TensorRecord* record = stored(*value)) {
      ASSAY_TRY(const Tensor tensor, load_tensor(*record));
      value->stats = stats::statistics_of(tensor.view);
    } else {
      return {};
    }
    value->has |= exact || !can_be_rounded(value->stats) ? kHasExact : kHasRounded;
    if (value->stats.sketch) value->has |= kHasSketch;
    return {};
  }

  /// Of logits: what near ties are told by.
  Status add_choices(Value* value) {
    const auto is_logits = [this](const TensorRecord& record) {
      return !record.is_of_operator() && logits_rank(run_, record) > 0;
    };
    if (!any_of(*value, is_logits)) return {};
    for (const size_t i : value->records) {
      if (const TopChoices* known = run_.records[i].choices()) value->choices = *known;
    }
    if (const TensorRecord* record = stored(*value)) {
      ASSAY_TRY(const Tensor tensor, load_tensor(*record));
      value->choices = top_choices(tensor.view);
    }
    if (value->choices) value->has |= kHasChoices;
    return {};
  }

  Status add_digest(Value* value) {
    for (const size_t i : value->records) {
      if (!run_.records[i].digest) continue;
      value->digest = *run_.records[i].digest;
      value->has |= kHasDigest;
      return {};
    }
    const TensorRecord* record = stored(*value);
    if (record == nullptr) record = in_checkpoint(run_.records[value->records.front()]);
    if (record == nullptr || !has_plain_values(*record)) return {};
    ASSAY_TRY(const Tensor tensor, load_tensor(*record));
    value->digest = stats::digest_of(tensor.view);
    value->has |= kHasDigest;
    return {};
  }

  /// The tensor of that name, type and shape.
  [[nodiscard]] const TensorRecord* in_checkpoint(const TensorRecord& leaf) const {
    if (options_.checkpoint == nullptr) return nullptr;
    const std::string own = leaf.node.empty() ? leaf.slot.str() : leaf.node + "." + leaf.slot;
    const std::string& wanted = leaf.leaf.empty() ? own : leaf.leaf.str();
    for (const TensorRecord& record : options_.checkpoint->records) {
      if ((record.node == wanted || record.slot == wanted) && record.dtype == leaf.dtype &&
          record.shape == leaf.shape)
        return &record;
    }
    return nullptr;
  }

  /// What no checkpoint has: integers, what no operator made, buffers.
  [[nodiscard]] bool may_be_kept(const Value& value) const {
    const TensorRecord& first = run_.records[value.records.front()];
    if (!first.dtype || !first.shape || !has_plain_values(first)) return false;
    if (info(*first.dtype).element_bits % 8 != 0) return false;
    if (any_of(value, [](const TensorRecord& one) { return one.role == Role::Weight; }))
      return false;
    if (!first.leaf.empty())  // a tree that lists no parameter does not tell
      return !parameters_.empty() && !parameters_.contains(first.leaf) && is_unmade(value);
    return !is_float_tensor(first) || is_unmade(value);
  }

  /// It was there before the first operator that has it: some return what they were given.
  [[nodiscard]] bool is_unmade(const Value& value) const {
    const TensorRecord& first = run_.records[value.records.front()];
    return first.producer < 0 && first.role != Role::Output;
  }

  Status keep(Value* value) {
    const TensorRecord* record = stored(*value);
    if (record == nullptr || !may_be_kept(*value)) return {};
    const size_t element = info(*record->dtype).element_bits / 8;
    ASSAY_TRY(const Tensor tensor, load_tensor(*record));
    if (!tensor.view.is_contiguous() || tensor.view.conjugate || tensor.view.negative) return {};
    const std::string_view bytes = as_text(tensor.view.contiguous_bytes());
    if (is_repeated(bytes, element)) {
      value->kept = bytes.substr(0, element);
    } else if (bytes.size() <= kMostKeptBytes) {
      value->kept = bytes;
    } else {
      return {};
    }
    value->has |= kIsKept;
    return {};
  }

  static bool is_repeated(std::string_view bytes, size_t element) {
    return bytes.size() > element &&
           bytes.substr(element) == bytes.substr(0, bytes.size() - element);
  }

  // ---- groups

  [[nodiscard]] std::vector<GroupKey> group_keys() const {
    std::set<GroupKey> keys;
    for (size_t i = 0; i < run_.records.size(); ++i)
      if (is_written(i)) keys.emplace(run_.records[i].rank, run_.records[i].step);
    if (options_.program) {
      for (const OperationRecord& one : run_.operations) keys.emplace(one.rank, one.step);
    }
    return {keys.begin(), keys.end()};
  }

  /// Records and operators stand in the order of groups.
  json group(const GroupKey& key) {
    columns_.clear();
    operators_.clear();
    values_here_ = {};
    forms_here_ = {};
    arguments_here_ = {};
    place_ = rows_;
    for (; next_record_ < run_.records.size() && is_of(run_.records[next_record_], key);
         ++next_record_) {
      add_operations(key, next_record_);
      if (is_written(next_record_)) add_record(next_record_);
    }
    add_operations(key, run_.records.size());
    ++groups_;
    json columns = json::object();
    for (const auto& [name, list] : columns_) columns[std::string(name)] = lists_.of(list);
    return {{key::kRank, key.first}, {key::kStep, key.second}, {key::kColumns, columns}};
  }

  static bool is_of(const auto& one, const GroupKey& key) {
    return GroupKey(one.rank, one.step) == key;
  }

  /// Those of the group that began before a record.
  void add_operations(const GroupKey& key, size_t record) {
    if (!options_.program) return;
    for (;
         next_operation_ < run_.operations.size() && is_of(run_.operations[next_operation_], key) &&
         run_.operations[next_operation_].order <= record;
         ++next_operation_)
      add_operation(run_.operations[next_operation_]);
  }

  void put(std::string_view name, int64_t number) { columns_[name].push_back(number); }

  void add_operation(const OperationRecord& one) {
    put(column::kOperatorType, texts_.of(one.op_type));
    put(column::kOperatorModule, texts_.of(one.module));
    put(column::kOperatorCall, one.module_call);
    put(column::kOperatorNumber, number_in_node(one));
    put(column::kOperatorPlace, static_cast<int64_t>(rows_ - place_));
    place_ = rows_;
    const int64_t arguments = texts_.of(one.parameters);
    const int64_t code = arguments_here_.code_of(arguments);
    // Counted from the front: most operators are one of few.
    put(column::kArguments, code == 0 ? 0 : arguments_here_.size() - code + 1);
    if (code == 0) put(column::kNewArguments, arguments);
    put(column::kWritten, texts_.of(one.writes.empty() ? "" : json(one.writes).dump()));
    operators_.push_back(&one);
  }

  /// The last number of "module::aten.mul.Tensor.1"; of another node the number of its text, below
  /// zero.
  int64_t number_in_node(const OperationRecord& one) {
    const std::string start = one.module + std::string(kOperatorMark) + one.op_type + ".";
    if (one.node.starts_with(start)) {
      const auto number = parse_number<uint32_t>(std::string_view(one.node).substr(start.size()));
      if (number && start + std::to_string(*number) == one.node) return *number;
    }
    return -1 - texts_.of(one.node);
  }

  /// How many operators ago the one was that the record belongs to, from 1; 0: to none.
  [[nodiscard]] int64_t operator_of(const TensorRecord& record) const {
    constexpr size_t kReach = 64;
    for (size_t back = 1; back <= std::min(operators_.size(), kReach); ++back) {
      const OperationRecord& one = *operators_[operators_.size() - back];
      if (one.node == record.node && one.op_type == record.op_type &&
          one.module_call == record.call)
        return static_cast<int64_t>(back);
    }
    return 0;
  }

  void add_record(size_t index) {
    const TensorRecord& record = run_.records[index];
    const int64_t of = operator_of(record);
    put(column::kOf, of);
    if (of == 0) {
      put(column::kNode, texts_.of(record.node));
      put(column::kType, texts_.of(record.op_type));
      put(column::kCall, record.call);
    }
    put(column::kRole, static_cast<int64_t>(record.role));
    put(column::kSlot, texts_.of(record.slot));
    const State state = !record.value.empty()     ? State::Value
                        : record.not_captured     ? State::NotCaptured
                        : !record.problem.empty() ? State::Problem
                                                  : State::Tensor;
    put(column::kState, static_cast<int64_t>(state));
    if (state != State::Tensor)
      put(column::kText, texts_.of(state == State::Value ? record.value : record.problem));
    if (state != State::Value) add_value(index);
    row_of_[index] = static_cast<int64_t>(rows_++);
  }

  void add_value(size_t index) {
    const TensorRecord& record = run_.records[index];
    const size_t number = value_of_[index];
    const int64_t code = values_here_.code_of(number);
    put(column::kValue, code);
    if (code == 0) {
      const auto known = written_.find(number);
      put(column::kKnown, known == written_.end() ? 0 : known->second + 1);
      if (known == written_.end()) add_new_value(number, record);
    }
    put(column::kFrom, maker_code(record));
    if (record.role == Role::Output && record.is_of_operator() && record.value_id >= 0)
      makers_[record.rank].see_output(record.value_id, static_cast<int64_t>(rows_), groups_);
  }

  int64_t maker_code(const TensorRecord& record) {
    if (record.producer < 0) return kNoMaker;
    const auto row = row_of_.find(static_cast<size_t>(record.producer));
    if (row == row_of_.end()) return kNoMaker;  // it was left out
    if (record.value_id >= 0 && makers_[record.rank].maker_of(record.value_id) == row->second)
      return kUsualMaker;
    return static_cast<int64_t>(rows_) - row->second + kMakerBefore;
  }

  void add_new_value(size_t number, const TensorRecord& record) {
    const Value& value = values_[number];
    written_.emplace(number, static_cast<int64_t>(written_.size()));
    order_.push_back(number);
    const int64_t form = forms_here_.code_of(value.form);
    put(column::kForm, form == 0 ? 0 : forms_here_.size() - form + 1);
    if (form == 0) put(column::kNewForm, forms_.of(value.form));
    const auto id_code = [&](std::map<int, BackReferences<int64_t>>& ids, int64_t id) {
      return id < 0 ? -1 : ids[record.rank].code_of(id);
    };
    put(column::kId, id_code(ids_, record.value_id));
    put(column::kStorage, id_code(storages_, record.storage_id));
    put(column::kOffset, record.storage_offset);
    put(column::kWrites, record.storage_version);
    put(column::kLeaf, texts_.of(record.leaf));
    put(column::kMemory, texts_.of(memory_of(record)));
    put(column::kHas, value.has);
    if (value.choices) put(column::kRows, static_cast<int64_t>(value.choices->rows.size()));
    if ((value.has & (kHasRounded | kHasExact)) == 0) return;
    put(column::kCount, value.stats.count);
    put(column::kNan, value.stats.nan_count);
    put(column::kPositiveInf, value.stats.positive_inf_count);
    put(column::kNegativeInf, value.stats.negative_inf_count);
  }

  // ---- the document

  [[nodiscard]] json head() const {
    json missed = json::array();
    for (const native::MissedNode& one : run_.coverage.missed)
      missed.push_back({{"node", one.node}, {"reason", one.reason}, {"count", one.count}});
    json document = {{key::kFormat, fingerprint::kFormat},
                     {key::kVersion, fingerprint::kVersion},
                     {key::kProperties, portable_properties(run_)},
                     {key::kCoverage,
                      {{"planned", run_.coverage.planned},
                       {"captured", run_.coverage.captured},
                       {"missed", std::move(missed)}}},
                     {key::kFindings, run_.findings}};
    if (run_.topology) document[key::kTopology] = tree_json(*run_.topology);
    if (!options_.floors.empty())
      document[key::kFloors] = json::parse(options_.floors, nullptr, false);
    return document;
  }

  void add_tables(json* document) const {
    std::vector<stats::TensorStats> rounded, exact;
    std::string digests;
    json kept = json::array();
    json tokens = json::array();
    std::string logits;
    for (const size_t number : order_) {
      const Value& value = values_[number];
      if ((value.has & kHasRounded) != 0) rounded.push_back(value.stats);
      if ((value.has & kHasExact) != 0) exact.push_back(value.stats);
      if ((value.has & kIsKept) != 0) kept.push_back(base64(value.kept));
      if (value.choices) append_choices(*value.choices, &tokens, &logits);
      if ((value.has & kHasDigest) == 0) continue;
      append(digests, value.digest.high);
      append(digests, value.digest.low);
    }
    json forms = json::array();
    for (const std::string& form : forms_.list()) forms.push_back(json::parse(form));
    (*document)[key::kTexts] = texts_.list();
    (*document)[key::kForms] = std::move(forms);
    (*document)[key::kLists] = lists_.list();
    (*document)[key::kKept] = std::move(kept);
    (*document)[key::kDigests] = base64(digests);
    (*document)[key::kChoices] = {{key::kTokens, std::move(tokens)},
                                  {key::kLogits, base64(logits)}};
    (*document)[key::kRounded] = columns_json(pack_rounded(rounded));
    (*document)[key::kExact] = columns_json(pack_exact(exact));
  }

  /// The number of tokens of each row, then these.
  static void append_choices(const TopChoices& choices, json* tokens, std::string* logits) {
    for (const std::vector<Choice>& row : choices.rows) {
      tokens->push_back(row.size());
      for (const Choice& one : row) {
        tokens->push_back(one.token);
        append(*logits, one.logit);
      }
    }
  }

  static json columns_json(const fingerprint::Columns& columns) {
    return {{key::kL2, base64(columns.l2)},       {key::kMin, base64(columns.min)},
            {key::kMax, base64(columns.max)},     {key::kMean, base64(columns.mean)},
            {key::kScale, base64(columns.scale)}, {key::kSketch, base64(columns.sketches)}};
  }

  [[nodiscard]] FingerprintFile count() const {
    FingerprintFile file;
    std::set<int64_t> steps;
    for (const GroupKey& key : group_keys())
      if (key.second >= 0) steps.insert(key.second);
    file.steps = steps.size();
    file.operators = options_.program ? run_.operations.size() : 0;
    for (const size_t number : order_) {
      const Value& value = values_[number];
      file.statistics += (value.has & (kHasRounded | kHasExact)) != 0;
      file.kept += (value.has & kIsKept) != 0;
      file.weights += (value.has & kHasDigest) != 0 && is_weight(value);
    }
    return file;
  }

  const Run& run_;
  const FingerprintOptions& options_;
  std::set<std::string> parameters_;
  std::vector<Value> values_;
  std::vector<size_t> value_of_;  // by record
  Numbers<std::string> texts_;
  Numbers<std::string> forms_;
  Numbers<std::vector<int64_t>> lists_;
  std::map<size_t, int64_t> written_;  // values, by their number; its place among the written ones
  std::vector<size_t> order_;          // of the written values
  std::map<size_t, int64_t> row_of_;   // by record of the run
  std::map<int, BackReferences<int64_t>> ids_, storages_;  // by rank
  std::map<int, Makers> makers_;
  size_t rows_ = 0;
  size_t groups_ = 0;
  size_t next_record_ = 0;     // of the run
  size_t next_operation_ = 0;  // of the run
  // Of the group that is being written:
  GroupColumns columns_;
  size_t place_ = 0;  // the row behind the last operator
  std::vector<const OperationRecord*> operators_;
  BackReferences<size_t> values_here_;
  BackReferences<std::string> forms_here_;
  BackReferences<int64_t> arguments_here_;
};

Status check(const Run& run) {
  if (!run.has(Trait::AtenOperators) || run.has_own_engine())
    return fail(Errc::Unsupported,
                "is a " + std::string(layout_title(run.layout)) +
                    (run.has_own_engine() ? " of another engine than PyTorch" : "") +
                    "; a fingerprint is made of a run of PyTorch that assay dump or "
                    "assay.capture wrote");
  if (const std::string damage = run.first_damage(); !damage.empty())
    return fail(Errc::Invalid, "is damaged: " + damage);
  if (run.coverage.lost > 0)
    return fail(Errc::Invalid, "its capture lost " + counted(run.coverage.lost, "tensor"));
  if (!run.coverage.complete) return fail(Errc::Invalid, "its capture did not finish");
  return {};
}

}  // namespace

Result<FingerprintFile> make_fingerprint(const Run& run, const FingerprintOptions& options) {
  ASSAY_TRY_STATUS(in_file(run.path, check(run)));
  ASSAY_TRY(FingerprintFile file, in_file(run.path, Writer(run, options).write()));
  // Payloads were held against their records while they were read.
  ASSAY_TRY_STATUS(in_file(run.path, check(run)));
  ASSAY_TRY_STATUS(open_fingerprint(as_bytes(file.bytes), run.path));
  return file;
}

}  // namespace assay::run
