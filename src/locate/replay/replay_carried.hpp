// SPDX-License-Identifier: Apache-2.0
// Values that golden made in earlier steps: each is replayed once and kept while later steps read
// it.
#pragma once
#include <deque>
#include <list>
#include <mutex>

#include "locate/replay/replay.hpp"

namespace assay::locate {

/// Shared by all threads.
class Replay::Carrier {
 public:
  /// limit  bytes of the values that are kept
  explicit Carrier(uint64_t limit) : limit_(limit) {}

  struct Place {
    ValueId value = kNoValue;
    StorageState::Origin origin;
  };
  /// The number of a value, always the same.
  size_t number_of(const Place& place);
  [[nodiscard]] Place place(size_t number);

  [[nodiscard]] bool is_known(size_t number);
  /// problem  why the value cannot be replayed. The first description stays.
  void describe(size_t number, Carried about, std::optional<Error> problem);
  /// Precondition of both: is_known().
  [[nodiscard]] const Carried& about(size_t number);
  [[nodiscard]] std::optional<Error> problem(size_t number);

  [[nodiscard]] std::optional<CarriedValue> find(size_t number, const Mode& mode);
  /// Of values that do not fit the one that was used longest ago goes: a cache of a step that is
  /// over.
  void keep(size_t number, const Mode& mode, const CarriedValue& value);

 private:
  struct Entry {
    Place place;
    bool is_known = false;
    Carried about;
    std::optional<Error> problem;
  };
  using Key = std::pair<size_t, Mode>;
  struct Kept {
    CarriedValue value;
    uint64_t bytes = 0;
    std::list<Key>::iterator place;
  };

  std::mutex mutex_;
  std::deque<Entry> entries_;  // by number; what is known never moves
  std::map<std::pair<ValueId, size_t>, size_t> numbers_;
  std::list<Key> recent_;  // the latest used in front
  std::map<Key, Kept> values_;
  uint64_t bytes_ = 0;
  uint64_t limit_;
};

}  // namespace assay::locate
