// SPDX-License-Identifier: Apache-2.0
// A fingerprint becomes the run that it was made of, without most of its values. Nothing in the
// file is trusted: what comes out is bounded, and so is every number.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/text.hpp"
#include "formats/gzip.hpp"
#include "formats/json_fields.hpp"
#include "run/fingerprint/fingerprint.hpp"
#include "run/fingerprint/numbers.hpp"
#include "run/fingerprint/schema.hpp"
#include "stats/digest.hpp"

namespace assay::run {
namespace {

using namespace fingerprint;  // NOLINT(google-build-using-namespace)
using formats::member;
using nlohmann::json;

constexpr uint64_t kMostJsonBytes = uint64_t{1} << 27;  // of a file; one of a large model has 1e7
constexpr size_t kMostRows = size_t{1} << 21;           // records, and operators
constexpr size_t kMostAxes = 64;
/// Of names and arguments in all records and operators together.
constexpr uint64_t kMostTextBytes = uint64_t{1} << 28;
/// Elements of a tensor that is kept as one value.
constexpr int64_t kMostRepeated = int64_t{1} << 26;
constexpr size_t kDigestBytes = 16;
constexpr int64_t kMostId = INT32_MAX;

using Numbers = std::vector<int64_t>;

Error wrong(std::string_view what, const std::string& how) {
  return {Errc::Invalid, {}, std::nullopt, std::string(what) + ": " + how};
}

// ---- JSON ---------------------------------------------------------------------------------------

std::optional<int64_t> whole(const json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    return std::nullopt;
  return value.get<int64_t>();
}

Result<Numbers> whole_numbers(const json& list, std::string_view what) {
  if (!list.is_array()) return fail(wrong(what, "is no list"));
  Numbers numbers;
  numbers.reserve(list.size());
  for (const json& item : list) {
    const std::optional<int64_t> number = whole(item);
    if (!number) return fail(wrong(what, "an item is no whole number"));
    numbers.push_back(*number);
  }
  return numbers;
}

Result<const json*> list_of(const json& object, const char* key) {
  const json* list = member(object, key);
  if (list == nullptr || !list->is_array()) return fail(wrong(key, "is no list"));
  return list;
}

Result<std::string> bytes_of(const json& object, const char* key) {
  const json* text = member(object, key);
  std::optional<std::string> bytes;
  if (text != nullptr && text->is_string())
    bytes = from_base64(text->get_ref<const std::string&>());
  if (!bytes) return fail(wrong(key, "is no base64"));
  return *std::move(bytes);
}

// ---- kept tensors -------------------------------------------------------------------------------

/// A tensor whose bytes stand in the fingerprint, or one element of them when all are the same.
class KeptTensor : public MadeTensor {
 public:
  KeptTensor(DType dtype, Dims shape, std::string bytes)
      : dtype_(dtype),
        shape_(std::move(shape)),
        bytes_(std::make_shared<const std::string>(std::move(bytes))) {}

  [[nodiscard]] Result<Tensor> make() const override {
    const int64_t count = element_count(shape_).value_or(0);
    const bool is_repeated = count > 1 && bytes_->size() * 8 == info(dtype_).element_bits;
    Dims strides = contiguous_strides(shape_);
    if (is_repeated) std::fill_n(strides.data(), strides.size(), 0);
    ASSAY_TRY(const TensorView view, make_view(dtype_, shape_, strides, as_bytes(*bytes_)));
    return Tensor{view, bytes_};
  }

