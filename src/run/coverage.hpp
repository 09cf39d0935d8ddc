// SPDX-License-Identifier: Apache-2.0
// What a capture planned and has, and what of it is damaged.
#pragma once
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "formats/native/manifest.hpp"

namespace assay::run {

/// What was planned, captured and lost.
struct Coverage {
  bool complete = true;  // false: the host was killed or is still writing
  uint64_t planned = 0;  // nodes, in an ATB dump tensors; 0 when the layout does not say
  uint64_t captured = 0;
  std::vector<native::MissedNode> missed;
  uint64_t lost = 0;  // tensors that were seen and could not be kept
};

/// Something that a run's files contradict each other in: it is not as its capture left it.
struct Damage {
  std::string file;
  std::string what;  // one clause
  [[nodiscard]] std::string describe() const { return file + ": " + what; }
  friend bool operator==(const Damage&, const Damage&) = default;
};

/// Damage that is found while payloads are read. Used by all threads that read.
class FoundDamage {
 public:
  void add(Damage damage);
  [[nodiscard]] std::vector<Damage> list() const;

 private:
  mutable std::mutex mutex_;
  std::vector<Damage> list_;
};

}  // namespace assay::run
