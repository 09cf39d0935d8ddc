// SPDX-License-Identifier: Apache-2.0
// Records on their way from the host's thread to records.jsonl: plain data there, text on the
// writer thread. Keys and their meaning: docs/formats/native.md
#pragma once
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/native/schema.hpp"
#include "stats/digest.hpp"
#include "stats/tensor_stats.hpp"
#include "tensor/dtype.hpp"
#include "tensor/node.hpp"

namespace assay::native {

/// A node of the topology as records name it. Lives as long as the writer.
struct RecordNode {
  std::string name;  // dotted path
  std::string type;
};

/// Which value a tensor is: operator level of docs/formats/native.md.
struct ValueIdentity {
  int64_t id = -1;
  int64_t storage = -1;
  int64_t storage_offset = 0;  // elements
  int64_t version = 0;         // writes to the storage so far
  int64_t producer = -1;       // number of the output record of the operator that made it
  /// Lives as long as the writer; nullptr: no parameter or buffer.
  const std::string* leaf = nullptr;
};

/// Where a payload is. Copied into the records that share it.
struct PayloadLocation {
  const std::string* file = nullptr;  // name in the rank's folder; lives as long as the writer
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
};

/// One line. Pointers are to texts that live as long as the writer.
struct Record {
  uint64_t number = 0;
  int64_t step = 0;
  const RecordNode* node = nullptr;
  const std::string* slot = nullptr;
  uint64_t order = 0;
  uint32_t call = 0;
  Role role = Role::Output;
  RecordKind kind = RecordKind::Tensor;
  bool has_shape = false;
  bool first_copy = false;  // the payload was written for this record: it gets a header entry
  bool is_view = false;     // its elements lie in `payload` as `strides` say, not in C order
  DType dtype = DType::Float32;
  const char* dtype_name = nullptr;  // static text; nullptr when unknown
  const char* device = nullptr;      // static text; nullptr means "cpu"
  bool raw_bytes = false;  // the payload is not `dtype` by `shape`: a step file calls it bytes
  /// Further members of the line, `"ne":[4,1,1,1]`; lives as long as the writer. nullptr: none.
  const std::string* more = nullptr;
  bool more_repeats = false;  // a line that is like this one need not say `more` again
  int32_t ndim = 0;
  /// Into RecordBatch::dims: `ndim` sizes, then `ndim` strides when has_strides.
  uint32_t first_dim = 0;
  bool has_strides = false;
  std::optional<PayloadLocation> payload;
  int64_t same_as = -1;  // number of the record whose payload this one shares
  bool repeats = false;  // place, statistics and digest are those of that record, too
  std::optional<stats::TensorStats> stats;
  std::optional<stats::Digest> digest;
  ValueIdentity value;
  /// Name and overload of an operator: the record is one of its call number `operation_index`
  /// within call `call` of the module `node`. nullptr: the record is the module's own.
  const std::string* operation = nullptr;
  uint32_t operation_index = 0;
  /// Of operators: JSON list of the written arguments, or nullptr.
  const std::string* writes = nullptr;
  /// Into RecordBatch::text: the value or the arguments as JSON, or the reason as plain text.
  uint32_t text_begin = 0;
  uint32_t text_size = 0;
};

class PreparedLines;

struct RecordBatch {
  /// Lines whose place is behind the first `after` records.
  struct Prepared {
    size_t after = 0;
    uint64_t first_number = 0;
    std::shared_ptr<PreparedLines> lines;
  };

  std::vector<Record> records;
  std::vector<int64_t> dims;
  std::string text;
  std::vector<Prepared> prepared;

  [[nodiscard]] bool empty() const { return records.empty() && prepared.empty(); }
  [[nodiscard]] uint64_t size_bytes() const;
  [[nodiscard]] std::span<const int64_t> shape_of(const Record& record) const;
  [[nodiscard]] std::span<const int64_t> strides_of(const Record& record) const;
  /// The sizes, and the strides behind them where they are known.
  [[nodiscard]] std::span<const int64_t> dims_of(const Record& record) const;
  [[nodiscard]] std::string_view text_of(const Record& record) const;
  void set_dims(Record& record, std::span<const int64_t> shape, std::span<const int64_t> strides);
  void set_text(Record& record, std::string_view content);
  /// Forgets the records and keeps the memory.
  void clear() {
    records.clear();
    dims.clear();
    text.clear();
    prepared.clear();
  }
};

/// Text that grows at its end; a string whose appending is inlined.
class RecordText {
 public:
  void clear() { next_ = bytes_.get(); }
  [[nodiscard]] std::string_view text() const {
    return {bytes_.get(), static_cast<size_t>(next_ - bytes_.get())};
  }
  RecordText& operator+=(std::string_view more) {
    make_room(more.size());
    std::memcpy(next_, more.data(), more.size());
    next_ += more.size();
    return *this;
  }
  RecordText& operator+=(char more) {
    make_room(1);
    *next_++ = more;
    return *this;
  }
  /// A piece of its own text once more.
  void append_copy(size_t begin, size_t size) {
    make_room(size);
    std::memcpy(next_, bytes_.get() + begin, size);
    next_ += size;
  }

 private:
  void make_room(size_t size) {
    if (static_cast<size_t>(end_ - next_) < size) grow(size);
  }
  void grow(size_t size);

  std::unique_ptr<char[]> bytes_;
  char* next_ = nullptr;
  char* end_ = nullptr;
};

/// Lines of a host whose lines are the same text again and again: it leaves what has changed, and
/// the writer's thread makes the text.
class PreparedLines {
 public:
  /// Is told each record whose payload was stored with it, in the order of the lines; `batch` holds
  /// its sizes.
  using EntryFunction = void (*)(void* data, const RecordBatch& batch, const Record& record);