 private:
  DType dtype_;
  Dims shape_;
  std::shared_ptr<const std::string> bytes_;
};

// ---- tables -------------------------------------------------------------------------------------

struct Form {
  std::optional<DType> dtype;
  std::optional<Dims> shape;
  std::optional<Dims> strides;
};

Result<std::optional<Dims>> dims_of(const json& list, std::string_view what) {
  if (list.is_null()) return std::optional<Dims>();
  ASSAY_TRY(const Numbers numbers, whole_numbers(list, what));
  if (numbers.size() > kMostAxes) return fail(wrong(what, "has more than 64 axes"));
  return std::optional(Dims(std::span<const int64_t>(numbers)));
}

Result<Form> form_of(const json& item) {
  if (!item.is_array() || item.size() != 3)
    return fail(wrong(key::kForms, "an item is not type, shape and strides"));
  Form form;
  if (item[0].is_string()) {
    form.dtype = dtype_from_name(item[0].get_ref<const std::string&>());
    if (!form.dtype) return fail(wrong(key::kForms, "a type is not known"));
  }
  ASSAY_TRY(form.shape, dims_of(item[1], key::kForms));
  if (form.shape && !element_count(*form.shape))
    return fail(wrong(key::kForms, "a shape is impossible"));
  if (item[2] == json(true)) {
    if (form.shape) form.strides = contiguous_strides(*form.shape);
  } else {
    ASSAY_TRY(form.strides, dims_of(item[2], key::kForms));
  }
  if (form.shape && form.strides && form.shape->size() != form.strides->size())
    return fail(wrong(key::kForms, "strides of another number than axes"));
  return form;
}

struct Tables {
  std::vector<std::string> texts;
  std::vector<Form> forms;
  std::vector<Numbers> lists;
  std::vector<std::string> kept;
  std::string digests;
  Numbers tokens;      // of choices
  std::string logits;  // float64
};

Result<Tables> tables_of(const json& document) {
  Tables tables;
  ASSAY_TRY(const json* texts, list_of(document, key::kTexts));
  for (const json& text : *texts) {
    if (!text.is_string()) return fail(wrong(key::kTexts, "an item is no text"));
    tables.texts.push_back(text.get<std::string>());
  }
  ASSAY_TRY(const json* forms, list_of(document, key::kForms));
  for (const json& item : *forms) {
    ASSAY_TRY(Form form, form_of(item));
    tables.forms.push_back(std::move(form));
  }
  ASSAY_TRY(const json* lists, list_of(document, key::kLists));
  for (const json& list : *lists) {
    ASSAY_TRY(Numbers numbers, whole_numbers(list, key::kLists));
    tables.lists.push_back(std::move(numbers));
  }
  ASSAY_TRY(const json* kept, list_of(document, key::kKept));
  for (const json& item : *kept) {
    std::optional<std::string> bytes;
    if (item.is_string()) bytes = from_base64(item.get_ref<const std::string&>());
    if (!bytes) return fail(wrong(key::kKept, "an item is no base64"));
    tables.kept.push_back(*std::move(bytes));
  }
  ASSAY_TRY(tables.digests, bytes_of(document, key::kDigests));
  const json* choices = member(document, key::kChoices);
  if (choices == nullptr) return fail(wrong(key::kChoices, "is missing"));
  ASSAY_TRY(const json* tokens, list_of(*choices, key::kTokens));
  ASSAY_TRY(tables.tokens, whole_numbers(*tokens, key::kTokens));
  ASSAY_TRY(tables.logits, bytes_of(*choices, key::kLogits));
  return tables;
}

/// One column of a group, read from its front.
class Column {
 public:
  Column(std::string_view name, const Numbers* list) : name_(name), list_(list) {}

  /// errors  Invalid: at its end, or a number that is not in [low, high]
  Result<int64_t> next(int64_t low, int64_t high) {
    if (list_ == nullptr || at_ == list_->size()) return fail(wrong(name_, "ends too early"));
    const int64_t number = (*list_)[at_++];
    if (number < low || number > high)
      return fail(wrong(name_, "holds " + std::to_string(number) + ", which means nothing there"));
    return number;
  }
  /// A place in a table.
  template <typename Item>
  Result<const Item*> next_of(const std::vector<Item>& table) {
    ASSAY_TRY(const int64_t at, next(0, static_cast<int64_t>(table.size()) - 1));
    return &table[static_cast<size_t>(at)];
  }
  [[nodiscard]] size_t size() const { return list_ == nullptr ? 0 : list_->size(); }
  [[nodiscard]] bool is_read() const { return at_ == size(); }
  [[nodiscard]] std::string_view name() const { return name_; }

