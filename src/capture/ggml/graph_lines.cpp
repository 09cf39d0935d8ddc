// SPDX-License-Identifier: Apache-2.0
// Fills what a call found out into the lines that were made with the plan. On the writer's thread.
#include "capture/ggml/graph_lines.hpp"

namespace assay::capture::ggml {
namespace {

using native::append_member;
namespace key = native::key;

}  // namespace

StepLines::StepLines(std::shared_ptr<StepContent> content, std::vector<Range> ranges)
    : content_(std::move(content)), ranges_(std::move(ranges)) {
  for (const Range& range : ranges_) count_ += range.end - range.begin;
}

uint64_t StepLines::size_bytes() const {
  return sizeof(*this) + ranges_.size() * sizeof(Range) +
         content_->slots.size() * sizeof(StepContent::Slot) +
         content_->entering.size() * sizeof(StepContent::Entering);
}

void StepLines::append(uint64_t first, native::RecordText& out, EntryFunction entry, void* data) {
  StepContent& content = *content_;
  const GraphLines& planned = *content.lines;
  content.numbers.resize(planned.lines.size(), -1);
  content.statistics.resize(planned.slots.size());
  planned.written.resize(planned.lines.size());
  native::RecordBatch sizes;
  uint64_t number = first;
  for (const Range& range : ranges_) {
    for (uint32_t i = range.begin; i < range.end; ++i, ++number) {
      const PlannedLine& line = planned.lines[i];
      content.numbers[i] = static_cast<int64_t>(number);
      append_line(number, i, out);
      if (!line.is_first) continue;
      const auto slot = static_cast<size_t>(line.slot);
      if (!content.slots[slot].has_payload) continue;
      sizes.clear();
      native::Record record = planned.slots[slot].record;
      record.number = number;
      record.payload = content.slots[slot].payload;
      sizes.set_dims(record, planned.slots[slot].shape.span(), {});
      entry(data, sizes, record);
    }
  }
}

void StepLines::append_content(const PlannedLine& line, bool is_like, native::RecordText& out) {
  StepContent& content = *content_;
  const auto at = static_cast<size_t>(line.slot);
  const StepContent::Slot& slot = content.slots[at];
  const bool has_bytes = line.has_bytes && slot.has_payload;
  const int64_t stored_for = content.numbers[content.lines->slots[at].line];
  const bool is_shared = line.is_whole && !line.is_first && stored_for >= 0;
  if (is_like && is_shared && has_bytes == slot.has_payload) {
    append_member(out, key::kSameAs, stored_for);
    return;
  }
  if (has_bytes) {
    native::append_location(
        out, {slot.payload.file, slot.payload.offset + static_cast<uint64_t>(line.bytes_begin),
              static_cast<uint64_t>(line.bytes)});
  }
  if (has_bytes && is_shared) append_member(out, key::kSameAs, stored_for);
  if (line.is_whole && slot.has_statistics) {
    StepContent::Text& known = content.statistics[at];
    if (known.chunk == this) {
      out.append_copy(known.begin, known.size);
    } else {
      known.begin = out.text().size();
      native::append_statistics(out, slot.stats);
      known.size = out.text().size() - known.begin;
      known.chunk = this;
    }
  }
  if (line.is_whole && slot.digest)
    append_member(out, key::kDigest, stats::digest_text(*slot.digest));
}

void StepLines::append_line(uint64_t number, uint32_t index, native::RecordText& out) {
  StepContent& content = *content_;
  const PlannedLine& line = content.lines->lines[index];
  GraphLines::Written& written = content.lines->written[index];
  const std::string_view text = content.lines->text;
  out += '{';
  native::append_first(out, key::kNumber, number);
  append_member(out, key::kStep, content.step);
  const bool is_like = line.can_repeat && written.number >= 0 && written.step < content.step;
  if (is_like) {
    append_member(out, key::kLike, written.number);
  } else {
    written = {static_cast<int64_t>(number), content.step};
    out += text.substr(line.head.begin, line.head.size);
  }
  if (line.is_operator) {
    if (is_like) out += "}\n";
    return;
  }
  if (line.slot >= 0) append_content(line, is_like, out);
  int64_t producer = line.producer < 0 ? -1 : content.numbers[static_cast<size_t>(line.producer)];
  if (line.has_value) {
    const bool is_entering = line.value < 0;
    const auto entering = static_cast<size_t>(-1 - line.value);
    append_member(out, key::kValueId,
                  is_entering ? content.entering[entering].id : content.first_value + line.value);
    const bool is_leaf = line.storage < 0;
    const auto leaf = static_cast<size_t>(-1 - line.storage);
    append_member(out, key::kStorage,
                  is_leaf ? content.lines->leaves[leaf].storage->number
                          : content.first_storage + line.storage);
    out += text.substr(line.identity.begin, line.identity.size);
    const int64_t version = line.version + (is_leaf ? content.leaf_versions[leaf] : 0);
    if (version != 0) append_member(out, key::kVersion, version);
    if (is_entering && line.producer < 0 && line.is_input)
      producer = content.entering[entering].producer;
  } else {
    out += text.substr(line.identity.begin, line.identity.size);
  }
  if (producer >= 0) append_member(out, key::kFrom, producer);
  if (!is_like) out += text.substr(line.leaf.begin, line.leaf.size);
  out += "}\n";
}

}  // namespace assay::capture::ggml
