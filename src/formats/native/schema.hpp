// SPDX-License-Identifier: Apache-2.0
// The native layout: the names of its files and of the members of their JSON, each once, for the
// writers inside a host and for the readers. What they mean: docs/formats/native.md
#pragma once
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace assay::native {

inline constexpr std::string_view kManifestFile = "manifest.json";
inline constexpr std::string_view kTopologyFile = "topology.json";
inline constexpr std::string_view kRecordsFile = "records.jsonl";
inline constexpr std::string_view kStepFileSuffix = ".safetensors";

/// What a manifest is told by: the value of its key `format`.
inline constexpr std::string_view kManifestFormat = "assay-run";

/// "rank3" and, of a second process of the rank, "rank3-4711" -> 3
[[nodiscard]] inline std::optional<int> rank_of_folder(std::string_view name) {
  if (!name.starts_with("rank")) return std::nullopt;
  name.remove_prefix(4);
  int rank = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), rank);
  if (error != std::errc() || rank < 0) return std::nullopt;
  if (end != name.data() + name.size() && *end != '-') return std::nullopt;
  return rank;
}

/// What a line is about.
enum class RecordKind : uint8_t { Tensor, Value, Skipped, Operator };
inline constexpr std::array<std::string_view, 4> kRecordKindNames = {"tensor", "value", "skipped",
                                                                     "operator"};

[[nodiscard]] constexpr std::string_view kind_name(RecordKind kind) {
  return kRecordKindNames[static_cast<size_t>(kind)];
}

/// The enumerator of a name in one of the lists above.
template <typename Enum>
[[nodiscard]] std::optional<Enum> from_name(const auto& names, std::string_view name) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Enum>(found - names.begin());
}

/// The name of a member, as it is read and as it is written.
class Key {
 public:
  consteval explicit Key(std::string_view name) : name_bytes_(name.size()) {
    std::ranges::copy(name, text_.begin() + 2);
    text_[name.size() + 2] = '"';
    text_[name.size() + 3] = ':';
  }
  constexpr operator std::string_view() const { return name(); }
  [[nodiscard]] constexpr std::string_view name() const { return {text_.data() + 2, name_bytes_}; }
  /// `,"name":`
  [[nodiscard]] constexpr std::string_view member() const {
    return {text_.data(), name_bytes_ + 4};
  }
  /// `"name":`, of the first member of an object.
  [[nodiscard]] constexpr std::string_view first() const { return member().substr(1); }

 private:
  std::array<char, 24> text_ = {',', '"'};
  size_t name_bytes_;
};

namespace key {

// A line of records.jsonl, in the order in which they are written.
inline constexpr Key kRun("run"), kNumber("n"), kStep("step"), kLike("like"), kNode("node"),
    kType("type"), kCall("call"), kOrder("order"), kRole("role"), kSlot("slot"), kKind("kind"),
    kDtype("dtype"), kShape("shape"), kStrides("strides"), kDevice("device"), kFile("file"),
    kOffset("offset"), kBytes("bytes"), kView("view"), kSameAs("same_as"), kStats("stats"),
    kDigest("digest"), kValue("value"), kReason("reason");
// Which value it is, at operator level.
inline constexpr Key kValueId("vid"), kStorage("storage"), kStorageOffset("storage_offset"),
    kVersion("version"), kFrom("from"), kLeaf("leaf");
// A line of kind operator.
inline constexpr Key kModule("module"), kArguments("args"), kWrites("writes");
// Behind the device: of a tensor of another class than torch's own, and of one whose values may
// stand in blocks.
inline constexpr Key kClass("class"), kSizes("ne"), kBlock("block"), kBlockBytes("block_bytes");
// Of ATB's tensors: when it was taken. `format`, below, is the number of its memory format.
inline constexpr Key kMoment("moment");
// `view`, beside `file`, `offset` and `bytes`
inline constexpr Key kViewOf("of");
// `stats`
inline constexpr Key kCount("count"), kNan("nan"), kPositiveInf("pos_inf"), kNegativeInf("neg_inf"),
    kMin("min"), kMax("max"), kMean("mean"), kL2("l2"), kSketch("sketch");

// manifest.json
inline constexpr Key kFormat("format"), kTool("tool"), kComplete("complete"), kId("id"),
    kHost("host"), kConfig("config"), kEngines("engines"), kJoined("joined"), kStarted("started"),
    kFinished("finished"), kSteps("steps"), kFiles("files"), kCoverage("coverage"), kSink("sink"),
    kSeal("seal");
// `host`
inline constexpr Key kParallel("parallel"), kRank("rank"), kSize("size");
inline constexpr Key kTensors("tensors"), kRecords("records"), kWallMs("wall_ms"),
    kAddedMs("added_ms"), kEntries("entries");
inline constexpr Key kPlanned("planned"), kCaptured("captured"), kMissed("missed");
inline constexpr Key kQueueBytes("queue_bytes"), kWaitedMs("waited_ms"), kDropped("dropped"),
    kDroppedBytes("dropped_bytes"), kStopped("stopped");

// The header of a step file.
inline constexpr Key kMetadata("__metadata__");

}  // namespace key
}  // namespace assay::native
