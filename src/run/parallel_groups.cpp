// SPDX-License-Identifier: Apache-2.0
// Words for a kind of group stand in one table. A rank's places are the digits of its number, with
// the sizes of the groups as bases and the first group as the lowest digit.
#include "run/parallel_groups.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "base/ascii.hpp"
#include "base/numbers.hpp"
#include "base/text.hpp"

namespace assay::run {
namespace {

struct Kind {
  std::string_view name;
  std::array<std::string_view, 8> words;
};
constexpr Kind kKinds[] = {
    {"tp", {"tp", "tensor", "tensor_parallel", "model", "mp"}},
    {"pp", {"pp", "pipe", "pipeline", "pipeline_parallel", "stage"}},
    {"dp",
     {"dp", "data", "data_parallel", "fsdp", "dp_shard", "replicate", "dp_replicate", "shard"}},
    {"ep", {"ep", "expert", "expert_parallel", "experts"}},
    {"cp", {"cp", "context", "context_parallel", "sp", "sequence", "seq"}},
};

std::string_view without_spaces_around(std::string_view text) {
  const size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

std::string_view kind_of(std::string_view word) {
  if (word.empty()) return {};
  const std::string name = lower_case(word);
  for (const Kind& kind : kKinds)
    if (std::ranges::find(kind.words, name) != kind.words.end()) return kind.name;
  return {};
}

}  // namespace

int64_t ParallelSizes::job_size() const {
  int64_t size = 1;
  for (const Group& group : groups) size *= group.size;
  return size;
}

native::ParallelPlaces ParallelSizes::places_of(int rank) const {
  native::ParallelPlaces places;
  int64_t left = rank;
  for (const Group& group : groups) {
    if (group.size > 1) places[group.kind] = {.rank = left % group.size, .size = group.size};
    left /= group.size;
  }
  return places;
}

Result<ParallelSizes> parse_parallel(std::string_view text) {
  const auto refuse = [&](const std::string& why) {
    return fail(Errc::Usage, "parallel " + quoted(text) + why);
  };
  ParallelSizes sizes;
  sizes.text = text;
  int64_t ranks = 1;
  for (const std::string_view part : split(text, ',')) {
    const size_t equals = part.find('=');
    const auto size = equals == std::string_view::npos
                          ? std::nullopt
                          : parse_number<int64_t>(without_spaces_around(part.substr(equals + 1)));
    if (!size) return refuse(" is not like 'tp=2,pp=2,dp=2'");
    const std::string_view word = without_spaces_around(part.substr(0, equals));
    const std::string_view kind = kind_of(word);
    if (kind.empty())
      return refuse(": " + quoted(word) + " is no kind of group (tp, pp, dp, ep, cp)");
    const bool is_there = std::ranges::any_of(
        sizes.groups, [&](const ParallelSizes::Group& group) { return group.kind == kind; });
    if (*size < 1 || is_there)
      return refuse(": " + quoted(word) + " is there twice, or smaller than 1");
    if (*size > std::numeric_limits<int>::max() / ranks)
      return refuse(": no job has so many ranks");
    ranks *= *size;
    sizes.groups.push_back({std::string(kind), *size});
  }
  return sizes;
}

}  // namespace assay::run