 private:
  std::string_view name_;
  const Numbers* list_;
  size_t at_ = 0;
};

/// The columns of a group; one that it has none of is empty.
class GroupColumns {
 public:
  static Result<GroupColumns> make(const json& group, const std::vector<Numbers>& lists) {
    GroupColumns columns;
    const json* named = member(group, key::kColumns);
    if (named == nullptr || !named->is_object()) return fail(wrong(key::kColumns, "is no object"));
    for (const auto& [name, number] : named->items()) {
      const std::optional<int64_t> at = whole(number);
      if (!at || *at < 0 || static_cast<size_t>(*at) >= lists.size())
        return fail(wrong(name, "names no list"));
      columns.lists_.emplace(name, &lists[static_cast<size_t>(*at)]);
    }
    return columns;
  }
  Column& operator[](std::string_view name) {
    const auto found = columns_.find(name);
    if (found != columns_.end()) return found->second;
    const auto list = lists_.find(name);
    return columns_.emplace(name, Column(name, list == lists_.end() ? nullptr : list->second))
        .first->second;
  }
  [[nodiscard]] Status check_read() const {
    for (const auto& [name, column] : columns_)
      if (!column.is_read()) return fail(wrong(name, "is longer than the others"));
    return {};
  }

 private:
  std::map<std::string, const Numbers*, std::less<>> lists_;
  std::map<std::string_view, Column> columns_;
};

// ---- the run ------------------------------------------------------------------------------------

/// What all records of a value have in common, in a record.
struct Value {
  TensorRecord record;
  int64_t has = 0;
};

class Reader {
 public:
  Reader(const json& document, Tables tables, const std::string& path)
      : document_(document), tables_(std::move(tables)), path_(path) {}

  Result<Run> read() {
    run_.layout = Layout::Fingerprint;
    ASSAY_TRY(const json* groups, list_of(document_, key::kGroups));
    ASSAY_TRY_STATUS(check_counts(*groups));
    for (const json& group : *groups) ASSAY_TRY_STATUS(read_group(group));
    if (next_kept_ != tables_.kept.size() ||
        next_digest_ * kDigestBytes != tables_.digests.size() ||
        next_token_ != tables_.tokens.size() ||
        next_logit_ * sizeof(double) != tables_.logits.size())
      return fail(wrong(key::kKept, "values, digests or choices are left over"));
    ASSAY_TRY_STATUS(read_statistics(key::kRounded, kHasRounded, unpack_rounded));
    ASSAY_TRY_STATUS(read_statistics(key::kExact, kHasExact, unpack_exact));
    for (size_t i = 0; i < run_.records.size(); ++i) {
      if (value_of_[i]) run_.records[i].stats = values_[*value_of_[i]].record.stats;
    }
    ASSAY_TRY_STATUS(read_head());
    return std::move(run_);
  }

 private:
  /// Groups share columns, so there may be far more records than the file is long.
  [[nodiscard]] Status check_counts(const json& groups) const {
    size_t records = 0, operators = 0;
    for (const json& group : groups) {
      ASSAY_TRY(GroupColumns columns, GroupColumns::make(group, tables_.lists));
      records += columns[column::kOf].size();
      operators += columns[column::kOperatorType].size();
      if (records > kMostRows || operators > kMostRows)
        return fail(Errc::TooLarge, "more than 2097152 records or operators");
    }
    return {};
  }

  Status read_group(const json& group) {
    ASSAY_TRY(GroupColumns columns, GroupColumns::make(group, tables_.lists));
    const std::optional<int64_t> rank = whole(group.value(key::kRank, json()));
    const std::optional<int64_t> step = whole(group.value(key::kStep, json()));
    if (!rank || *rank < 0 || *rank > kMostId || !step || *step < -1 || *step > kMostId)
      return fail(wrong(key::kGroups, "a group without rank or step"));
    if (!groups_.emplace(*rank, *step).second)
      return fail(wrong(key::kGroups, "one step of a rank occurs twice"));
    rank_ = static_cast<int>(*rank);
    step_ = *step;
    first_operation_ = run_.operations.size();
    values_here_.clear();
    forms_here_.clear();
    ASSAY_TRY_STATUS(read_operations(&columns));
    const size_t rows = columns[column::kOf].size();
    size_t next_operation = first_operation_;
    for (size_t i = 0; i < rows; ++i) {
      while (next_operation < run_.operations.size() &&
             run_.operations[next_operation].order <= run_.records.size())
        ++next_operation;
      ASSAY_TRY_STATUS(read_record(next_operation, &columns));
    }
    return columns.check_read();
  }

  Status read_operations(GroupColumns* columns) {
    const size_t count = (*columns)[column::kOperatorType].size();
    std::vector<const std::string*> arguments;
    uint64_t place = run_.records.size();
    for (size_t i = 0; i < count; ++i) {
      OperationRecord one;
      ASSAY_TRY_STATUS(read_operation(columns, &arguments, &place, &one));
      run_.operations.push_back(std::move(one));
    }
    return {};
  }

