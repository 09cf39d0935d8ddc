// SPDX-License-Identifier: Apache-2.0
// The statistics of a record, in less than half of the memory: there are as many as records.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "stats/tensor_stats.hpp"

namespace assay::run {

/// Reads as a std::optional<const stats::TensorStats>, whose values are put together when asked
/// for.
class RecordStats {
 public:
  RecordStats() = default;
  RecordStats(std::nullopt_t) {}
  RecordStats(const stats::TensorStats& stats);
  RecordStats(const std::optional<stats::TensorStats>& stats) {
    if (stats) *this = RecordStats(*stats);
  }
  /// As `stats`, with the sketch where it lies, which outlives this and all its copies.
  [[nodiscard]] static RecordStats with_sketch_at(const stats::Sketch* sketch,
                                                  const stats::TensorStats& stats);
  RecordStats(const RecordStats& other);
  RecordStats(RecordStats&&) noexcept = default;
  RecordStats& operator=(const RecordStats& other);
  RecordStats& operator=(RecordStats&&) noexcept = default;
  ~RecordStats() = default;

  [[nodiscard]] bool has_value() const { return count_ >= 0; }
  explicit operator bool() const { return has_value(); }
  void reset() { *this = RecordStats(); }
  /// There are statistics.
  [[nodiscard]] stats::TensorStats operator*() const;
  /// The same without reading the sketch, which may lie in a file.
  [[nodiscard]] std::optional<stats::TensorStats> without_sketch() const;
  /// Null when there is none.
  [[nodiscard]] const stats::Sketch* sketch() const { return sketch_.get(); }
  struct Arrow {
    stats::TensorStats stats;
    const stats::TensorStats* operator->() const { return &stats; }
  };
  [[nodiscard]] Arrow operator->() const { return {**this}; }
  operator std::optional<stats::TensorStats>() const {
    return has_value() ? std::optional(**this) : std::nullopt;
  }
  friend bool operator==(const RecordStats& a, const RecordStats& b);

 private:
  /// What hardly any tensor has.
  struct NonFinite {
    int64_t nan = 0;
    int64_t positive_inf = 0;
    int64_t negative_inf = 0;
  };
  /// A sketch that is held, or one that lies elsewhere.
  class MaybeOwned {
   public:
    MaybeOwned() = default;
    explicit MaybeOwned(const stats::Sketch* elsewhere)
        : bits_(reinterpret_cast<uintptr_t>(elsewhere) | kElsewhere) {}
    explicit MaybeOwned(const stats::Sketch& copied)
        : bits_(reinterpret_cast<uintptr_t>(new stats::Sketch(copied))) {}
    MaybeOwned(const MaybeOwned& other);
    MaybeOwned(MaybeOwned&& other) noexcept : bits_(std::exchange(other.bits_, 0)) {}
    MaybeOwned& operator=(MaybeOwned other) noexcept {
      std::swap(bits_, other.bits_);
      return *this;
    }
    ~MaybeOwned() {
      if ((bits_ & kElsewhere) == 0) delete get();
    }
    [[nodiscard]] const stats::Sketch* get() const {
      return reinterpret_cast<const stats::Sketch*>(bits_ & ~kElsewhere);
    }

   private:
    static constexpr uintptr_t kElsewhere = 1;  // an address of floats is even
    uintptr_t bits_ = 0;
  };

  void set_numbers(const stats::TensorStats& stats);

  int64_t count_ = -1;  // of all values; -1: no statistics
  double min_ = NAN;
  double max_ = NAN;
  double mean_ = NAN;
  double l2_norm_ = 0;
  std::unique_ptr<const NonFinite> non_finite_;
  MaybeOwned sketch_;
};

}  // namespace assay::run
