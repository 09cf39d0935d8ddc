// SPDX-License-Identifier: Apache-2.0
// Has the engine build tensors of known fields and searches their bytes for them.
#include "capture/ggml/tensor_layout.hpp"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace assay::capture::ggml {
namespace {

// Types 0 and 1 have been F32 and F16 in every version; 26 is I32 since blocked types were
// renumbered.
constexpr int kFloat32 = 0;
constexpr int kFloat16 = 1;
constexpr int kInt32 = 26;
constexpr int kOutputFlag = 2;
constexpr size_t kArenaBytes = 256 << 10;
constexpr size_t kSmallestRecord = 128;
constexpr size_t kLargestRecord = 4096;
constexpr int kLargestOpNumber = 255;
constexpr size_t kAlignment = 64;
constexpr int kMaxViewDepth = 64;

using Bytes = std::vector<std::byte>;

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<void, FreeMemory>;

Memory zeroed_memory(size_t size_bytes) {
  Memory memory(std::aligned_alloc(kAlignment, size_bytes));
  if (memory) std::memset(memory.get(), 0, size_bytes);
  return memory;
}

tl::unexpected<Error> not_found(std::string_view field, size_t places) {
  return fail(Errc::Unsupported, "the place of '" + std::string(field) +
                                     "' in a tensor was found " + std::to_string(places) +
                                     " times");
}

template <typename T>
T at(const Bytes& bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

/// Offsets, in steps of `step`, at which matches(offset) holds; a value of `size` bytes lies within
/// the record.
template <typename Matches>
std::vector<size_t> places(const Bytes& bytes, size_t step, size_t size, Matches matches) {
  std::vector<size_t> found;
  for (size_t offset = 0; offset + size <= bytes.size(); offset += step) {
    if (matches(offset)) found.push_back(offset);
  }
  return found;
}

template <typename T>
std::vector<size_t> places_of(const Bytes& bytes, const T& value, size_t step) {
  return places(bytes, step, sizeof(T), [&](size_t offset) {
    return std::memcmp(bytes.data() + offset, &value, sizeof(T)) == 0;
  });
}

Result<size_t> only(std::string_view field, const std::vector<size_t>& found) {
  if (found.size() != 1) return not_found(field, found.size());
  return found[0];
}

class Measurement {
 public:
  Measurement(const EngineFunctions& engine, EngineContext* context)
      : engine_(engine), context_(context) {}

  Result<TensorLayout> run() {
    ASSAY_TRY_STATUS(measure_record());
    ASSAY_TRY_STATUS(measure_description());
    ASSAY_TRY_STATUS(measure_operation());
    ASSAY_TRY_STATUS(measure_view());
    ASSAY_TRY_STATUS(measure_memory());
    ASSAY_TRY_STATUS(check());
    return layout_;
  }

 private:
  EngineTensor* tensor(int type, int64_t a, int64_t b, int64_t c, int64_t d) {
    return engine_.ggml_new_tensor_4d(context_, type, a, b, c, d);
  }
  [[nodiscard]] Bytes bytes_of(const EngineTensor* tensor) const {
    const auto* first = reinterpret_cast<const std::byte*>(tensor);
    return {first, first + layout_.record_bytes};
  }

  Status measure_record() {
    halves_ = tensor(kFloat16, 3, 5, 7, 11);
    integers_ = tensor(kInt32, 3, 5, 7, 11);
    floats_ = tensor(kFloat32, 8, 8, 1, 1);
    others_ = tensor(kFloat32, 8, 8, 1, 1);
    if (halves_ == nullptr || integers_ == nullptr || floats_ == nullptr || others_ == nullptr)
      return fail(Errc::Unsupported, "the engine makes no tensors");
    const auto first = reinterpret_cast<uintptr_t>(halves_);
    const auto second = reinterpret_cast<uintptr_t>(integers_);
    layout_.record_bytes = second - first;
    if (second <= first || layout_.record_bytes < kSmallestRecord ||
        layout_.record_bytes > kLargestRecord)
      return fail(Errc::Unsupported, "tensors do not lie behind each other");
    return {};
  }

  Status measure_description() {
    const Bytes halves = bytes_of(halves_);
    ASSAY_TRY(layout_.ne, only("ne", places_of(halves, Four{3, 5, 7, 11}, 8)));
    ASSAY_TRY(layout_.nb, only("nb", places_of(halves, Four{2, 6, 30, 210}, 8)));
    const Bytes integers = bytes_of(integers_);
    ASSAY_TRY(layout_.type, only("type", places(halves, 4, 4, [&](size_t offset) {
                                   return at<int32_t>(halves, offset) == kFloat16 &&
                                          at<int32_t>(integers, offset) == kInt32;
                                 })));
    const auto name = reinterpret_cast<uintptr_t>(engine_.ggml_get_name(halves_)) -
                      reinterpret_cast<uintptr_t>(halves_);
    if (name >= layout_.record_bytes) return not_found("name", 0);
    layout_.name = name;
    const std::string long_name(300, 'x');
    engine_.ggml_set_name(others_, long_name.c_str());
    const char* kept = engine_.ggml_get_name(others_);
    layout_.name_bytes = ::strnlen(kept, long_name.size()) + 1;
    if (layout_.name_bytes < 16 || layout_.name + layout_.name_bytes > layout_.record_bytes)
      return not_found("name", 0);

    engine_.ggml_set_output(integers_);
    const Bytes marked = bytes_of(integers_);
    ASSAY_TRY(layout_.flags, only("flags", places(marked, 4, 4, [&](size_t offset) {
                                    return at<int32_t>(marked, offset) !=
                                           at<int32_t>(integers, offset);
                                  })));
    if (at<int32_t>(marked, layout_.flags) != kOutputFlag) return not_found("flags", 0);
    return {};
  }

  Status measure_operation() {
    constexpr float kEpsilon = 0.12345f;
    const Bytes plain = bytes_of(floats_);
    const EngineTensor* norm = engine_.ggml_rms_norm(context_, floats_, kEpsilon);
    if (norm == nullptr) return not_found("op_params", 0);
    const Bytes bytes = bytes_of(norm);
    ASSAY_TRY(layout_.op_params, only("op_params", places_of(bytes, kEpsilon, 4)));
    ASSAY_TRY(layout_.op, only("op", places(bytes, 4, 4, [&](size_t offset) {
                                 const int32_t number = at<int32_t>(bytes, offset);
                                 // Only a number that can be an operator is asked for: engines do
                                 // not check.
                                 if (at<int32_t>(plain, offset) != 0 || number <= 0 ||
                                     number > kLargestOpNumber)
                                   return false;
                                 const char* text = engine_.ggml_op_name(number);
                                 return text != nullptr && std::string_view(text) == "RMS_NORM";
                               })));
    const EngineTensor* sum = engine_.ggml_add(context_, floats_, others_);
    if (sum == nullptr) return not_found("src", 0);
    ASSAY_TRY(
        layout_.sources,
        only("src", places_of(bytes_of(sum), std::array<const void*, 2>{floats_, others_}, 8)));
    return {};
  }

  Status measure_view() {
    constexpr size_t kOffset = 66;
    const EngineTensor* view = engine_.ggml_view_1d(context_, floats_, 4, kOffset);
    if (view == nullptr) return not_found("view_src", 0);
    const Bytes bytes = bytes_of(view);
    std::vector<size_t> pointers = places_of(bytes, static_cast<const void*>(floats_), 8);
    std::erase(pointers, layout_.sources);
    ASSAY_TRY(layout_.view_source, only("view_src", pointers));
    // The pointer to the viewed tensor stands right behind the sources.
    const size_t distance = layout_.view_source - layout_.sources;
    if (layout_.view_source <= layout_.sources || distance % 8 != 0 || distance / 8 < 2 ||
        distance / 8 > kMaxSources)
      return not_found("number of src", 0);
    layout_.source_count = distance / 8;
    // The same number stands in the parameters of the operator.
    std::vector<size_t> offsets = places_of(bytes, kOffset, 8);
    std::erase_if(offsets, [&](size_t offset) {
      return offset + 8 > layout_.op_params && offset < layout_.op_params + kOpParamsBytes;
    });
    ASSAY_TRY(layout_.view_offset, only("view_offs", offsets));
    return {};
  }

  Status measure_memory() {
    constexpr size_t kBufferBytes = 4096;
    constexpr size_t kOffset = 1024;
    const Memory memory = zeroed_memory(kBufferBytes);
    if (!memory) return fail(Errc::Internal, "out of memory");
    EngineBuffer* buffer = engine_.ggml_backend_cpu_buffer_from_ptr(memory.get(), kBufferBytes);
    if (buffer == nullptr) return not_found("buffer", 0);
    const void* address = static_cast<std::byte*>(memory.get()) + kOffset;
    engine_.ggml_backend_tensor_alloc(buffer, floats_, const_cast<void*>(address));
    const Bytes bytes = bytes_of(floats_);
    engine_.ggml_backend_buffer_free(buffer);
    ASSAY_TRY(layout_.buffer,
              only("buffer", places_of(bytes, static_cast<const void*>(buffer), 8)));
    ASSAY_TRY(layout_.data, only("data", places_of(bytes, address, 8)));
    return {};
  }

  /// What was found must agree with what the engine itself says, and no two fields may overlap.
  Status check() const {
    struct Extent {
      size_t begin, size;
    };
    std::vector<Extent> fields = {
        {layout_.type, 4},        {layout_.buffer, 8},
        {layout_.ne, 32},         {layout_.nb, 32},
        {layout_.op, 4},          {layout_.op_params, kOpParamsBytes},
        {layout_.flags, 4},       {layout_.sources, 8 * layout_.source_count},
        {layout_.view_source, 8}, {layout_.view_offset, 8},
        {layout_.data, 8},        {layout_.name, layout_.name_bytes}};
    std::sort(fields.begin(), fields.end(),
              [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
    for (size_t i = 1; i < fields.size(); ++i) {
      if (fields[i - 1].begin + fields[i - 1].size > fields[i].begin)
        return fail(Errc::Unsupported, "two fields of a tensor were found in one place");
    }
    if (layout_.used_bytes() > layout_.record_bytes)
      return fail(Errc::Unsupported, "a field was found behind the tensor");
    if (engine_.ggml_nelements(halves_) != 1155 || engine_.ggml_nbytes(halves_) != 2310)
      return fail(Errc::Unsupported, "the engine counts the bytes of a tensor differently");
    return {};
  }

  const EngineFunctions& engine_;
  EngineContext* context_;
  TensorLayout layout_;
  EngineTensor* halves_ = nullptr;
  EngineTensor* integers_ = nullptr;
  EngineTensor* floats_ = nullptr;
  EngineTensor* others_ = nullptr;
};

}  // namespace

size_t TensorLayout::used_bytes() const {
  return std::max({type + 4, buffer + 8, ne + 32, nb + 32, op + 4, op_params + kOpParamsBytes,
                   flags + 4, view_source + 8, view_offset + 8, data + 8, name + name_bytes});
}

TensorFields TensorFields::root() const {
  TensorFields fields = *this;
  for (int depth = 0; depth < kMaxViewDepth; ++depth) {
    const EngineTensor* source = fields.view_source();
    if (source == nullptr) break;
    fields = fields.other(source);
  }
  return fields;
}

Result<TensorLayout> measure_layout(const EngineFunctions& engine) {
  const Memory arena = zeroed_memory(kArenaBytes);
  if (!arena) return fail(Errc::Internal, "out of memory");
  EngineContext* context = engine.ggml_init({kArenaBytes, arena.get(), true});
  if (context == nullptr) return fail(Errc::Unsupported, "the engine makes no context");
  Result<TensorLayout> layout = Measurement(engine, context).run();
  engine.ggml_free(context);
  return layout;
}

}  // namespace assay::capture::ggml