  Status read_operation(GroupColumns* columns, std::vector<const std::string*>* arguments,
                        uint64_t* place, OperationRecord* one) {
    one->rank = rank_;
    one->step = step_;
    one->step_name = step_name();
    ASSAY_TRY(const std::string* type, (*columns)[column::kOperatorType].next_of(tables_.texts));
    ASSAY_TRY(const std::string* module,
              (*columns)[column::kOperatorModule].next_of(tables_.texts));
    ASSAY_TRY(const int64_t call, (*columns)[column::kOperatorCall].next(0, UINT32_MAX));
    ASSAY_TRY(const int64_t number, (*columns)[column::kOperatorNumber].next(
                                        -static_cast<int64_t>(tables_.texts.size()), UINT32_MAX));
    ASSAY_TRY(const int64_t further,
              (*columns)[column::kOperatorPlace].next(0, static_cast<int64_t>(kMostRows)));
    one->op_type = *type;
    one->module = *module;
    one->module_call = static_cast<uint32_t>(call);
    one->node = number < 0
                    ? tables_.texts[static_cast<size_t>(-1 - number)]
                    : *module + std::string(kOperatorMark) + *type + "." + std::to_string(number);
    one->order = *place += static_cast<uint64_t>(further);
    ASSAY_TRY(const int64_t known,
              (*columns)[column::kArguments].next(0, static_cast<int64_t>(arguments->size())));
    if (known == 0) {
      ASSAY_TRY(const std::string* text, (*columns)[column::kNewArguments].next_of(tables_.texts));
      arguments->push_back(text);
    }
    one->parameters =
        *(known == 0 ? arguments->back() : (*arguments)[static_cast<size_t>(known - 1)]);
    ASSAY_TRY(const std::string* writes, (*columns)[column::kWritten].next_of(tables_.texts));
    ASSAY_TRY_STATUS(take_text(one->node.size() + one->parameters.size() + writes->size()));
    return read_writes(*writes, one);
  }

  static Status read_writes(const std::string& text, OperationRecord* one) {
    if (text.empty()) return {};
    if (formats::json_nesting(text) > 1) return fail(wrong(column::kWritten, "is no list"));
    const json list = json::parse(text, nullptr, false);
    if (!list.is_array()) return fail(wrong(column::kWritten, "is no list"));
    for (const json& name : list) {
      if (!name.is_string()) return fail(wrong(column::kWritten, "an item is no text"));
      one->writes.push_back(name.get<std::string>());
    }
    return {};
  }

  [[nodiscard]] std::string step_name() const {
    return step_ < 0 ? "weights" : std::to_string(step_);
  }

  /// behind  the operator behind the last one that began
  Status read_record(size_t behind, GroupColumns* columns) {
    ASSAY_TRY(const int64_t of,
              (*columns)[column::kOf].next(0, static_cast<int64_t>(behind - first_operation_)));
    ASSAY_TRY(const int64_t role,
              (*columns)[column::kRole].next(0, static_cast<int64_t>(kRoleNames.size()) - 1));
    ASSAY_TRY(const std::string* slot, (*columns)[column::kSlot].next_of(tables_.texts));
    ASSAY_TRY(const int64_t state,
              (*columns)[column::kState].next(0, static_cast<int64_t>(State::Problem)));
    TensorRecord record;
    std::optional<size_t> value;
    if (static_cast<State>(state) != State::Value) {
      ASSAY_TRY(value, read_value(columns));
      record = values_[*value].record;
    }
    record.rank = rank_;
    record.step = step_;
    record.step_name = step_name();
    record.role = static_cast<Role>(role);
    record.slot = *slot;
    record.order = run_.records.size();
    if (of == 0) {
      ASSAY_TRY_STATUS(read_node(columns, &record));
    } else {
      const OperationRecord& operation = run_.operations[behind - static_cast<size_t>(of)];
      record.node = operation.node;
      record.op_type = operation.op_type;
      record.call = operation.module_call;
    }
    ASSAY_TRY_STATUS(read_state(static_cast<State>(state), columns, &record));
    if (value) ASSAY_TRY_STATUS(read_maker(columns, &record));
    ASSAY_TRY_STATUS(take_text(record.node.size() + record.op_type.size() + record.slot.size() +
                               record.leaf.size() + record.value.size() + record.problem.size()));
    run_.records.push_back(std::move(record));
    value_of_.push_back(value);
    return {};
  }

