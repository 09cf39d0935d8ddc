// SPDX-License-Identifier: Apache-2.0
// Holds drafts of the worst pairs so far up to a limit of bytes, and makes pictures of those that
// are left at the end; what the user asked for is made at once.
#include "compare/pictures.hpp"

#include <iterator>

#include "base/thread_pool.hpp"

namespace assay::compare {
namespace {

constexpr uint64_t kDraftBytes = uint64_t{64} << 20;

}  // namespace

bool PictureKeeper::is_among_worst(const Key& key) const {
  if (worst_.size() < worst_count_) return true;
  return worst_count_ > 0 && key < worst_.rbegin()->first;
}

bool PictureKeeper::wants(size_t pair, double severity) const {
  if (is_asked_for(pair)) return true;
  const std::lock_guard lock(mutex_);
  return is_among_worst({-severity, pair});
}

bool PictureKeeper::reserve(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (draft_bytes_ + bytes > kDraftBytes) return false;
  draft_bytes_ += bytes;
  return true;
}

void PictureKeeper::keep(size_t pair, double severity, uint64_t bytes, Draft draft) {
  Kept kept{std::move(draft), bytes};
  if (is_asked_for(pair) || !reserve(bytes)) {
    kept = {[picture = kept.draft()] { return picture; }, 0};
  }
  const std::lock_guard lock(mutex_);
  if (is_asked_for(pair)) {
    asked_for_[pair] = std::move(kept);
    return;
  }
  worst_[{-severity, pair}] = std::move(kept);
  if (worst_.size() <= worst_count_) return;
  const auto last = std::prev(worst_.end());
  draft_bytes_ -= last->second.bytes;
  worst_.erase(last);
}

void PictureKeeper::finish(int jobs,
                           const std::function<void(size_t pair, const Picture& picture)>& use) {
  std::vector<std::pair<size_t, Draft>> drafts;
  for (auto& [key, kept] : worst_) drafts.emplace_back(key.second, std::move(kept.draft));
  for (auto& [pair, kept] : asked_for_) drafts.emplace_back(pair, std::move(kept.draft));
  worst_.clear();
  asked_for_.clear();
  draft_bytes_ = 0;
  parallel_for(drafts.size(), resolve_job_count(jobs), [&](size_t i) {
    const Picture picture = drafts[i].second();
    drafts[i].second = nullptr;
    const std::lock_guard lock(mutex_);
    use(drafts[i].first, picture);
  });
}

}  // namespace assay::compare
