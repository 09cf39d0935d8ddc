// SPDX-License-Identifier: Apache-2.0
#include "compare/pictures.hpp"

#include <iterator>

namespace assay::compare {

bool PictureKeeper::is_among_worst(const Key& key) const {
  if (worst_.size() < worst_count_) return true;
  return worst_count_ > 0 && key < worst_.rbegin()->first;
}

bool PictureKeeper::wants(size_t pair, double severity) const {
  if (is_asked_for(pair)) return true;
  const std::lock_guard lock(mutex_);
  return is_among_worst({-severity, pair});
}

void PictureKeeper::keep(size_t pair, double severity, Picture picture) {
  const std::lock_guard lock(mutex_);
  if (is_asked_for(pair)) {
    asked_for_[pair] = std::move(picture);
    return;
  }
  const Key key{-severity, pair};
  if (!is_among_worst(key)) return;
  worst_[key] = std::move(picture);
  if (worst_.size() > worst_count_) worst_.erase(std::prev(worst_.end()));
}

void PictureKeeper::for_each(
    const std::function<void(size_t pair, const Picture& picture)>& use) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, picture] : worst_) use(key.second, picture);
  for (const auto& [pair, picture] : asked_for_) use(pair, picture);
}

}  // namespace assay::compare