  /// A long text that many records have is many times as long here as in the file.
  Status take_text(uint64_t bytes) {
    text_bytes_ += bytes;
    if (text_bytes_ <= kMostTextBytes) return {};
    return fail(Errc::TooLarge, "names and arguments of more than 256 MiB");
  }

  Status read_node(GroupColumns* columns, TensorRecord* record) {
    ASSAY_TRY(const std::string* node, (*columns)[column::kNode].next_of(tables_.texts));
    ASSAY_TRY(const std::string* type, (*columns)[column::kType].next_of(tables_.texts));
    ASSAY_TRY(const int64_t call, (*columns)[column::kCall].next(0, UINT32_MAX));
    record->node = *node;
    record->op_type = *type;
    record->call = static_cast<uint32_t>(call);
    return {};
  }

  Status read_state(State state, GroupColumns* columns, TensorRecord* record) {
    if (state == State::Tensor) return {};
    ASSAY_TRY(const std::string* text, (*columns)[column::kText].next_of(tables_.texts));
    (state == State::Value ? record->value : record->problem) = *text;
    record->not_captured = state == State::NotCaptured;
    return {};
  }

  Status read_maker(GroupColumns* columns, TensorRecord* record) {
    const auto row = static_cast<int64_t>(run_.records.size());
    ASSAY_TRY(const int64_t code, (*columns)[column::kFrom].next(0, row + kMakerBefore));
    if (code == kUsualMaker) {
      record->producer = makers_[rank_].maker_of(record->value_id);
    } else if (code > kUsualMaker) {
      record->producer = row - (code - kMakerBefore);
    }
    if (code != kNoMaker &&
        (record->producer < 0 ||
         run_.records[static_cast<size_t>(record->producer)].role != Role::Output))
      return fail(wrong(column::kFrom, "a maker that is no output before it"));
    if (record->role == Role::Output && record->is_of_operator() && record->value_id >= 0)
      makers_[rank_].see_output(record->value_id, row, groups_.size());
    return {};
  }

  Result<size_t> read_value(GroupColumns* columns) {
    const auto here = static_cast<int64_t>(values_here_.size());
    ASSAY_TRY(const int64_t code, (*columns)[column::kValue].next(0, here));
    if (code > 0) return values_here_[static_cast<size_t>(*place_of_code(code, here))];
    ASSAY_TRY(const int64_t known,
              (*columns)[column::kKnown].next(0, static_cast<int64_t>(values_.size())));
    if (known == 0) ASSAY_TRY_STATUS(read_new_value(columns));
    values_here_.push_back(known == 0 ? values_.size() - 1 : static_cast<size_t>(known - 1));
    return values_here_.back();
  }

  Status read_new_value(GroupColumns* columns) {
    Value value;
    TensorRecord& record = value.record;
    ASSAY_TRY(const int64_t form,
              (*columns)[column::kForm].next(0, static_cast<int64_t>(forms_here_.size())));
    if (form == 0) {
      ASSAY_TRY(const Form* added, (*columns)[column::kNewForm].next_of(tables_.forms));
      forms_here_.push_back(added);
    }
    const Form& known =
        *(form == 0 ? forms_here_.back() : forms_here_[static_cast<size_t>(form - 1)]);
    record.dtype = known.dtype;
    record.shape = known.shape;
    record.strides = known.strides;
    ASSAY_TRY(record.value_id, read_id(&(*columns)[column::kId], &ids_[rank_]));
    ASSAY_TRY(record.storage_id, read_id(&(*columns)[column::kStorage], &storages_[rank_]));
    ASSAY_TRY(record.storage_offset, (*columns)[column::kOffset].next(0, INT64_MAX));
    ASSAY_TRY(record.storage_version, (*columns)[column::kWrites].next(0, INT64_MAX));
    ASSAY_TRY(const std::string* leaf, (*columns)[column::kLeaf].next_of(tables_.texts));
    ASSAY_TRY(const std::string* memory, (*columns)[column::kMemory].next_of(tables_.texts));
    record.leaf = *leaf;
    record.memory_format = *memory;
    ASSAY_TRY(value.has, (*columns)[column::kHas].next(0, kAllBits));
    ASSAY_TRY_STATUS(read_counts(columns, &value));
    if ((value.has & kHasChoices) != 0) ASSAY_TRY_STATUS(read_choices(columns, &record));
    if ((value.has & kHasDigest) != 0) ASSAY_TRY_STATUS(read_digest(&record));
    if ((value.has & kIsKept) != 0) ASSAY_TRY_STATUS(read_kept(&record));
    values_.push_back(std::move(value));
    return {};
  }

