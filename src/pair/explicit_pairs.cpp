// SPDX-License-Identifier: Apache-2.0
// Reads the JSON of --map with its slices, and finds the records that an entry's selectors name.
#include "pair/explicit_pairs.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/numbers.hpp"
#include "base/text.hpp"
#include "run/common_names.hpp"

namespace assay::pair {
namespace {

using nlohmann::json;

constexpr int64_t kOpenEnd = std::numeric_limits<int64_t>::max();

std::string_view trim(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// "cat:1", "sum", "pick", "none"
Status parse_reduce(std::string_view text, ExplicitPair* pair) {
  const size_t colon = text.find(':');
  const std::string_view word = text.substr(0, colon);
  if (word == "cat" && colon != std::string_view::npos) {
    const std::optional<int> axis = parse_number<int>(text.substr(colon + 1));
    if (!axis) return fail(Errc::Invalid, "'" + std::string(text) + "': an axis, as in cat:1");
    pair->merge = Merge::Concat;
    pair->axis = *axis;
  } else if (text == "sum") {
    pair->merge = Merge::Sum;
  } else if (text == "pick") {
    pair->merge = Merge::Pick;
  } else if (text == "none") {
    pair->merge = Merge::None;
  } else {
    return fail(Errc::Invalid, "'reduce' is none, cat:AXIS, sum or pick");
  }
  return {};
}

Status parse_entry(const json& entry, ExplicitPair* pair) {
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) {
      return fail(Errc::Invalid,
                  "expected \"golden\" and \"my\" with a text each, found '" + key + "'");
    }
    const std::string text = value.get<std::string>();
    if (key == "golden") {
      pair->golden = text;
    } else if (key == "my") {
      pair->mine = text;
    } else if (key == "slice") {
      ASSAY_TRY(pair->golden_steps, parse_slice(text));
    } else if (key == "my_slice") {
      ASSAY_TRY(pair->mine_steps, parse_slice(text));
    } else if (key == "reduce") {
      ASSAY_TRY_STATUS(parse_reduce(text, pair));
    } else {
      return fail(Errc::Invalid,
                  "unknown key '" + key + "'; known are golden, my, slice, my_slice, reduce");
    }
  }
  if (pair->golden.empty() || pair->mine.empty())
    return fail(Errc::Invalid, "needs \"golden\" and \"my\"");
  return {};
}

bool is_named(const run::Run& run, const run::TensorRecord& record, std::string_view selector) {
  if (record.bytes) {
    const std::string& file = record.bytes->file;
    if (file == selector || file.ends_with("/" + std::string(selector))) return true;
  }
  const std::string path = run::module_path(run, record.node);
  return selector == path || selector == record.node || selector == path + ":" + record.slot ||
         selector == record.node + ":" + record.slot;
}

}  // namespace

Result<std::vector<RecipeStep>> parse_slice(std::string_view text) {
  text = trim(text);
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  std::vector<RecipeStep> steps;
  int axis = 0;  // of the tensor as it is after the earlier steps: an index takes its axis away
  for (std::string_view part : split(text, ',')) {
    part = trim(part);
    const auto wrong = [&] {
      return fail(Errc::Invalid, "'" + std::string(part) + "' is no index or range");
    };
    const size_t colon = part.find(':');
    if (colon == std::string_view::npos) {
      const auto index = parse_number<int64_t>(part);
      if (!index) return wrong();
      steps.push_back({.kind = RecipeStep::Kind::Select, .axis = axis, .first = *index});
      continue;
    }
    const std::string_view first = trim(part.substr(0, colon));
    const std::string_view last = trim(part.substr(colon + 1));
    const auto from = first.empty() ? std::optional<int64_t>(0) : parse_number<int64_t>(first);
    const auto to = last.empty() ? std::optional<int64_t>(kOpenEnd) : parse_number<int64_t>(last);
    if (!from || !to) return wrong();
    if (*from != 0 || *to != kOpenEnd) {
      steps.push_back({.kind = RecipeStep::Kind::Range, .axis = axis, .first = *from, .last = *to});
    }
    ++axis;
  }
  return steps;
}

Result<std::vector<RecipeStep>> resolve_steps(const std::vector<RecipeStep>& steps,
                                              const Dims& shape) {
  std::vector<int64_t> sizes(shape.span().begin(), shape.span().end());
  std::vector<RecipeStep> out;
  for (RecipeStep step : steps) {
    const auto axis = static_cast<size_t>(step.axis);
    if (step.axis < 0 || axis >= sizes.size())
      return fail(Errc::Invalid,
                  "the slice has more axes than the shape " + list_text(shape.span()));
    const int64_t size = sizes[axis];
    const auto from_end = [size](int64_t value) { return value < 0 ? value + size : value; };
    step.first = from_end(step.first);
    if (step.kind == RecipeStep::Kind::Select) {
      if (step.first < 0 || step.first >= size) {
        return fail(Errc::Invalid,
                    "the slice's index is outside of the shape " + list_text(shape.span()));
      }
      sizes.erase(sizes.begin() + step.axis);
    } else if (step.kind == RecipeStep::Kind::Range) {
      step.first = std::clamp<int64_t>(step.first, 0, size);
      step.last = std::clamp<int64_t>(from_end(step.last), step.first, size);
      sizes[axis] = step.last - step.first;
    }
    out.push_back(std::move(step));
  }
  return out;
}

Result<std::vector<ExplicitPair>> parse_explicit_pairs(std::string_view text) {
  json list;
  try {
    list = json::parse(text);
  } catch (const json::parse_error& error) {
    return fail(Errc::Invalid, "is not JSON", error.byte);
  }
  if (!list.is_array()) return fail(Errc::Invalid, "a JSON list of objects is expected");
  std::vector<ExplicitPair> pairs;
  for (const json& entry : list) {
    if (!entry.is_object()) return fail(Errc::Invalid, "every entry of the list must be an object");
    ExplicitPair pair;
    if (const Status parsed = parse_entry(entry, &pair); !parsed) {
      return fail(parsed.error().code,
                  "entry " + std::to_string(pairs.size()) + ": " + parsed.error().message);
    }
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

std::vector<size_t> named_records(const run::Run& run, std::string_view selector) {
  std::vector<size_t> found;
  for (size_t i = 0; i < run.records.size(); ++i) {
    if (is_named(run, run.records[i], selector)) found.push_back(i);
  }
  return found;
}

std::string named_module(const run::Run& run, std::string_view selector) {
  std::set<std::string> modules;
  for (const size_t i : named_records(run, selector)) {
    const std::string path = run::module_path(run, run.records[i].node);
    modules.emplace(module_of_node(path));
  }
  return modules.size() == 1 ? *modules.begin() : std::string();
}

void name_modules(const run::Run& golden, const run::Run& mine,
                  const std::vector<ExplicitPair>& entries,
                  std::vector<std::pair<std::string, std::string>>* modules, size_t* of_tensors) {
  for (const ExplicitPair& entry : entries) {
    const bool is_whole = !entry.merge && entry.golden_steps.empty() && entry.mine_steps.empty();
    std::string golden_module = named_module(golden, entry.golden);
    std::string mine_module = named_module(mine, entry.mine);
    if (is_whole && !golden_module.empty() && !mine_module.empty()) {
      modules->emplace_back(std::move(golden_module), std::move(mine_module));
    } else {
      ++*of_tensors;
    }
  }
}

}  // namespace assay::pair
