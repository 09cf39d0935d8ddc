// SPDX-License-Identifier: Apache-2.0
// The values that are kept, by number and mode, and how one that was let go is made again from the
// nearest that are there, step by step.
#include "locate/replay/replay_carried.hpp"

#include <algorithm>
#include <set>

namespace assay::locate {

size_t Replay::Carrier::number_of(const Place& place) {
  const std::scoped_lock lock(mutex_);
  const auto [found, fresh] =
      numbers_.try_emplace(std::pair(place.value, place.origin.op), entries_.size());
  if (fresh) entries_.push_back({place, false, {}, std::nullopt});
  return found->second;
}

Replay::Carrier::Place Replay::Carrier::place(size_t number) {
  const std::scoped_lock lock(mutex_);
  return entries_[number].place;
}

bool Replay::Carrier::is_known(size_t number) {
  const std::scoped_lock lock(mutex_);
  return entries_[number].is_known;
}

void Replay::Carrier::describe(size_t number, Carried about, std::optional<Error> problem) {
  const std::scoped_lock lock(mutex_);
  Entry& entry = entries_[number];
  if (entry.is_known) return;
  entry.about = std::move(about);
  entry.problem = std::move(problem);
  entry.is_known = true;
}

const Carried& Replay::Carrier::about(size_t number) {
  const std::scoped_lock lock(mutex_);
  return entries_[number].about;
}

std::optional<Error> Replay::Carrier::problem(size_t number) {
  const std::scoped_lock lock(mutex_);
  return entries_[number].problem;
}

std::optional<Replay::CarriedValue> Replay::Carrier::find(size_t number, const Mode& mode) {
  const std::scoped_lock lock(mutex_);
  const auto found = values_.find({number, mode});
  if (found == values_.end()) return std::nullopt;
  recent_.splice(recent_.begin(), recent_, found->second.place);
  return found->second.value;
}

void Replay::Carrier::keep(size_t number, const Mode& mode, const CarriedValue& value) {
  const uint64_t size = value.pair.reference.view.storage.size() +
                        (value.pair.same ? 0 : value.pair.simulated.view.storage.size());
  const std::scoped_lock lock(mutex_);
  if (size > limit_ || values_.contains({number, mode})) return;
  while (bytes_ + size > limit_) {
    const auto oldest = values_.find(recent_.back());
    bytes_ -= oldest->second.bytes;
    values_.erase(oldest);
    recent_.pop_back();
  }
  recent_.emplace_front(number, mode);
  values_.emplace(recent_.front(), Kept{value, size, recent_.begin()});
  bytes_ += size;
}

const Carried& Replay::carried(size_t number) const { return carrier_->about(number); }

/// What is not kept any more is made again from what is, step by step; what no other step reads is
/// let go at once.
Result<Replay::CarriedValue> Replay::carried_value(size_t number, const Mode& mode) const {
  if (const std::optional<CarriedValue> kept = carrier_->find(number, mode)) return *kept;
  CarriedValues held;
  std::map<size_t, size_t> readers;
  std::set<std::pair<size_t, size_t>> missing;  // in golden's order
  std::vector<size_t> open{number};
  while (!open.empty()) {
    const size_t at = open.back();
    open.pop_back();
    if (!missing.emplace(carrier_->place(at).origin.op, at).second) continue;
    for (const size_t earlier : carried(at).carried) {
      if (++readers[earlier] > 1) continue;
      if (std::optional<CarriedValue> kept = carrier_->find(earlier, mode)) {
        held.emplace(earlier, *std::move(kept));
      } else {
        open.push_back(earlier);
      }
    }
  }
  for (const auto& [op, at] : missing) {
    ASSAY_TRY(CarriedValue value, run_carried(at, mode, held));
    carrier_->keep(at, mode, value);
    for (const size_t earlier : carried(at).carried) {
      if (--readers[earlier] == 0) held.erase(earlier);
    }
    held.insert_or_assign(at, std::move(value));
  }
  return held.at(number);
}

}  // namespace assay::locate
