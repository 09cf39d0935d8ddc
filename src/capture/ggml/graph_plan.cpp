// SPDX-License-Identifier: Apache-2.0
// Goes through a graph once and decides: names, what is read when, where the engine stops, the text
// of each line.
#include "capture/ggml/graph_plan.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <set>

#include "base/text.hpp"
#include "base/xxhash.hpp"
#include "capture/ggml/arguments.hpp"
#include "capture/ggml/graph_topology.hpp"
#include "tensor/node.hpp"

namespace assay::capture::ggml {
namespace {

using native::append_member;
namespace key = native::key;

constexpr int kInputFlag = 1;
constexpr int kComputeFlag = 16;
constexpr int kWeightsUsage = 1;
constexpr int kComputeUsage = 2;
constexpr size_t kMaxSearchedSources = 256;

bool is_alias(const std::string& op) {
  return op == "reshape" || op == "view" || op == "permute" || op == "transpose";
}

/// "node_5 (view)" -> 6: where the name itself ends and what views have appended begins.
size_t own_name_size(std::string_view name) {
  const size_t appended = name.find(" (");
  return appended == std::string_view::npos ? name.size() : appended;
}

/// The nearest source, breadth first, with a name of its own; nullptr when there is none.
const EngineTensor* nearest_named_source(const TensorFields& node) {
  std::deque<const EngineTensor*> waiting{node.address()};
  std::set<const EngineTensor*> seen{node.address()};
  while (!waiting.empty() && seen.size() < kMaxSearchedSources) {
    const TensorFields fields = node.other(waiting.front());
    waiting.pop_front();
    for (size_t i = 0; i < fields.source_count(); ++i) {
      const EngineTensor* source = fields.source(i);
      if (source == nullptr || !seen.insert(source).second) continue;
      const std::string_view name = origin_name(node.other(source).name());
      if (!is_unnamed(name.substr(0, own_name_size(name)))) return source;
      waiting.push_back(source);
    }
  }
  return nullptr;
}

std::string recorded_name(const TensorFields& fields, const EngineTensor** named_after) {
  const std::string_view name = fields.name();
  const size_t own = own_name_size(name);
  if (!is_unnamed(name.substr(0, own))) return std::string(name);
  *named_after = nearest_named_source(fields);
  std::string of_that;
  if (*named_after != nullptr) of_that = origin_name(fields.other(*named_after).name());
  return "(" + of_that + ")" + std::string(name.substr(own));
}

uint64_t hash_of(const EngineTensor* tensor, size_t bytes) { return XXH3_64bits(tensor, bytes); }

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
  return type.block_values <= 0 ? 0 : count_of(ne) / type.block_values * type.block_bytes;
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

/// Goes through a graph as its call will, and writes down what each line says and what it takes
/// from the call.
class Planner {
 public:
  Planner(GraphPlan* plan, EngineGraph* graph, const std::string& prefix)
      : plan_(*plan),
        session_(*plan->session),
        settings_(*plan->settings),
        engine_(*plan->engine),
        graph_(graph),
        prefix_(prefix) {}

  void run() {
    look_at_nodes();
    if (settings_.caches) measure_windows();
    if (session_.wants_topology(prefix_)) write_topology();
    for (index_ = 0; index_ < drafts_.size(); ++index_) plan_node();
    plan_stops();
    for (const auto& storage : storages_) finish_leaf(storage);
    session_.end_weights();
    plan_.written_leaves = session_.written_leaves();
    plan_.lines = std::make_shared<const GraphLines>(std::move(out_));
  }

 private:
  /// What is known of a node before the lines are made.
  struct Draft {
    const native::RecordNode* node = nullptr;
    const std::string* operation = nullptr;  // "ggml.mul_mat"
    uint32_t occurrence = 0;                 // of the operation among the nodes of that name
    bool computed = true;  // false: the engine skips it, and its memory means nothing
  };

  struct Value {
    Place place;
    int32_t reference = 0;  // as in PlannedLine; of weights unused
    int64_t id = -1;        // of weights
    int32_t producer = -1;  // line
    int32_t slot = -1;
    int64_t bytes_begin = 0;
    bool has_bytes = false;
    bool is_window = false;  // the content is of its first rows
    bool is_whole = false;   // of the slot's content: its statistics and digest are this value's
  };

