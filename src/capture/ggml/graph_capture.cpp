// SPDX-License-Identifier: Apache-2.0
#include "capture/ggml/graph_capture.hpp"

#include <algorithm>
#include <cstring>

#include "capture/atb/host_guard.hpp"

namespace assay::capture::ggml {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kInputFlag = 1;
constexpr int kWeightsUsage = 1;

double milliseconds(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

/// Adds the time of its life to a sum.
class Stopwatch {
 public:
  explicit Stopwatch(Clock::duration* sum) : sum_(sum), start_(Clock::now()) {}
  ~Stopwatch() { *sum_ += Clock::now() - start_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  Clock::duration* sum_;
  Clock::time_point start_;
};

int64_t count_of(const Four& ne) { return ne[0] * ne[1] * ne[2] * ne[3]; }

/// Dimensions of the row-major shape: leading ones are not counted.
size_t rank_of(const Four& ne) {
  size_t rank = 4;
  while (rank > 1 && ne[rank - 1] == 1) --rank;
  return rank;
}

Dims shape_of(const Four& ne) {
  Dims shape;
  for (size_t i = rank_of(ne); i-- > 0;) shape.push_back(ne[i]);
  return shape;
}

/// In elements; empty for blocks and for strides that are no multiple of an element.
Dims strides_of(const Four& ne, const Four& nb, const TypeInfo& type) {
  Dims strides;
  if (!type.dtype) return strides;
  for (size_t i = rank_of(ne); i-- > 0;) {
    if (nb[i] % type.block_bytes != 0) return {};
    strides.push_back(nb[i] / type.block_bytes);
  }
  return strides;
}

int64_t payload_bytes(const Four& ne, const TypeInfo& type) {
  return count_of(ne) / std::max<int64_t>(1, type.block_values) * type.block_bytes;
}

/// The elements stand in order of rows without gaps.
bool is_contiguous(const Four& ne, const Four& nb, const TypeInfo& type) {
  if (type.block_values <= 0) return false;
  int64_t expected = type.block_bytes;
  for (size_t i = 0; i < 4; ++i) {
    if (ne[i] != 1 && nb[i] != expected) return false;
    expected *= i == 0 ? ne[0] / type.block_values : ne[i];
  }
  return true;
}

Place place_of(const TensorFields& fields) {
  return {fields.view_source() == nullptr ? 0 : fields.view_offset(), fields.type(), fields.ne(),
          fields.nb()};
}

}  // namespace

GraphCapture::GraphCapture(std::shared_ptr<const GraphPlan> plan, uint64_t step)
    : plan_(std::move(plan)),
      engine_(*plan_->engine),
      settings_(*plan_->settings),
      step_(step),
      started_(Clock::now()) {
  counts_.step = static_cast<int64_t>(step);
  storages_.reserve(2 * plan_->nodes.size());
  const auto held = session().lock();
  session().note_engine(plan_->engine);
  session().begin_step(step, plan_->wanted);
}

std::optional<size_t> GraphCapture::index_of(const EngineTensor* tensor) {
  if (next_ < plan_->nodes.size() && plan_->nodes[next_].tensor == tensor) return next_;
  const auto found = plan_->index.find(tensor);
  if (found == plan_->index.end()) return std::nullopt;
  return found->second;
}

bool GraphCapture::ask(const EngineTensor* tensor) {
  const Stopwatch watch(&spent_);
  const std::optional<size_t> index = index_of(tensor);
  if (!index) return false;
  next_ = *index + 1;
  const PlannedNode& node = plan_->nodes[*index];
  if (!node.wanted) return false;
  read_inputs_of(node);
  // Aliases have no data to wait for: their lines are written with those of the next node that has.
  return !node.alias;
}

void GraphCapture::deliver(const EngineTensor* tensor) {
  const Stopwatch watch(&spent_);
  const auto known = plan_->index.find(tensor);
  if (known == plan_->index.end()) return;
  const size_t at = known->second;
  const PlannedNode& node = plan_->nodes[at];
  const TensorFields fields = engine_.fields(tensor);
  Content content;
  const bool is_leaf = fields.root().op() == 0 && fields.view_source() != nullptr;
  // What lies in a leaf's memory, a cache, is never copied.
  const bool has_content = settings_.outputs && !is_leaf &&
                           (settings_.full || settings_.statistics) &&
                           read(fields, /*keep=*/false, &content);
  const auto held = session().lock();
  if (session().finished()) return;
  skip_until(at);
  record(node, has_content ? &content : nullptr);
  recorded_ = std::max(recorded_, at + 1);
}

void GraphCapture::finish() {
  const auto held = session().lock();
  if (session().finished()) return;
  skip_until(plan_->nodes.size());
  counts_.wall_ms = milliseconds(Clock::now() - started_);
  counts_.added_ms = milliseconds(spent_);
  session().end_step(counts_, plan_->wanted + plan_->not_computed, captured_, plan_->not_computed);
}

bool GraphCapture::is_host_input(const TensorFields& fields) const {
  if (fields.op() != 0 || fields.view_source() != nullptr || fields.data() == nullptr) return false;
  const EngineFunctions& functions = engine_.functions();
  EngineBuffer* buffer = fields.buffer();
  if (buffer == nullptr || fields.name().starts_with("cache_")) return false;
  if (functions.ggml_backend_buffer_get_usage != nullptr &&
      functions.ggml_backend_buffer_get_usage(buffer) == kWeightsUsage)
    return false;
  const TypeInfo& type = engine_.type_info(fields.type());
  const bool integers = type.dtype && !is_float(*type.dtype);
  return ((fields.flags() & kInputFlag) != 0 || integers) &&
         functions.ggml_backend_buffer_is_host(buffer);
}

bool GraphCapture::read(const TensorFields& fields, bool keep, Content* content) const {
  const EngineFunctions& functions = engine_.functions();
  EngineBuffer* buffer = fields.buffer();
  if (buffer == nullptr) buffer = fields.root().buffer();
  if (buffer == nullptr || fields.data() == nullptr) return false;
  const TypeInfo& type = engine_.type_info(fields.type());
  const Four ne = fields.ne();
  const Four nb = fields.nb();
  const size_t span_bytes = count_of(ne) == 0 ? 0 : functions.ggml_nbytes(fields.address());
  ByteSpan bytes(fields.data(), span_bytes);
  if (!functions.ggml_backend_buffer_is_host(buffer) || keep) {
    content->copied.resize(span_bytes);
    if (functions.ggml_backend_buffer_is_host(buffer)) {
      if (span_bytes != 0) std::memcpy(content->copied.data(), fields.data(), span_bytes);
    } else if (span_bytes != 0) {
      functions.ggml_backend_tensor_get(fields.address(), content->copied.data(), 0, span_bytes);
    }
    bytes = content->copied;
  }
  content->raw = !type.dtype;
  if (content->raw && !is_contiguous(ne, nb, type)) return false;
  const Dims strides = strides_of(ne, nb, type);
  if (!content->raw && strides.empty()) return false;
  Result<TensorView> view =
      content->raw ? make_view(DType::UInt8, Dims{static_cast<int64_t>(span_bytes)}, bytes)
                   : make_view(*type.dtype, shape_of(ne), strides, bytes);
  if (!view) return false;
  content->view = *std::move(view);
  if (settings_.statistics && !content->raw) {
    const atb::FloatingPointState floating_point;
    content->stats = stats::compute_stats(content->view);
  }
  return true;
}

void GraphCapture::read_inputs_of(const PlannedNode& node) {
  if (!settings_.inputs || !(settings_.full || settings_.statistics)) return;
  const TensorFields fields = engine_.fields(node.tensor);
  for (size_t i = 0; i < fields.source_count(); ++i) {
    const EngineTensor* source = fields.source(i);
    if (source == nullptr || host_inputs_.contains(source)) continue;
    const TensorFields leaf = engine_.fields(source);
    if (!is_host_input(leaf)) continue;
    Content content;
    if (!read(leaf, /*keep=*/settings_.full, &content)) continue;
    // The view points into `copied`, whose memory moves along.
    host_inputs_.emplace(source, std::move(content));
  }
}

// Nodes that were not delivered: aliases are written, others at least change what they write to.
void GraphCapture::skip_until(size_t index) {
  for (; recorded_ < index; ++recorded_) {
    const PlannedNode& node = plan_->nodes[recorded_];
    if (node.wanted && node.alias) {
      record(node, nullptr);
    } else {
      pass(node);
    }
  }
}

void GraphCapture::pass(const PlannedNode& node) {
  const TensorFields fields = engine_.fields(node.tensor);
  if (!node.computed || node.alias || fields.view_source() == nullptr) return;
  Storage& storage = storage_of(fields.root());
  ++storage.version;
  storage.values.clear();
}

writer::Record GraphCapture::record_of(const PlannedNode& node) const {
  writer::Record record;
  record.step = static_cast<int64_t>(step_);
  record.node = node.node;
  record.operation = node.operation;
  record.operation_index = node.occurrence;
  record.order = static_cast<uint64_t>(&node - plan_->nodes.data());
  return record;
}

void GraphCapture::record(const PlannedNode& node, const Content* output) {
  const TensorFields fields = engine_.fields(node.tensor);
  writer::Record operation = record_of(node);
  operation.kind = writer::RecordKind::Operator;
  if (!node.alias) operation.writes = written_argument(fields);
  session().run().push_record(operation, {}, {}, node.arguments);
  ++counts_.records;
  for (size_t i = 0; i < fields.source_count(); ++i) {
    const EngineTensor* source = fields.source(i);
    if (source != nullptr && source != node.tensor) record_input(node, source, i);
  }
  record_output(node, output);
  ++captured_;
}

const std::string* GraphCapture::written_argument(const TensorFields& fields) const {
  if (fields.view_source() == nullptr) return nullptr;
  const EngineTensor* root = fields.root().address();
  // The destination is the last source in SET_ROWS and CPY, and the only one in the same memory elsewhere.
  for (size_t i = fields.source_count(); i-- > 0;) {
    const EngineTensor* source = fields.source(i);
    if (source == nullptr || source == fields.address()) continue;
    if (engine_.fields(source).root().address() == root)
      return session().run().intern("[\"src" + std::to_string(i) + "\"]");
  }
  return nullptr;
}

Storage& GraphCapture::storage_of(const TensorFields& root) {
  Storage*& place = storages_[root.address()];
  if (place != nullptr) return *place;
  const bool leaf = root.op() == 0;
  if (leaf && root.data() != nullptr && !is_host_input(root)) {
    const std::string* name = session().run().intern(origin_name(root.name()));
    place = &session().leaf_storage(root.data(), name);
    return *place;
  }
  place = &own_storages_.emplace_back();
  place->number = session().next_storage();
  if (leaf) place->leaf = session().run().intern(origin_name(root.name()));
  return *place;
}

Value& GraphCapture::value_of(Storage& storage, const TensorFields& fields) {
  const Place place = place_of(fields);
  for (Value& value : storage.values) {
    if (value.place == place) return value;
  }
  Value& value = storage.values.emplace_back();
  value.place = place;
  value.id = session().next_value();
  return value;
}

// A value without gaps that lies within one whose bytes are stored.
void GraphCapture::share_payload(const Storage& storage, const TensorFields& fields,
                                 Value* value) const {
  const TypeInfo& type = engine_.type_info(fields.type());
  if (value->payload || value->stats || !is_contiguous(value->place.ne, value->place.nb, type))
    return;
  const int64_t bytes = payload_bytes(value->place.ne, type);
  for (const Value& other : storage.values) {
    if (&other == value || other.place.type != value->place.type ||
        !is_contiguous(other.place.ne, other.place.nb, type))
      continue;
    const int64_t other_bytes = payload_bytes(other.place.ne, type);
    const int64_t begin = value->place.offset_bytes - other.place.offset_bytes;
    if (begin < 0 || begin + bytes > other_bytes) continue;
    const bool whole = bytes == other_bytes;
    if (other.payload) {
      value->payload = writer::PayloadLocation{other.payload->file,
                                               other.payload->offset + static_cast<uint64_t>(begin),
                                               static_cast<uint64_t>(bytes)};
      if (whole) value->payload_record = other.payload_record;
    }
    if (whole) value->stats = other.stats;
    if (value->payload || value->stats) return;
  }
}

void GraphCapture::describe(const TensorFields& fields, const Storage& storage, const Value& value,
                            writer::Record* record, Dims* shape, Dims* strides) {
  const TypeInfo& type = engine_.type_info(fields.type());
  const Four& ne = value.place.ne;
  *shape = shape_of(ne);
  *strides = strides_of(ne, value.place.nb, type);
  record->has_shape = true;
  record->ndim = static_cast<int32_t>(shape->size());
  record->dtype = type.dtype.value_or(DType::UInt8);
  record->dtype_name = type.name.c_str();
  record->raw_bytes = !type.dtype;
  record->more = session().sizes_text(ne, type);
  EngineBuffer* buffer = fields.buffer();
  if (buffer == nullptr) buffer = fields.root().buffer();
  if (buffer != nullptr && !engine_.functions().ggml_backend_buffer_is_host(buffer))
    record->device =
        session().run().intern(engine_.functions().ggml_backend_buffer_name(buffer))->c_str();
  record->value.id = value.id;
  record->value.storage = storage.number;
  record->value.storage_offset =
      type.block_bytes > 0 ? value.place.offset_bytes / type.block_bytes * type.block_values : 0;
  record->value.version = storage.version;
  if (fields.view_source() == nullptr) record->value.leaf = storage.leaf;
}

void GraphCapture::store(const Content& content, writer::Record* record, Value* value) {
  value->stats = content.stats;
  if (!settings_.full) return;
  value->payload = session().run().append_payload(content.view, *record, nullptr);
  if (!value->payload) return;
  record->first_copy = true;
  counts_.bytes += value->payload->size_bytes;
}

void GraphCapture::record_input(const PlannedNode& node, const EngineTensor* source, size_t slot) {
  TensorFields fields = engine_.fields(source);
  // A copy that the scheduler made for another back end stands for the node it was made of.
  if (fields.op() == 0 && origin_name(fields.name()).size() != fields.name().size()) {
    if (node_by_name_.empty()) {
      for (size_t i = 0; i < plan_->nodes.size(); ++i)
        node_by_name_[engine_.fields(plan_->nodes[i].tensor).name()] = i;
    }
    const auto origin = node_by_name_.find(origin_name(fields.name()));
    if (origin != node_by_name_.end() && origin->second < recorded_)
      fields = engine_.fields(plan_->nodes[origin->second].tensor);
  }
  Storage& storage = storage_of(fields.root());
  Value& value = value_of(storage, fields);
  writer::Record record = record_of(node);
  record.role = writer::RecordRole::Input;
  record.slot = session().slot(slot);
  Dims shape;
  Dims strides;
  describe(fields, storage, value, &record, &shape, &strides);
  const auto filled = host_inputs_.find(source);
  if (filled != host_inputs_.end() && !value.payload && !value.stats && storage.version == 0) {
    store(filled->second, &record, &value);
    filled->second = {};
  } else {
    share_payload(storage, fields, &value);
  }
  record.payload = value.payload;
  record.stats = value.stats;
  record.value.producer = value.producer;
  if (!record.first_copy) record.same_as = value.payload_record;
  const auto number =
      static_cast<int64_t>(session().run().push_record(record, shape.span(), strides.span()));
  if (record.first_copy) value.payload_record = number;
  ++counts_.records;
  ++counts_.tensors;
}

void GraphCapture::record_output(const PlannedNode& node, const Content* output) {
  const TensorFields fields = engine_.fields(node.tensor);
  Storage& storage = storage_of(fields.root());
  if (!node.alias && fields.view_source() != nullptr) {
    ++storage.version;
    storage.values.clear();
  }
  Value& value = value_of(storage, fields);
  writer::Record record = record_of(node);
  record.role = writer::RecordRole::Output;
  record.slot = session().slot(Session::kResultSlot);
  Dims shape;
  Dims strides;
  describe(fields, storage, value, &record, &shape, &strides);
  if (output != nullptr) {
    store(*output, &record, &value);
  } else if (node.alias) {
    share_payload(storage, fields, &value);
  }
  record.payload = value.payload;
  record.stats = value.stats;
  if (!record.first_copy) record.same_as = value.payload_record;
  const auto number =
      static_cast<int64_t>(session().run().push_record(record, shape.span(), strides.span()));
  if (record.first_copy) value.payload_record = number;
  // An operator that returns what it was given did not make it.
  if (value.producer < 0 || !node.alias) value.producer = number;
  ++counts_.records;
  ++counts_.tensors;
}

}  // namespace assay::capture::ggml