  virtual ~PreparedLines() = default;
  [[nodiscard]] virtual uint64_t line_count() const = 0;
  /// What it keeps alive until it is written.
  [[nodiscard]] virtual uint64_t size_bytes() const = 0;
  /// Writer's thread, once. Lines are numbered from `first`.
  virtual void append(uint64_t first, RecordText& out, EntryFunction entry, void* data) = 0;
};

/// The lines that were written in full, to be referred to in later steps, where a call of a node
/// mostly says the same again. Bounded, as are its texts.
class EarlierLines {
 public:
  /// The number of a line of an earlier step that says the same of node, call and form of the
  /// tensor, or of the operator and its arguments. Nothing: `record` is the one to refer to from
  /// now on.
  [[nodiscard]] std::optional<uint64_t> find(const RecordBatch& batch, const Record& record);

 private:
  /// Where a line belongs: one a step.
  struct Place {
    const RecordNode* node = nullptr;
    const std::string* operation = nullptr;
    const std::string* slot = nullptr;
    uint32_t operation_index = 0;
    uint32_t call = 0;
    Role role = Role::Output;
    RecordKind kind = RecordKind::Tensor;

    [[nodiscard]] size_t hash() const;
    friend bool operator==(const Place&, const Place&) = default;
  };
  struct Line {
    Place place;
    // What it says.
    bool has_shape = false;
    bool has_strides = false;
    int32_t ndim = 0;
    uint64_t number = 0;
    int64_t step = 0;
    uint64_t order = 0;
    const char* dtype_name = nullptr;
    const std::string* writes = nullptr;
    const std::string* leaf = nullptr;
    const std::string* more = nullptr;
    std::vector<int64_t> dims = {};
    std::string text = {};

    [[nodiscard]] bool says(const RecordBatch& batch, const Record& record) const;
    void take(const RecordBatch& batch, const Record& record);
  };
  static constexpr size_t kMostLines = 65536;
  static constexpr size_t kMostTextBytes = 1024;

  [[nodiscard]] static Place place_of(const Record& record);
  [[nodiscard]] Line* line_at(const Place& place);
  void grow();

  std::vector<Line> lines_;
  std::vector<uint32_t> slots_ = std::vector<uint32_t>(4096, 0);  // place in lines_ + 1; 0 is empty
  size_t next_ = 0;  // the line behind the one found last: most models repeat their order
};

/// The lines of records.jsonl. Remembers what neighbouring lines have in common, and statistics
/// that lines repeat: the text is the same without, only slower.
class RecordLines {
 public:
  /// Begins a text with the lines of `batch`, which must outlive the calls of append(). Numbers
  /// grow from batch to batch.
  void begin(const RecordBatch& batch);
  /// Appends the line of batch.records[index] with its newline; indices in order.
  void append(size_t index);
  void append(const RecordBatch::Prepared& prepared, PreparedLines::EntryFunction entry,
              void* data) {
    prepared.lines->append(prepared.first_number, lines_, entry, data);
  }
  [[nodiscard]] std::string_view text() const { return lines_.text(); }

 private:
  struct Call {
    int64_t step = 0;
    const RecordNode* node = nullptr;
    const std::string* operation = nullptr;
    uint32_t operation_index = 0;
    uint32_t call = 0;
    uint64_t order = 0;
    bool known = false;
    friend bool operator==(const Call&, const Call&) = default;
  };
  struct Place {
    size_t begin = 0;
    size_t size = 0;
  };
  struct EarlierStatistics {
    stats::TensorStats stats;
    std::string text;
  };
  static constexpr size_t kMostEarlierStatistics = 16384;

  void add_call(const Record& record);
  void append_like(size_t index, uint64_t like);
  void add_statistics(size_t index);
  [[nodiscard]] bool add_earlier_statistics(const Record& record);

  const RecordBatch* batch_ = nullptr;
  RecordText lines_;
  EarlierLines earlier_lines_;
  Call call_;
  RecordText call_text_;
  std::vector<Place> stats_places_;  // in lines_, by index in the batch
  /// By number of the record of an earlier batch.
  std::unordered_map<int64_t, EarlierStatistics> earlier_;
};

/// `[1,2]`
void append_list(RecordText& out, std::span<const int64_t> numbers);
void append_quoted(RecordText& out, std::string_view text);

// Pieces of lines, each with the comma in front, for those who put lines together themselves.

/// Key and number of the first member of an object: no comma.
void append_first(RecordText& out, const Key& key, uint64_t number);
/// Key and number.
void append_member(RecordText& out, const Key& key, int64_t number);
/// Key and text, quoted.
void append_member(RecordText& out, const Key& key, std::string_view text);
/// `step`, `node`, `type`, `call` and `order`; without the step: it follows the number of the line.
void append_call(RecordText& out, const Record& record);
/// The rest of an operator's line up to its newline: `,"kind":"operator","module":...}`; without the
/// module when the node is the operator itself.
void append_operator(RecordText& out, const Record& record, std::string_view arguments);
/// The keys `role` to `more` of a tensor's line.
void append_tensor(RecordText& out, const Record& record, std::span<const int64_t> shape,
                   std::span<const int64_t> strides);
/// `file`, `offset` and `bytes`.
void append_location(RecordText& out, const PayloadLocation& payload);
/// `view`: a place in the bytes that the record numbered `of` has.
void append_view(RecordText& out, int64_t of, const PayloadLocation& payload);
void append_statistics(RecordText& out, const stats::TensorStats& stats);
/// The operator of a record as part of its node: "model.norm::aten.mul.Tensor.1".
[[nodiscard]] std::string node_name(const Record& record);

}  // namespace assay::native