  struct Storage {
    enum Kind { kCall, kWeight, kChanging } kind = kCall;
    int32_t number = 0;  // as in PlannedLine
    int64_t version = 0;
    int64_t writes = 0;
    const std::string* leaf = nullptr;
    LeafStorage* shared = nullptr;
    std::vector<Value> values;
  };

  /// What the nodes of a graph read of a cache.
  struct Window {
    int64_t end = 0;    // bytes from the begin of the memory to the last one that is read
    int64_t bytes = 0;  // of the largest view
  };

  void look_at_nodes() {
    const EngineFunctions& functions = engine_.functions();
    const auto count = static_cast<size_t>(std::max(0, functions.ggml_graph_n_nodes(graph_)));
    const size_t bytes = engine_.layout().used_bytes();
    plan_.nodes.reserve(count);
    plan_.hashes.reserve(count);
    drafts_.reserve(count);
    bool any_marked = false;
    std::map<std::pair<const void*, const void*>, uint32_t> occurrences;
    for (size_t i = 0; i < count; ++i) {
      const EngineTensor* tensor = functions.ggml_graph_node(graph_, static_cast<int>(i));
      const TensorFields fields = engine_.fields(tensor);
      plan_.hashes.push_back(hash_of(tensor, bytes));
      plan_.index.emplace(tensor, static_cast<uint32_t>(i));
      PlannedNode& node = plan_.nodes.emplace_back();
      node.tensor = tensor;
      const std::string& op = engine_.op_name(fields.op());
      const EngineTensor* named_after = nullptr;
      const std::string name = recorded_name(fields, &named_after);
      if (named_after != nullptr)
        plan_.names.emplace_back(named_after, origin_name(engine_.fields(named_after).name()));
      Draft& draft = drafts_.emplace_back();
      draft.node = session_.node(prefix_ + name);
      draft.operation = session_.run().intern("ggml." + op);
      draft.occurrence = occurrences[{draft.node, draft.operation}]++;
      draft.computed = (fields.flags() & kComputeFlag) != 0;
      node.alias = is_alias(op);
      node.wanted = settings_.wants_node(name, op);
      any_marked |= draft.computed;
    }
    for (size_t i = 0; i < count; ++i) {
      // Engines that do not mark what they compute compute everything.
      drafts_[i].computed |= !any_marked;
      PlannedNode& node = plan_.nodes[i];
      plan_.not_computed += node.wanted && !drafts_[i].computed;
      node.wanted &= drafts_[i].computed;
      plan_.wanted += node.wanted;
    }
    // What a graph writes changes from call to call, from its first reader on.
    for (size_t i = 0; i < count; ++i) {
      const TensorFields fields = engine_.fields(plan_.nodes[i].tensor);
      if (!writes(i, fields)) continue;
      const TensorFields root = fields.root();
      if (is_lasting_leaf(root)) session_.note_written(leaf_of(root));
    }
  }

  [[nodiscard]] bool is_changing(const TensorFields& root) const {
    return is_lasting_leaf(root) && leaf_of(root).written;
  }

  // A cache has room for the longest text; a graph reads the cells that it uses, rounded up.
  void measure_windows() {
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      const TensorFields node = engine_.fields(plan_.nodes[i].tensor);
      if (plan_.nodes[i].alias || !drafts_[i].computed || writes(i, node)) continue;
      for (size_t k = 0; k < node.source_count(); ++k) {
        if (node.source(k) == nullptr) continue;
        const TensorFields source = engine_.fields(node.source(k));
        const TensorFields root = source.root();
        if (!is_changing(root) || count_of(source.ne()) == 0) continue;
        const auto span = static_cast<int64_t>(engine_.functions().ggml_nbytes(source.address()));
        Window& window = windows_[root.address()];
        window.end = std::max(window.end, place_of(source).offset_bytes + span);
        window.bytes =
            std::max(window.bytes, payload_bytes(source.ne(), engine_.type_info(source.type())));
      }
    }
  }

