// SPDX-License-Identifier: Apache-2.0
// The file of a floor profile: docs/formats/floor-profile.md
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "base/atomic_file.hpp"
#include "base/mapped_file.hpp"
#include "locate/noise/floors.hpp"
#include "locate/noise/record_distance.hpp"

namespace assay::locate {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFormat = "assay floor profile";
constexpr int64_t kVersion = 3;
constexpr int64_t kOldestVersion = 2;  // without sketches
constexpr size_t kMaxFileBytes = size_t{1} << 28;
constexpr uint64_t kMaxPairs = 1000000;
/// The shortest text that reads back as the same number.
std::string number_text(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end.ptr};
}

/// Quoted; bytes of names that are no UTF-8 become U+FFFD.
std::string string_text(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool is_positive(double value) { return std::isfinite(value) && value > 0; }

template <typename List, typename Text>
std::string json_list(const List& list, const Text& text) {
  std::string result = "[";
  for (const auto& one : list) result += (result.size() > 1 ? ", " : "") + text(one);
  return result + "]";
}

Error invalid(std::string message) { return {Errc::Invalid, {}, std::nullopt, std::move(message)}; }

/// The first thing that makes a profile useless.
Status check(const FloorProfile& profile) {
  if (profile.pairs == 0 || profile.pairs > kMaxPairs)
    return fail(invalid("pairs: expected a number of healthy pairs, at least 1"));
  const size_t count = component_names(profile.statistics).size();
  const size_t thresholds = profile.thresholds.size();
  const bool fits = profile.statistics ? thresholds == 1 || thresholds == 2 : thresholds == count;
  if (!fits || !std::ranges::all_of(profile.thresholds, is_positive)) {
    return fail(invalid("thresholds: expected " +
                        (profile.statistics ? "1 or 2" : std::to_string(count)) +
                        " positive numbers"));
  }
  // A sketch needs a threshold of its own; not every place has one.
  const size_t most = profile.statistics ? kPlainStatistics + thresholds - 1 : count;
  const size_t fewest = profile.statistics ? kPlainStatistics : count;
  for (const auto& [place, floor] : profile.floors) {
    if (floor.size() < fewest || floor.size() > most || !std::ranges::all_of(floor, is_positive)) {
      return fail(invalid("floors: \"" + place + "\": expected " +
                          (fewest == most ? "" : std::to_string(fewest) + " or ") +
                          std::to_string(most) + " positive numbers"));
    }
  }
  return {};
}

Result<Json> parse(std::string_view text) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {  // the parser's own way to say where
    const auto* syntax = dynamic_cast<const Json::parse_error*>(&error);
    Error result = invalid("no JSON");
    if (syntax != nullptr) result.offset = syntax->byte > 0 ? syntax->byte - 1 : 0;
    return fail(result);
  }
}

/// check() refuses what is no list of numbers.
std::vector<double> numbers(const Json& list) {
  std::vector<double> result;
  if (!list.is_array()) return result;
  for (const Json& value : list) result.push_back(value.is_number() ? value.get<double>() : NAN);
  return result;
}

Result<FloorProfile> from_json(const Json& object) {
  if (!object.is_object() || object.value("format", Json()) != Json(kFormat)) {
    return fail(Errc::Invalid,
                "no floor profile: expected \"format\": \"" + std::string(kFormat) + "\"");
  }
  const Json version = object.value("version", Json());
  if (!version.is_number_integer()) return fail(invalid("version: expected a number"));
  if (version < Json(kOldestVersion) || version > Json(kVersion))
    return fail(Errc::Unsupported, "version " + version.dump() + " of the profile is not known");
  FloorProfile profile;
  const Json level = object.value("level", Json());
  if (level != Json("N") && level != Json("S"))
    return fail(invalid("level: expected \"N\" or \"S\""));
  profile.statistics = level == Json("S");
  const Json pairs = object.value("pairs", Json());
  if (pairs.is_number_unsigned()) profile.pairs = pairs.get<size_t>();
  profile.thresholds = numbers(object.value("thresholds", Json()));
  const Json floors = object.value("floors", Json());
  if (!floors.is_object()) return fail(invalid("floors: expected an object"));
  for (const auto& [place, values] : floors.items()) {
    profile.floors[place] = numbers(values);
  }
  ASSAY_TRY_STATUS(check(profile));
  return profile;
}

}  // namespace

Result<std::string> profile_text(const FloorProfile& profile) {
  ASSAY_TRY_STATUS(check(profile));
  std::string text =
      "{\n  \"format\": " + string_text(kFormat) + ",\n  \"version\": " + std::to_string(kVersion) +
      ",\n  \"level\": " + (profile.statistics ? "\"S\"" : "\"N\"") +
      ",\n  \"pairs\": " + std::to_string(profile.pairs) +
      ",\n  \"thresholds\": " + json_list(profile.thresholds, number_text) +
      ",\n  \"components\": " + json_list(component_names(profile.statistics), string_text) +
      ",\n  \"floors\": {";
  std::string_view separator = "\n";
  for (const auto& [place, floor] : profile.floors) {
    text += separator;
    text += "    " + string_text(place) + ": " + json_list(floor, number_text);
    separator = ",\n";
  }
  return text + "\n  }\n}\n";
}

Status write_profile(const std::string& path, const FloorProfile& profile) {
  ASSAY_TRY(const std::string text, in_file(path, profile_text(profile)));
  return write_file_atomically(path, std::as_bytes(std::span(text)));
}

Result<FloorProfile> parse_profile(std::string_view text) {
  ASSAY_TRY(const Json json, parse(text));
  return from_json(json);
}

Result<FloorProfile> read_profile(const std::string& path) {
  ASSAY_TRY(const MappedFile file, MappedFile::open(path));
  const ByteSpan bytes = file.bytes();
  if (bytes.size() > kMaxFileBytes)
    return in_file<FloorProfile>(path, fail(Errc::TooLarge, "a floor profile has at most 256 MiB"));
  return in_file(path, parse_profile(as_text(bytes)));
}

}  // namespace assay::locate
