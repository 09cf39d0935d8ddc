// SPDX-License-Identifier: Apache-2.0
// One recorded value of mine against what golden's program makes of the values before it.
//   docs/localisation.md, "Cross substitution"
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>

#include "locate/noise/gap.hpp"
#include "locate/replay/replay.hpp"
#include "locate/replay/walk.hpp"

namespace assay::locate {

/// Lets workers in while their working tensors fit; one alone may be larger than the limit.
class MemoryGate {
 public:
  explicit MemoryGate(uint64_t limit) : limit_(limit) {}
  void enter(uint64_t bytes) {
    std::unique_lock lock(mutex_);
    free_.wait(lock, [&] { return used_ == 0 || used_ + bytes <= limit_; });
    used_ += bytes;
  }
  void leave(uint64_t bytes) {
    {
      const std::scoped_lock lock(mutex_);
      used_ -= bytes;
    }
    free_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable free_;
  uint64_t used_ = 0;
  uint64_t limit_;
};

/// What is said of a value.
struct Judged {
  WalkStep step;
  std::optional<Finding> finding;
  std::vector<size_t> operators;  // of golden, that were replayed
  std::vector<size_t> recorded;   // boundaries it was judged on, but for those behind `carried`
  std::vector<size_t> carried;    // values of earlier steps, see Replay::carried()
  bool order_open = false;        // in an order of its own: says nothing about golden's values
  bool handed_over = false;       // it is a value that was recorded before
  [[nodiscard]] bool is_right() const { return !finding && step.reason.empty(); }
};

/// What a difference moves a value by if nothing undoes it, over what rounding explains, from which
/// on it is seen.   docs/localisation.md, "Functions decide"
inline constexpr double kShown = 4;

/// More of the last axis than golden has: what the rows that pad a weight make.
[[nodiscard]] bool has_padded_columns(const Dims& mine, const Dims& golden);

/// Fewer of the last axis but one, as logits of the last tokens alone.
[[nodiscard]] bool has_last_rows(const Dims& mine, const Dims& golden);

/// By how much a difference moves a value.
struct Effect {
  double excess = 0;      // over what rounding explains; from kShown on it is seen
  double relative = NAN;  // L2, as a share of the value; NaN: not known
  [[nodiscard]] bool is_shown() const { return excess >= kShown; }
  /// Beyond doubt: nothing but the last bits of fp64.
  [[nodiscard]] bool is_none() const { return relative < 1e-10; }
};

/// What a walk asks about; all outlive it.
struct Scene {
  const Program& golden;
  const Program& mine;
  const Pairing& pairing;
  const WalkOptions& options;
  MemoryGate* gate;
};

/// What is several times beyond the limit may be left untried in other ways of rounding: a whole
/// module that is so far off closes nothing.
enum class FarOnes : uint8_t { Tried, Left };

/// Threads may share it.
class ValueJudge {
 public:
  virtual ~ValueJudge() = default;

  /// Of WalkStep::r.
  [[nodiscard]] virtual double limit() const = 0;
  /// unusable  values of mine that nothing may be judged on
  [[nodiscard]] virtual Judged judge(size_t boundary,
                                     const std::vector<bool>& unusable = {}) const = 0;
  /// Names the values of mine that a value was judged on by way of earlier steps, too.
  virtual void add_carried(size_t boundary, Judged* judged) const = 0;
  /// None where `moved` could not be run.
  [[nodiscard]] virtual Effect effect(const Replayed& right, const Result<Replayed>& moved,
                                      DType dtype) const = 0;
  /// Of parts of mine in golden's program; none where that cannot be run.
  [[nodiscard]] virtual Effect effect(const Region& region, const Substitutes& others) const = 0;
  /// What golden's program makes of mine's values there.
  [[nodiscard]] virtual Result<Tensor> reference(size_t boundary) const = 0;
  /// "output 1 of model.layers.0.mlp.gate has shape [17, 1] against golden's [17, 2]"
  [[nodiscard]] virtual std::string shape_difference(size_t boundary) const = 0;
};

/// Scene and replay outlive it.
///
/// of_mine  what golden's program has of mine in all that is judged
[[nodiscard]] std::unique_ptr<const ValueJudge> make_value_judge(const Scene& scene,
                                                                 const Replay& replay,
                                                                 FarOnes far_ones = FarOnes::Tried,
                                                                 Substitutes of_mine = {});

}  // namespace assay::locate