  /// The sizes of the first rows of a cache, or of a view of all of it, that hold everything that
  /// the graph reads; nothing when these are much more than what it reads (a cache that lies
  /// transposed), or when it reads none.
  [[nodiscard]] std::optional<Four> window_of(const TensorFields& fields) const {
    constexpr int64_t kMostOfRead = 2;
    const auto found = windows_.find(fields.root().address());
    const Four nb = fields.nb();
    Four ne = fields.ne();
    if (found == windows_.end() || place_of(fields).offset_bytes != 0 || ne[2] != 1 || ne[3] != 1 ||
        nb[1] <= 0 || !is_contiguous(ne, nb, engine_.type_info(fields.type())))
      return std::nullopt;
    ne[1] = std::min(ne[1], (found->second.end + nb[1] - 1) / nb[1]);
    if (ne[1] * nb[1] > kMostOfRead * found->second.bytes) return std::nullopt;
    return ne;
  }

  // Of the first graph of a scheduler; those of prompts and of single tokens have the same nodes.
  void write_topology() const {
    std::vector<TopologyNode> nodes;
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      const Draft& draft = drafts_[i];
      if (!draft.computed) continue;
      const TensorFields fields = engine_.fields(plan_.nodes[i].tensor);
      nodes.push_back({plan_.nodes[i].tensor, native::node_name(record_of(i)), *draft.operation,
                       arguments_json(engine_, fields), writes(i, fields)});
    }
    session_.write_topology(prefix_, topology_json(engine_, nodes));
  }

  /// Puts something new into memory that other tensors look at, too.
  [[nodiscard]] bool writes(size_t index, const TensorFields& fields) const {
    return drafts_[index].computed && !plan_.nodes[index].alias && fields.view_source() != nullptr;
  }

