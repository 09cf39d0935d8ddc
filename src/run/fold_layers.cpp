// SPDX-License-Identifier: Apache-2.0
// One pass a depth of the paths, the outermost first: collect what each layer holds, give layers
// that hold the same one name, go on with what is left.
#include "run/fold_layers.hpp"

#include <algorithm>
#include <map>

#include "base/display.hpp"
#include "base/text.hpp"
#include "run/layers.hpp"

namespace assay::run {
namespace {

struct Layer {
  std::string content;        // all lines below it
  bool has_inner = false;     // a line has more path than the layer's
  std::vector<size_t> lines;  // places in the listing as it is now
};
using Stack = std::map<int64_t, Layer>;  // by number
using Numbers = std::vector<int64_t>;

std::string joined(const std::vector<std::string>& path, size_t first, size_t end) {
  std::string text;
  for (size_t i = first; i < end; ++i) text += path[i] + '\0';
  return text;
}

/// The stacks whose numbers stand at `depth`, in the order of their first lines.
std::vector<Stack> stacks_at(size_t depth, const std::vector<FoldedPart>& listing,
                             const std::vector<ListedPart>& parts) {
  std::vector<Stack> stacks;
  std::map<std::string, size_t> known;
  for (size_t i = 0; i < listing.size(); ++i) {
    const std::vector<std::string>& path = listing[i].path;
    if (path.size() <= depth) continue;
    const auto layer = layer_of_part(path[depth]);
    if (!layer) continue;
    const std::string name = joined(path, 0, depth) + layer->named("\n");
    const auto [found, is_new] = known.try_emplace(name, stacks.size());
    if (is_new) stacks.emplace_back();
    Layer& one = stacks[found->second][layer->number];
    one.content += joined(path, depth + 1, path.size()) + parts[listing[i].index].what + '\n';
    one.has_inner |= path.size() > depth + 1;
    one.lines.push_back(i);
  }
  return stacks;
}

/// Numbers of equal layers, ascending; layers without anything in them only next to each other.
std::vector<Numbers> equal_layers(const Stack& stack) {
  std::map<std::string_view, std::vector<Numbers>> groups;  // by content
  for (const auto& [number, layer] : stack) {
    std::vector<Numbers>& equal = groups[layer.content];
    const bool joins = !equal.empty() && (layer.has_inner || equal.back().back() + 1 == number);
    if (!joins) equal.emplace_back();
    equal.back().push_back(number);
  }
  std::vector<Numbers> found;
  for (const auto& [content, equal] : groups) {
    std::copy_if(equal.begin(), equal.end(), std::back_inserter(found),
                 [](const Numbers& numbers) { return numbers.size() > 1; });
  }
  return found;
}

/// "0-11", "0, 2, 4", "0, 3, 6, ... 33"
std::string short_ranges(const Numbers& numbers) {
  constexpr size_t kRanges = 3;
  const std::string all = number_ranges(numbers, ", ");
  const std::vector<std::string_view> ranges = split(all, ',');
  if (ranges.size() <= kRanges + 1) return all;
  std::string text;
  for (size_t i = 0; i < kRanges; ++i) text += std::string(ranges[i]) + ",";
  return text + " ..." + std::string(ranges.back());
}

void fold(const Stack& stack, const Numbers& numbers, size_t depth,
          std::vector<FoldedPart>* listing, std::vector<bool>* dropped) {
  const auto first = std::min_element(numbers.begin(), numbers.end(), [&](int64_t a, int64_t b) {
    return stack.at(a).lines < stack.at(b).lines;
  });
  const std::string ranges = short_ranges(numbers);
  for (const int64_t number : numbers) {
    for (const size_t line : stack.at(number).lines) {
      (*dropped)[line] = number != *first;
      if (number != *first) continue;
      FoldedPart& part = (*listing)[line];
      part.path[depth] = layer_of_part(part.path[depth])->named(ranges);
      part.folds.push_back({depth, numbers.size()});
    }
  }
}

}  // namespace

std::vector<FoldedPart> fold_layers(const std::vector<ListedPart>& parts) {
  std::vector<FoldedPart> listing;
  size_t deepest = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    listing.push_back({.index = i, .path = parts[i].path});
    deepest = std::max(deepest, parts[i].path.size());
  }
  for (size_t depth = 0; depth < deepest; ++depth) {
    std::vector<bool> dropped(listing.size());
    for (const Stack& stack : stacks_at(depth, listing, parts)) {
      for (const Numbers& numbers : equal_layers(stack))
        fold(stack, numbers, depth, &listing, &dropped);
    }
    std::vector<FoldedPart> kept;
    for (size_t i = 0; i < listing.size(); ++i) {
      if (!dropped[i]) kept.push_back(std::move(listing[i]));
    }
    listing = std::move(kept);
  }
  return listing;
}

}  // namespace assay::run
