// SPDX-License-Identifier: Apache-2.0
// The lines of a graph's nodes, made once for all calls that compute the same graph: texts that
// stay, and references to what a call fills in.
//
//   {"n":7,"step":3 | ,"node":... ,"ne":[...] | ,"file":... ,"same_as":... ,"stats":{...} | ,"vid":... ,"leaf":... }
//    call             head, constant            content of a slot, if any                   identity
//
// A line that an earlier step has in full refers to it (`like`) in place of its head and leaf, and
// to the line with the same bytes (`same_as`) in place of its content.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "capture/ggml/engine.hpp"
#include "formats/native/record_lines.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::capture::ggml {

/// Where a value lies in its storage and how: the same place without a write in between is the same
/// value.
struct Place {
  int64_t offset_bytes = 0;
  int type = 0;
  Four ne{};
  Four nb{};
  friend bool operator==(const Place&, const Place&) = default;
};

/// A value in the memory of a leaf that outlives a call: a weight or a cache.
struct LeafValue {
  Place place;
  int64_t id = 0;
  int64_t producer = -1;  // number of the output record that made it
};

struct LeafStorage {
  int64_t number = 0;
  int64_t version = 0;
  const std::string* name = nullptr;
  bool written = false;  // by a graph that was planned: ids and versions change from call to call
  std::vector<LeafValue> values;
  bool was_asked = false;   // whether it can be recorded as a weight
  std::string content;      // ,"file":... ,"stats":{...} of its record, when it has one
  int64_t content_id = -1;  // value id of that record
};

/// Part of GraphLines::text.
struct Piece {
  uint32_t begin = 0;
  uint32_t size = 0;
};

struct PlannedLine {
  Piece head;         // of an operator: the whole rest, with the newline
  Piece identity;     // weights: vid to version; otherwise storage_offset
  Piece leaf;         // ,"leaf":...
  int32_t slot = -1;  // whose content it has
  bool is_operator = false;
  bool can_repeat = false;  // later steps may refer to it
  bool is_input = false;
  bool is_first = false;   // the content is stored for this line
  bool has_bytes = false;  // at `bytes_begin` of the slot's payload
  bool is_whole = false;   // the statistics and the digest of the slot are this line's, too
  bool has_value = false;  // the identity is made of the next three
  int64_t bytes_begin = 0;
  int64_t bytes = 0;
  int32_t value = 0;      // from 0: of this call; below: entering value -1 - value
  int32_t storage = 0;    // from 0: of this call; below: leaf -1 - storage
  int64_t version = 0;    // of a leaf: beyond the one at the begin of the call
  int32_t producer = -1;  // line
};

/// Bytes, statistics or a digest that a call takes.
struct PlannedSlot {
  const EngineTensor* tensor = nullptr;
  bool on_host = true;
  uint64_t span_bytes = 0;  // from the first to the last byte
  TensorView view;          // blocks: of their bytes; without storage when not on the host
  bool with_statistics = false;
  bool with_digest = false;
  uint32_t line = 0;      // the one it is stored for
  native::Record record;  // of that line, without what a call fills in
  Dims shape;
};

/// A leaf whose values differ from call to call.
struct PlannedLeaf {
  LeafStorage* storage = nullptr;
  int64_t writes = 0;
  /// What lies in it at the end; by reference, and the line of the maker.
  struct Value {
    Place place;
    int32_t value = 0;
    int32_t producer = -1;
  };
  std::vector<Value> values;  // with writes only
};

struct EnteringValue {
  uint32_t leaf = 0;
  Place place;
};

struct GraphLines {
  std::string text;
  std::vector<PlannedLine> lines;
  std::vector<PlannedSlot> slots;
  std::vector<PlannedLeaf> leaves;
  std::vector<EnteringValue> entering;
  int64_t value_count = 0;    // ids of a call
  int64_t storage_count = 0;  // numbers of a call

  /// Where a line stands in full.
  struct Written {
    int64_t number = -1;
    int64_t step = 0;
  };
  mutable std::vector<Written> written;  // by line; of the writer's thread
};

/// What a call fills in. The host's thread writes a slot before its line is pushed, the writer's
/// thread reads it afterwards.
struct StepContent {
  struct Slot {
    stats::TensorStats stats;
    std::optional<stats::Digest> digest;
    native::PayloadLocation payload;
    bool has_statistics = false;
    bool has_payload = false;
  };
  struct Entering {
    int64_t id = 0;
    int64_t producer = -1;
  };

  std::shared_ptr<const GraphLines> lines;
  int64_t step = 0;
  int64_t first_value = 0;
  int64_t first_storage = 0;
  std::vector<Slot> slots;
  std::vector<Entering> entering;
  std::vector<int64_t> leaf_versions;  // at the begin of the call
  // Of the writer's thread.
  std::vector<int64_t> numbers;  // of the lines that were written, -1 for others
  struct Text {
    size_t begin = 0, size = 0;
    const void* chunk = nullptr;
  };
  std::vector<Text> statistics;  // by slot
};

/// Some lines of a call, in order.
class StepLines final : public native::PreparedLines {
 public:
  struct Range {
    uint32_t begin, end;  // lines
  };
  StepLines(std::shared_ptr<StepContent> content, std::vector<Range> ranges);

  [[nodiscard]] uint64_t line_count() const override { return count_; }
  [[nodiscard]] uint64_t size_bytes() const override;
  void append(uint64_t first, native::RecordText& out, EntryFunction entry, void* data) override;

 private:
  void append_line(uint64_t number, uint32_t index, native::RecordText& out);
  void append_content(const PlannedLine& line, bool is_like, native::RecordText& out);

  std::shared_ptr<StepContent> content_;
  std::vector<Range> ranges_;
  uint64_t count_ = 0;
};

}  // namespace assay::capture::ggml