  /// Ids are given in order: `count` of them are known.
  static Result<int64_t> read_id(Column* column, int64_t* count) {
    ASSAY_TRY(const int64_t code, column->next(-1, *count));
    if (code < 0) return -1;
    const int64_t id = *place_of_code(code, *count);
    *count = std::max(*count, id + 1);
    return id;
  }

  static Status read_counts(GroupColumns* columns, Value* value) {
    if ((value->has & (kHasRounded | kHasExact)) == 0) return {};
    stats::TensorStats stats;
    ASSAY_TRY(stats.count, (*columns)[column::kCount].next(0, INT64_MAX));
    int64_t left = stats.count;
    for (const auto& [name, target] :
         {std::pair(column::kNan, &stats.nan_count),
          std::pair(column::kPositiveInf, &stats.positive_inf_count),
          std::pair(column::kNegativeInf, &stats.negative_inf_count)}) {
      ASSAY_TRY(*target, (*columns)[name].next(0, left));
      left -= *target;
    }
    if ((value->has & kHasSketch) != 0) stats.sketch.emplace();
    value->record.stats = stats;
    return {};
  }

  Status read_choices(GroupColumns* columns, TensorRecord* record) {
    if (!record->shape || record->shape->empty())
      return fail(wrong(key::kChoices, "of a tensor without axes"));
    TopChoices choices;
    choices.vocabulary = record->shape->span().back();
    ASSAY_TRY(const int64_t rows, (*columns)[column::kRows].next(1, INT32_MAX));
    for (int64_t i = 0; i < rows; ++i) {
      ASSAY_TRY(std::vector<Choice> row, read_row(choices.vocabulary));
      choices.rows.push_back(std::move(row));
    }
    record->set_choices(std::make_shared<const TopChoices>(std::move(choices)));
    return {};
  }

  /// The number of tokens, then these; their logits stand elsewhere, the largest first.
  Result<std::vector<Choice>> read_row(int64_t vocabulary) {
    const size_t left = tables_.tokens.size() - next_token_;
    const int64_t count = left > 0 ? tables_.tokens[next_token_++] : 0;
    if (count < 2 || std::cmp_greater_equal(count, left))
      return fail(wrong(key::kTokens, "a row of another size"));
    std::vector<Choice> row;
    for (int64_t i = 0; i < count; ++i) {
      const size_t at = sizeof(double) * next_logit_++;
      if (at + sizeof(double) > tables_.logits.size())
        return fail(wrong(key::kLogits, "ends too early"));
      row.push_back({tables_.tokens[next_token_++], load<double>(tables_.logits.data() + at)});
      const bool is_token = row.back().token >= 0 && row.back().token < vocabulary;
      if (!is_token || std::isnan(row.back().logit) ||
          (i > 0 && row[row.size() - 2].logit < row.back().logit))
        return fail(wrong(key::kChoices, "no token, or not the next largest logit"));
    }
    return row;
  }

  Status read_digest(TensorRecord* record) {
    const size_t at = kDigestBytes * next_digest_++;
    if (at + kDigestBytes > tables_.digests.size())
      return fail(wrong(key::kDigests, "ends too early"));
    record->digest = stats::Digest{load<uint64_t>(tables_.digests.data() + at),
                                   load<uint64_t>(tables_.digests.data() + at + 8)};
    return {};
  }