  [[nodiscard]] bool is_host_input(const TensorFields& fields) const {
    if (fields.op() != 0 || fields.view_source() != nullptr || fields.data() == nullptr)
      return false;
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

  /// Weights and caches: in the same memory in the next call.
  [[nodiscard]] bool is_lasting_leaf(const TensorFields& root) const {
    return root.op() == 0 && root.data() != nullptr && !is_host_input(root);
  }

  [[nodiscard]] LeafStorage& leaf_of(const TensorFields& root) const {
    return session_.leaf_storage(root.data(), session_.run().intern(origin_name(root.name())));
  }

  Storage& storage_of(const TensorFields& root) {
    const auto [place, fresh] = storage_index_.try_emplace(root.address(), storages_.size());
    if (!fresh) return storages_[place->second];
    Storage& storage = storages_.emplace_back();
    if (root.op() == 0) storage.leaf = session_.run().intern(origin_name(root.name()));
    if (!is_lasting_leaf(root)) {
      storage.number = static_cast<int32_t>(out_.storage_count++);
      return storage;
    }
    storage.shared = &leaf_of(root);
    storage.kind = storage.shared->written ? Storage::kChanging : Storage::kWeight;
    if (storage.kind == Storage::kWeight) {
      storage.version = storage.shared->version;
      if (settings_.weights && !storage.shared->was_asked) record_weight(root, storage.shared);
      for (const LeafValue& value : storage.shared->values)
        storage.values.push_back({.place = value.place, .id = value.id});
    } else {
      storage.number = -1 - static_cast<int32_t>(out_.leaves.size());
      out_.leaves.push_back({storage.shared, 0, {}});
      watch(root.address());
    }
    return storage;
  }

  // Only from memory that is known to lie as the type says: others re-order blocks, and their
  // readers may not exist.
  void record_weight(const TensorFields& root, LeafStorage* leaf) {
    leaf->was_asked = true;
    if (leaf->name->starts_with("cache_")) return;
    const EngineFunctions& functions = engine_.functions();
    EngineBuffer* buffer = root.buffer();
    const bool is_computed = buffer != nullptr &&
                             functions.ggml_backend_buffer_get_usage != nullptr &&
                             functions.ggml_backend_buffer_get_usage(buffer) == kComputeUsage;
    if (is_computed) return;
    const std::string_view kind =
        buffer == nullptr ? "" : functions.ggml_backend_buffer_name(buffer);
    const TypeInfo& type = engine_.type_info(root.type());
    const bool plain = (kind == "CPU" || kind == "CPU_Mapped") &&
                       functions.ggml_backend_buffer_is_host(buffer) &&
                       is_contiguous(root.ne(), root.nb(), type);
    if (!plain) {
      session_.note_missed(*leaf->name, "its memory of kind " + std::string(kind) +
                                            " is not read: take the weight from the model's file");
      return;
    }
    const size_t dot = leaf->name->rfind('.');
    native::Record record;
    record.node = session_.node(leaf->name->substr(0, std::min(dot, leaf->name->size())));
    record.slot = session_.run().intern(
        dot == std::string::npos ? "" : std::string_view(*leaf->name).substr(dot + 1));
    Dims shape;
    Dims strides;
    describe(root, root.ne(), &record, &shape, &strides);
    const ByteSpan bytes(root.data(), static_cast<size_t>(payload_bytes(root.ne(), type)));
    Result<TensorView> view =
        type.dtype ? make_view(*type.dtype, shape, bytes)
                   : make_view(DType::UInt8, Dims{static_cast<int64_t>(bytes.size())}, bytes);
    if (!view) return session_.note_missed(*leaf->name, view.error().message);
    record.value.id = session_.next_values(1);
    record.value.storage = leaf->number;
    record.value.leaf = leaf->name;
    leaf->values.push_back({place_of(root), record.value.id, -1});
    leaf->content_id = record.value.id;
    leaf->content = session_.record_weight(*view, record, shape, strides);
  }

  Value& value_of(Storage& storage, const TensorFields& fields) {
    const Place place = place_of(fields);
    for (Value& value : storage.values) {
      if (value.place == place) return value;
    }
    Value& value = storage.values.emplace_back();
    value.place = place;
    if (storage.kind == Storage::kWeight) {
      value.id = session_.next_values(1);
      storage.shared->values.push_back({place, value.id, -1});
    } else if (storage.kind == Storage::kChanging && storage.writes == 0) {
      value.reference = -1 - static_cast<int32_t>(out_.entering.size());
      out_.entering.push_back({static_cast<uint32_t>(-1 - storage.number), place});
    } else {
      value.reference = static_cast<int32_t>(out_.value_count++);
    }
    return value;
  }

  // A value without gaps that lies within one whose content is taken.
  void share_content(const Storage& storage, Value* value) const {
    const TypeInfo& type = engine_.type_info(value->place.type);
    if (value->slot >= 0 || !is_contiguous(value->place.ne, value->place.nb, type)) return;
    const int64_t bytes = payload_bytes(value->place.ne, type);
    for (const Value& other : storage.values) {
      if (&other == value || other.slot < 0 || other.is_window ||
          other.place.type != value->place.type ||
          !is_contiguous(other.place.ne, other.place.nb, type))
        continue;
      const int64_t other_bytes = payload_bytes(other.place.ne, type);
      const int64_t begin = value->place.offset_bytes - other.place.offset_bytes;
      if (begin < 0 || begin + bytes > other_bytes) continue;
      value->slot = other.slot;
      value->bytes_begin = other.bytes_begin + begin;
      value->has_bytes = other.has_bytes;
      value->is_whole = bytes == other_bytes && other.is_whole;
      return;
    }
  }

  /// What append(RecordText&) makes.
  template <typename Append>
  Piece keep(Append append) {
    scratch_.clear();
    append(scratch_);
    const std::string_view text = scratch_.text();
    const Piece piece{static_cast<uint32_t>(out_.text.size()), static_cast<uint32_t>(text.size())};
    out_.text += text;
    return piece;
  }

  [[nodiscard]] native::Record record_of(size_t index) const {
    const Draft& draft = drafts_[index];
    native::Record record;
    record.node = draft.node;
    record.operation = draft.operation;
    record.operation_index = draft.occurrence;
    record.order = index;
    return record;
  }

  /// ne   the sizes to tell: the tensor's, or those of a window
  void describe(const TensorFields& fields, const Four& ne, native::Record* record, Dims* shape,
                Dims* strides) {
    const TypeInfo& type = engine_.type_info(fields.type());
    *shape = shape_of(ne);
    *strides = strides_of(ne, fields.nb(), type);
    record->has_shape = true;
    record->ndim = static_cast<int32_t>(shape->size());
    record->dtype = type.dtype.value_or(DType::UInt8);
    record->dtype_name = type.name.c_str();
    record->raw_bytes = !type.dtype;
    record->more = session_.sizes_text(ne, type);
    EngineBuffer* buffer = fields.buffer();
    if (buffer == nullptr) buffer = fields.root().buffer();
    if (buffer != nullptr && !engine_.functions().ggml_backend_buffer_is_host(buffer))
      record->device =
          session_.run().intern(engine_.functions().ggml_backend_buffer_name(buffer))->c_str();
  }

  /// A slot for what the tensor holds, or its first rows; -1 when it cannot be read.
  int32_t add_slot(const TensorFields& fields, const Four& ne) {
    const EngineFunctions& functions = engine_.functions();
    EngineBuffer* buffer = fields.buffer();
    if (buffer == nullptr) buffer = fields.root().buffer();
    if (buffer == nullptr || fields.data() == nullptr) return -1;
    const TypeInfo& type = engine_.type_info(fields.type());
    const Four nb = fields.nb();
    PlannedSlot slot;
    slot.tensor = fields.address();
    slot.on_host = functions.ggml_backend_buffer_is_host(buffer);
    slot.span_bytes = count_of(ne) == 0   ? 0
                      : ne == fields.ne() ? functions.ggml_nbytes(fields.address())
                                          : static_cast<uint64_t>(payload_bytes(ne, type));
    const ByteSpan bytes(fields.data(), slot.span_bytes);
    const bool raw = !type.dtype;
    const Dims strides = strides_of(ne, nb, type);
    if (raw ? nb[0] != type.block_bytes : strides.empty()) return -1;
    // Rows of blocks are gathered as bytes.
    Result<TensorView> view =
        raw ? make_view(DType::UInt8,
                        {ne[3], ne[2], ne[1], ne[0] / type.block_values * type.block_bytes},
                        {nb[3], nb[2], nb[1], 1}, bytes)
            : make_view(*type.dtype, shape_of(ne), strides, bytes);
    if (!view) return -1;
    slot.view = *std::move(view);
    slot.with_statistics = settings_.statistics && !raw;
    slot.with_digest = settings_.digest;
    if (!settings_.full && !slot.with_statistics && !slot.with_digest) return -1;
    out_.slots.push_back(std::move(slot));
    return static_cast<int32_t>(out_.slots.size()) - 1;
  }

  /// The line at hand is the one that the content is taken for; false when it cannot be read.
  bool take_content(const TensorFields& fields, const Four& shown, Value* value) {
    const int32_t slot = add_slot(fields, shown);
    if (slot < 0) return false;
    value->slot = slot;
    value->bytes_begin = 0;
    value->has_bytes = settings_.full;
    value->is_whole = true;
    value->is_window = shown != fields.ne();
    return true;
  }

  void plan_node() {
    PlannedNode& node = plan_.nodes[index_];
    const TensorFields fields = engine_.fields(node.tensor);
    node.first_line = node.line_end = static_cast<uint32_t>(out_.lines.size());
    node.first_read = node.read_end = static_cast<uint32_t>(plan_.reads.size());
    node.first_late = node.late_end = static_cast<uint32_t>(plan_.late_reads.size());
    if (!node.wanted) {
      if (writes(index_, fields)) note_write(storage_of(fields.root()));
      return;
    }
    native::Record record = record_of(index_);
    if (!node.alias) record.writes = written_argument(fields);
    PlannedLine line;
    line.is_operator = line.can_repeat = true;
    line.head = keep([&](native::RecordText& text) {
      native::append_call(text, record);
      native::append_operator(text, record, arguments_json(engine_, fields));
    });
    out_.lines.push_back(line);
    for (size_t i = 0; i < fields.source_count(); ++i) {
      const EngineTensor* source = fields.source(i);
      if (source != nullptr && source != node.tensor) plan_input(source, i);
    }
    plan_output(&node, fields);
    node.line_end = static_cast<uint32_t>(out_.lines.size());
    node.read_end = static_cast<uint32_t>(plan_.reads.size());
    node.late_end = static_cast<uint32_t>(plan_.late_reads.size());
  }

  // Each stop costs the engine a start of its threads, and the fusion of operators. A result need
  // not be read at once when a later node reads all of it: then the engine has put it into memory,
  // fused or not, and nobody has that memory before.
  void plan_stops() {
    constexpr size_t kEnd = SIZE_MAX;
    std::vector<size_t> last_reader(plan_.nodes.size(), 0);
    std::vector<size_t> next_writer(plan_.nodes.size(), kEnd);  // to its memory, through a view
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      if (plan_.nodes[i].alias || !drafts_[i].computed) continue;
      const TensorFields fields = engine_.fields(plan_.nodes[i].tensor);
      if (writes(i, fields)) {
        const auto root = plan_.index.find(fields.root().address());
        if (root != plan_.index.end() && root->second < i)
          next_writer[root->second] = std::min(next_writer[root->second], i);
      }
      for (size_t k = 0; k < fields.source_count(); ++k) {
        if (fields.source(k) == nullptr) continue;
        const TensorFields source = engine_.fields(fields.source(k));
        const auto root = plan_.index.find(source.root().address());
        if (root != plan_.index.end() && count_of(source.ne()) == count_of(source.root().ne()))
          last_reader[root->second] = i;
      }
    }
    size_t last_chance = kEnd;  // to read all that has been left so far
    PlannedNode* latest = nullptr;
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      PlannedNode& node = plan_.nodes[i];
      if (!node.wanted || node.alias) continue;
      if (latest != nullptr && i > last_chance) {
        latest->is_stop = true;
        last_chance = kEnd;
      }
      const bool is_view = engine_.fields(node.tensor).view_source() != nullptr;
      // What a cache holds before it is written is read when the node is asked for: with all before
      // it computed.
      if (latest != nullptr && is_view && node.first_read != node.read_end) {
        latest->is_stop = true;
        last_chance = kEnd;
      }
      latest = &node;
      const bool reads_caches = node.first_late != node.late_end;
      if (reads_caches || (node.slot >= 0 && is_view)) {
        last_chance = i;
      } else if (node.slot >= 0) {
        const size_t intact = std::min(last_reader[i], next_writer[i]);
        last_chance = std::min(last_chance, std::max(intact, i + 1) - 1);
      }
    }
    if (latest != nullptr) latest->is_stop = true;
  }

  void plan_input(const EngineTensor* source, size_t argument) {
    TensorFields fields = engine_.fields(source);
    // A copy that the scheduler made for another back end stands for the node it was made of.
    if (fields.op() == 0 && origin_name(fields.name()).size() != fields.name().size()) {
      if (node_by_name_.empty()) {
        for (size_t i = 0; i < plan_.nodes.size(); ++i)
          node_by_name_[engine_.fields(plan_.nodes[i].tensor).name()] = i;
      }
      const auto origin = node_by_name_.find(origin_name(fields.name()));
      if (origin != node_by_name_.end() && origin->second < index_)
        fields = engine_.fields(plan_.nodes[origin->second].tensor);
    }
    Storage& storage = storage_of(fields.root());
    Value& value = value_of(storage, fields);
    bool is_first = false;
    if (settings_.inputs && settings_.wants_content() && value.slot < 0 && storage.version == 0 &&
        is_host_input(fields)) {
      watch(fields.address());
      is_first = take_content(fields, fields.ne(), &value);
      if (is_first) plan_.reads.push_back(static_cast<uint32_t>(value.slot));
    }
    Four shown = fields.ne();
    if (settings_.caches && settings_.inputs && settings_.wants_content() && value.slot < 0 &&
        storage.kind == Storage::kChanging)
      is_first = read_cache(fields, &value, &shown);
    if (value.slot < 0) share_content(storage, &value);
    add_line(fields, shown, storage, value, Role::Input, argument, is_first);
  }

  // The node that writes takes the rows of before, all others what they see after everything before
  // them has run.
  bool read_cache(const TensorFields& fields, Value* value, Four* shown) {
    const PlannedNode& node = plan_.nodes[index_];
    if (node.alias) return false;
    const bool is_writer = writes(index_, engine_.fields(node.tensor));
    if (is_writer) {
      const std::optional<Four> window = window_of(fields);
      if (!window) return false;
      *shown = *window;
    }
    if (!take_content(fields, *shown, value)) return false;
    (is_writer ? plan_.reads : plan_.late_reads).push_back(static_cast<uint32_t>(value->slot));
    return true;
  }

  void plan_output(PlannedNode* node, const TensorFields& fields) {
    const TensorFields root = fields.root();
    Storage& storage = storage_of(root);
    if (!node->alias && fields.view_source() != nullptr) note_write(storage);
    Value& value = value_of(storage, fields);
    bool is_first = false;
    Four shown = fields.ne();
    // What lies in a leaf's memory, a cache, is not copied.
    const bool in_leaf = root.op() == 0 && fields.view_source() != nullptr;
    if (node->alias) {
      share_content(storage, &value);
    } else if (settings_.outputs && settings_.wants_content() && !in_leaf) {
      is_first = take_content(fields, shown, &value);
    } else if (settings_.outputs && settings_.wants_content() && settings_.caches &&
               storage.kind == Storage::kChanging) {
      const std::optional<Four> window = window_of(fields);
      shown = window.value_or(shown);
      is_first = window && take_content(fields, shown, &value);
    }
    if (is_first) node->slot = value.slot;
    const int32_t line =
        add_line(fields, shown, storage, value, Role::Output, GgmlSession::kResultSlot, is_first);
    // An operator that returns what it was given did not make it.
    if (value.producer < 0 || !node->alias) value.producer = line;
  }

  void note_write(Storage& storage) {
    ++storage.version;
    ++storage.writes;
    storage.values.clear();
  }

  /// shown   the sizes of what is stored for this line; the tensor's own otherwise
  int32_t add_line(const TensorFields& fields, const Four& shown, const Storage& storage,
                   const Value& value, Role role, size_t argument, bool is_first) {
    native::Record record = record_of(index_);
    record.role = role;
    record.slot = session_.slot(argument);
    Dims shape;
    Dims strides;
    describe(fields, shown, &record, &shape, &strides);
    PlannedLine line;
    line.head = keep([&](native::RecordText& text) {
      native::append_call(text, record);
      native::append_tensor(text, record, shape.span(), strides.span());
      text += content_of_weight(storage, value);
    });
    // A line with `like` says its content and device itself, and has plain values.
    line.can_repeat =
        !record.raw_bytes && record.device == nullptr && content_of_weight(storage, value).empty();
    line.is_input = role == Role::Input;
    // A line of a whole cache does not have the bytes of a window into it.
    line.slot = value.is_window && !is_first ? -1 : value.slot;
    line.is_first = is_first;
    line.has_bytes = value.has_bytes;
    line.bytes_begin = value.bytes_begin;
    line.bytes = payload_bytes(shown, engine_.type_info(value.place.type));
    line.is_whole = value.is_whole;
    const TypeInfo& type = engine_.type_info(value.place.type);
    const int64_t offset =
        type.block_bytes > 0 ? value.place.offset_bytes / type.block_bytes * type.block_values : 0;
    // Those of weights are known; others are made in each call.
    line.has_value = storage.kind != Storage::kWeight;
    line.identity = keep([&](native::RecordText& text) {
      if (!line.has_value) {
        append_member(text, key::kValueId, value.id);
        append_member(text, key::kStorage, storage.shared->number);
      }
      if (offset != 0) append_member(text, key::kStorageOffset, offset);
      if (!line.has_value && storage.version != 0)
        append_member(text, key::kVersion, storage.version);
    });
    line.leaf = keep([&](native::RecordText& text) {
      if (fields.view_source() == nullptr && storage.leaf != nullptr)
        append_member(text, key::kLeaf, *storage.leaf);
    });
    // Views of weights that the graph makes have a maker in this call, too.
    line.producer = line.is_input ? value.producer : -1;
    if (line.has_value) {
      line.value = value.reference;
      line.storage = storage.number;
      line.version = storage.version;
    }
    const auto number = static_cast<int32_t>(out_.lines.size());
    if (is_first) {
      PlannedSlot& slot = out_.slots[static_cast<size_t>(value.slot)];
      slot.line = static_cast<uint32_t>(number);
      record.first_copy = true;
      slot.record = record;
      slot.shape = shape;
    }
    out_.lines.push_back(line);
    return number;
  }

  static std::string content_of_weight(const Storage& storage, const Value& value) {
    const bool recorded = storage.kind == Storage::kWeight && !storage.shared->content.empty() &&
                          storage.shared->content_id == value.id;
    return recorded ? storage.shared->content : "";
  }

  const std::string* written_argument(const TensorFields& fields) const {
    if (fields.view_source() == nullptr) return nullptr;
    const EngineTensor* root = fields.root().address();
    // The destination is the last source in SET_ROWS and CPY, and the only one in the same memory
    // elsewhere.
    for (size_t i = fields.source_count(); i-- > 0;) {
      const EngineTensor* source = fields.source(i);
      if (source == nullptr || source == fields.address()) continue;
      if (engine_.fields(source).root().address() == root)
        return session_.run().intern("[\"src" + std::to_string(i) + "\"]");
    }
    return nullptr;
  }

  void finish_leaf(const Storage& storage) {
    if (storage.kind != Storage::kChanging) return;
    PlannedLeaf& leaf = out_.leaves[static_cast<size_t>(-1 - storage.number)];
    leaf.writes = storage.writes;
    for (const Value& value : storage.values)
      leaf.values.push_back({value.place, value.reference, value.producer});
  }

  void watch(const EngineTensor* leaf) {
    plan_.watched.push_back({leaf, hash_of(leaf, engine_.layout().used_bytes())});
  }

  GraphPlan& plan_;
  GgmlSession& session_;
  const Settings& settings_;
  const Engine& engine_;
  EngineGraph* graph_;
  const std::string& prefix_;
  size_t index_ = 0;
  std::vector<Draft> drafts_;
  std::deque<Storage> storages_;
  std::unordered_map<const EngineTensor*, size_t> storage_index_;  // by root
  std::unordered_map<std::string_view, size_t> node_by_name_;      // made when a copy is met
  std::unordered_map<const EngineTensor*, Window> windows_;        // by root
  GraphLines out_;
  native::RecordText scratch_;
};

}  // namespace

