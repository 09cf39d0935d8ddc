// SPDX-License-Identifier: Apache-2.0
// golden_tensor/metadata.json, written by dump_data():   docs/formats/torch-tree.md, "Manual pairs"
//
//   {"1": {"0": ["/d/.../golden_tensor/0/1_tensor.pth", "/d/.../after/outtensor0.bin"]}}
//    data id  token id  golden                            mine
#include "run/manual_mapping.hpp"

#include <algorithm>
#include <map>

#include "base/mapped_file.hpp"
#include "base/numbers.hpp"
#include "base/text.hpp"
#include "run/folder.hpp"
#include "topology/json_document.hpp"

namespace assay::run {
namespace {

using topology::JsonDocument;
using topology::JsonKind;

constexpr size_t kMaxJsonDepth = 64;
constexpr int kMaxLevelsUp = 4;  // from golden_tensor to the folder that holds both dumps

/// The folder with metadata.json, or an empty string.
std::string metadata_folder(const std::string& golden_path) {
  const std::string inside = join_path(golden_path, "golden_tensor");
  if (is_file(join_path(inside, "metadata.json"))) return inside;
  const bool is_it = base_name(real_path(golden_path)) == "golden_tensor" &&
                     is_file(join_path(golden_path, "metadata.json"));
  return is_it ? golden_path : std::string();
}

/// The ends of a path, the longest first, without a leading slash: a relative path as a whole, and
/// what has at least two components. None lead upwards.
std::vector<std::string> tails_of(const std::string& path) {
  std::vector<std::string> parts;
  for (const std::string_view part : split(path, '/')) {
    if (!part.empty() && part != ".") parts.emplace_back(part);
  }
  const size_t shortest = path.starts_with('/') ? 2 : std::min<size_t>(parts.size(), 2);
  std::vector<std::string> tails;  // the shortest first
  std::string tail;
  for (size_t i = parts.size(); i-- > 0 && parts[i] != "..";) {
    tail = tail.empty() ? parts[i] : parts[i] + "/" + tail;
    if (parts.size() - i >= shortest) tails.push_back(tail);
  }
  return {tails.rbegin(), tails.rend()};
}

/// A recorded path as it is, or, when a dump was moved, the file with the longest common end that
/// lies below the folder of metadata.json or one of the folders around it.
std::string find_file(const std::string& recorded, const std::string& folder) {
  if (is_file(recorded)) return recorded;
  for (const std::string& tail : tails_of(recorded)) {
    std::string around = real_path(folder);
    for (int level = 0; level <= kMaxLevelsUp && !around.empty(); ++level) {
      if (std::string candidate = join_path(around, tail); is_file(candidate)) return candidate;
      around.resize(around.rfind('/'));
    }
  }
  return recorded;
}

TensorRecord record_of(const std::string& data_id, const std::string& token_id,
                       const std::string& recorded, const std::string& folder) {
  TensorRecord record;
  record.node = data_id;
  record.step_name = token_id;
  record.step = parse_number<int64_t>(token_id).value_or(-1);
  // Also of a missing file, so that the report names the path that was recorded.
  ByteLocation location;
  location.file = find_file(recorded, folder);
  if (!is_file(location.file)) record.problem = location.file + " is not a file";
  record.bytes = std::move(location);
  return record;
}

/// One list of the file, before its paths are looked up.
struct Entry {
  std::string data_id;
  std::string token_id;
  std::string golden;
  std::string mine;
};

bool is_pair(const JsonDocument& document, JsonDocument::Value value) {
  if (!document.is(value, JsonKind::Array)) return false;
  const JsonDocument::Value golden = document.first(value);
  return document.is(golden, JsonKind::String) &&
         document.is(document.next(golden), JsonKind::String);
}

/// The pairs in file order. An id that stands twice, as text and once a number, is one id: of equal
/// tokens the later entry counts.
std::vector<Entry> entries_of(const JsonDocument& document, std::vector<std::string>* warnings) {
  std::vector<Entry> entries;
  std::map<std::pair<std::string, std::string>, size_t> places;
  const auto refuse = [&](const std::string& data_id, const std::string& token_id) {
    warnings->push_back("Invalid data in golden metadata.json, data_id: " + data_id +
                        ", token_id: " + token_id);
  };
  for (auto id = document.first(0); id != JsonDocument::kNone; id = document.next(id)) {
    const std::string data_id = document.key(id);
    if (!document.is(id, JsonKind::Object)) {
      refuse(data_id, "None");
      continue;
    }
    for (auto token = document.first(id); token != JsonDocument::kNone;
         token = document.next(token)) {
      const std::string token_id = document.key(token);
      if (!is_pair(document, token)) {
        refuse(data_id, token_id);
        continue;
      }
      const JsonDocument::Value golden = document.first(token);
      Entry entry{data_id, token_id, document.string(golden),
                  document.string(document.next(golden))};
      const auto [place, is_new] = places.try_emplace({data_id, token_id}, entries.size());
      if (is_new) {
        entries.push_back(std::move(entry));
      } else {
        entries[place->second] = std::move(entry);
      }
    }
  }
  return entries;
}

}  // namespace

bool is_manual_mapping(const std::string& golden_path) {
  return !metadata_folder(golden_path).empty();
}

Result<ManualMapping> read_manual_mapping(const std::string& golden_path) {
  const std::string folder = metadata_folder(golden_path);
  if (folder.empty()) {
    return fail(
        Error{Errc::NotFound, golden_path, std::nullopt, "holds no golden_tensor/metadata.json"});
  }
  const std::string path = join_path(folder, "metadata.json");
  ASSAY_TRY(const MappedFile file, MappedFile::open(path));
  ASSAY_TRY(const JsonDocument document,
            in_file(path, JsonDocument::parse(as_text(file.bytes()), kMaxJsonDepth)));
  if (!document.is(0, JsonKind::Object)) {
    return fail(Error{Errc::Invalid, path, document.offset(0),
                      "the pairs of data ids must be a JSON object"});
  }
  ManualMapping mapping;
  mapping.golden.path = golden_path;
  mapping.golden.layout = mapping.mine.layout = Layout::Manual;
  for (const Entry& entry : entries_of(document, &mapping.golden.warnings)) {
    const size_t index = mapping.pairs.size();
    mapping.golden.records.push_back(
        record_of(entry.data_id, entry.token_id, entry.golden, folder));
    mapping.mine.records.push_back(record_of(entry.data_id, entry.token_id, entry.mine, folder));
    mapping.golden.records.back().order = mapping.mine.records.back().order = index;
    mapping.pairs.push_back({index, index, parse_number<int64_t>(entry.data_id).value_or(-1)});
  }
  mapping.golden.coverage.captured = mapping.mine.coverage.captured = mapping.pairs.size();
  return mapping;
}

}  // namespace assay::run