  Status read_kept(TensorRecord* record) {
    if (next_kept_ == tables_.kept.size()) return fail(wrong(key::kKept, "ends too early"));
    std::string bytes = tables_.kept[next_kept_];
    if (!record->dtype || !record->shape)
      return fail(wrong(key::kKept, "a value without type or shape"));
    const int64_t count = element_count(*record->shape).value_or(0);
    const auto whole = storage_bytes(*record->dtype, static_cast<uint64_t>(count));
    const bool is_repeated = bytes.size() * 8 == info(*record->dtype).element_bits && count > 1;
    if (is_repeated ? count > kMostRepeated : whole != bytes.size())
      return fail(wrong(key::kKept, "a value of another size than its shape"));
    ByteLocation place;
    place.file = path_;
    place.size_bytes = bytes.size();
    place.member = "kept." + std::to_string(next_kept_++);
    record->bytes = std::move(place);
    record->set_made(
        std::make_shared<KeptTensor>(*record->dtype, *record->shape, std::move(bytes)));
    if (is_repeated) return {};
    ASSAY_TRY(const Tensor tensor, record->made()->make());
    record->digest = stats::digest(tensor.view);
    return {};
  }

  Status read_statistics(const char* name, int64_t bit, auto unpack) {
    std::vector<stats::TensorStats> all;
    for (const Value& value : values_)
      if ((value.has & bit) != 0) all.push_back(*value.record.stats);
    const json* object = member(document_, name);
    if (object == nullptr) return fail(wrong(name, "is missing"));
    fingerprint::Columns columns;
    for (const auto& [key, column] :
         {std::pair(key::kL2, &columns.l2), std::pair(key::kMin, &columns.min),
          std::pair(key::kMax, &columns.max), std::pair(key::kMean, &columns.mean),
          std::pair(key::kScale, &columns.scale), std::pair(key::kSketch, &columns.sketches)}) {
      ASSAY_TRY(*column, bytes_of(*object, key));
    }
    ASSAY_TRY_STATUS(unpack(columns, &all));
    size_t next = 0;
    for (Value& value : values_)
      if ((value.has & bit) != 0) value.record.stats = all[next++];
    return {};
  }

  Status read_head() {
    if (const json* properties = member(document_, key::kProperties)) {
      for (const auto& [name, text] : properties->items())
        if (text.is_string()) run_.properties[name] = text.get<std::string>();
    }
    if (const json* coverage = member(document_, key::kCoverage)) {
      run_.coverage.planned = formats::count_of(*coverage, "planned");
      run_.coverage.captured = formats::count_of(*coverage, "captured");
      run_.coverage.missed = native::read_missed(*coverage);
    }
    run_.findings = formats::texts_of(document_, key::kFindings);
    if (const json* floors = member(document_, key::kFloors)) run_.floors = floors->dump();
    if (const json* tree = member(document_, key::kTopology)) {
      ASSAY_TRY(run_.topology, topology::read_model_tree(tree->dump()));
    }
    return {};
  }

  const json& document_;
  const Tables tables_;
  const std::string& path_;
  Run run_;
  std::vector<Value> values_;
  std::vector<std::optional<size_t>> value_of_;  // by record
  std::set<std::pair<int64_t, int64_t>> groups_;
  std::map<int, int64_t> ids_, storages_;  // by rank: how many there are
  std::map<int, Makers> makers_;
  uint64_t text_bytes_ = 0;
  size_t next_digest_ = 0;
  size_t next_token_ = 0;
  size_t next_logit_ = 0;
  size_t next_kept_ = 0;
  // Of the group that is being read:
  int rank_ = 0;
  int64_t step_ = 0;
  size_t first_operation_ = 0;
  std::vector<size_t> values_here_;
  std::vector<const Form*> forms_here_;
};

Status check_version(const json& document) {
  if (document.value(key::kFormat, json()) != json(fingerprint::kFormat))
    return fail(Errc::BadMagic, "is no fingerprint: it does not say \"format\": \"" +
                                    std::string(fingerprint::kFormat) + "\"");
  const std::optional<int64_t> version = whole(document.value(key::kVersion, json()));
  if (!version || *version != fingerprint::kVersion)
    return fail(Errc::Unsupported, "is a fingerprint of another version than " +
                                       std::to_string(fingerprint::kVersion));
  return {};
}

Result<Run> read_document(ByteSpan file, const std::string& path) {
  ASSAY_TRY(const std::string text, formats::gunzip(file, kMostJsonBytes));
  ASSAY_TRY(const json document, formats::parse_json_object(text));
  ASSAY_TRY_STATUS(check_version(document));
  ASSAY_TRY(Tables tables, tables_of(document));
  return Reader(document, std::move(tables), path).read();
}

}  // namespace

Result<Run> open_fingerprint(ByteSpan file, const std::string& path) {
  return in_file(path, read_document(file, path));
}

}  // namespace assay::run