std::string_view origin_name(std::string_view name) {
  const size_t first = name.find('#');
  const size_t last = name.rfind('#');
  if (first == std::string_view::npos || first == last) return name;
  const std::string_view number = name.substr(last + 1);
  if (number.empty() || number.find_first_not_of("0123456789") != std::string_view::npos)
    return name;
  return name.substr(first + 1, last - first - 1);
}

bool is_unnamed(std::string_view name) {
  if (name.empty()) return true;
  for (const std::string_view stem : {std::string_view("node_"), std::string_view("leaf_")}) {
    if (name.starts_with(stem) && name.size() > stem.size() &&
        name.find_first_not_of("0123456789", stem.size()) == std::string_view::npos)
      return true;
  }
  return false;
}

bool GraphPlan::still_holds(EngineGraph* graph) const {
  const EngineFunctions& functions = engine->functions();
  const size_t bytes = engine->layout().used_bytes();
  if (written_leaves != session->written_leaves()) return false;
  if (functions.ggml_graph_n_nodes(graph) != static_cast<int>(nodes.size())) return false;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (functions.ggml_graph_node(graph, static_cast<int>(i)) != nodes[i].tensor ||
        hash_of(nodes[i].tensor, bytes) != hashes[i])
      return false;
  }
  for (const Watched& leaf : watched) {
    if (hash_of(leaf.tensor, bytes) != leaf.hash) return false;
  }
  for (const auto& [tensor, name] : names) {
    if (origin_name(engine->fields(tensor).name()) != name) return false;
  }
  return true;
}

std::shared_ptr<GraphPlan> plan_graph(GgmlSession* session, const Settings* settings,
                                      const Engine* engine, EngineGraph* graph,
                                      const std::string& prefix) {
  auto plan = std::make_shared<GraphPlan>();
  plan->session = session;
  plan->settings = settings;
  plan->engine = engine;
  const auto held = session->lock();
  Planner(plan.get(), graph, prefix).run();
  return plan;
}

}  // namespace assay::capture::ggml
