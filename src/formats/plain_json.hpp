// SPDX-License-Identifier: Apache-2.0
// A short JSON object as programs write most of them: ASCII without escapes. Read in place and
// without allocations, several times faster than by a general parser, which has to take the rest.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace assay::formats {

class PlainObject {
 public:
  enum class Kind : uint8_t { Text, Integer, Real, Array, Object, Literal };
  struct Value {
    Kind kind = Kind::Literal;
    std::string_view text;  // of Text without its quotes; of others as it stands
  };

  /// Nothing when `text` is no JSON object, and when a general parser has to say what it means:
  /// escapes, other characters than ASCII, more than 32 members, the same name twice, an integer
  /// that begins with "-0", a number that may be none of a double (100 digits before the point, an
  /// exponent of three), values nested deeper than 16.
  [[nodiscard]] static std::optional<PlainObject> parse(std::string_view text);

  /// Null when there is no such member.
  [[nodiscard]] const Value* find(std::string_view name) const {
    const unsigned bucket = bucket_of(name);
    if ((filled_ >> bucket & 1) == 0) return nullptr;
    const Member& first = members_[first_in_[bucket]];
    return first.name == name ? &first.value : find_among_all(name);
  }

 private:
  struct Member {
    std::string_view name;
    Value value;
  };
  static constexpr size_t kMost = 32;
  static constexpr unsigned kBuckets = 64;

  /// One of 64, which few of the names in one object share.
  [[nodiscard]] static constexpr unsigned bucket_of(std::string_view name) {
    const auto number = [&](size_t place) { return static_cast<unsigned char>(name[place]); };
    const unsigned hash =
        name.empty() ? 0 : number(0) * 7U + number(name.size() - 1) * 31U + number(name.size() / 2);
    return (hash + static_cast<unsigned>(name.size()) * 11U) % kBuckets;
  }
  [[nodiscard]] const Value* find_among_all(std::string_view name) const;
  /// Makes the last member one that is found; false when there is another of its name.
  [[nodiscard]] bool enter_last();

  std::array<Member, kMost> members_;
  uint32_t count_ = 0;
  uint64_t filled_ = 0;                     // a bit for each bucket that has members
  std::array<uint8_t, kBuckets> first_in_;  // the first member of each that has some
};

/// The integers of an array of nothing else, one after the other.
class PlainIntegers {
 public:
  explicit PlainIntegers(std::string_view array) : rest_(array.substr(1)) {}
  /// Nothing at the end, and at what is no integer of 64 bits: then is_whole() is false.
  [[nodiscard]] std::optional<int64_t> next();
  [[nodiscard]] bool is_whole() const { return is_whole_; }

 private:
  std::string_view rest_;
  bool is_whole_ = true;
};

}  // namespace assay::formats
