// SPDX-License-Identifier: Apache-2.0
// Rows become the largest error of each layer, layers become columns, columns become characters.
#include "report/sparkline.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>

#include "base/display.hpp"
#include "base/numbers.hpp"
#include "base/text.hpp"
#include "report/terminal_text.hpp"
#include "run/layers.hpp"

namespace assay::report {
namespace {

using compare::Row;

constexpr std::array<std::string_view, 8> kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::array<std::string_view, 8> kAscii = {".", ":", "-", "=", "+", "*", "%", "#"};
constexpr std::string_view kNoBlock = "·";
constexpr std::string_view kNoAscii = "_";
constexpr size_t kIndent = 2;
constexpr size_t kMostStacks =
    6;  // an encoder, a decoder, a vision tower; not each list of a model

// ---- rows to layers -----------------------------------------------------------------------------

/// NaN where the row says nothing.
double shown_error(const Row& row) {
  if (row.filtered || !row.comparable || holds_indices(row)) return NAN;
  if (row.summary) return row.summary->l2_norm.relative;
  if (!row.metrics) return NAN;
  if (row.patterns && row.patterns->nan_only_in_mine + row.patterns->inf_only_in_mine > 0)
    return kInfinity;
  return row.metrics->relative_euclidean_distance;
}

struct Stack {
  run::NumberedLayer first;
  std::map<int64_t, double> errors;  // by number
};

Stack& stack_of(const run::NumberedLayer& layer, std::vector<Stack>* stacks) {
  const auto known = std::find_if(stacks->begin(), stacks->end(), [&](const Stack& stack) {
    return stack.first.same_stack(layer);
  });
  return known == stacks->end() ? stacks->emplace_back(Stack{layer, {}}) : *known;
}

LayerErrors layer_errors(const Stack& stack, const std::optional<run::NumberedLayer>& bad) {
  LayerErrors layers;
  for (const auto& [number, error] : stack.errors) {
    if (bad && bad->same_stack(stack.first) && bad->number == number)
      layers.marked = layers.numbers.size();
    layers.numbers.push_back(number);
    layers.errors.push_back(error);
  }
  layers.name = printable(stack.first.named(number_ranges(layers.numbers, ",")));
  return layers;
}

// ---- layers to characters -----------------------------------------------------------------------

/// "3e-7" with no more digits than are asked for: 2 give "3.4e-7".
std::string scale_number(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.*e", digits - 1, value);
  std::string number = text;
  const size_t exponent = number.find('e') + 2;
  while (number.size() > exponent + 1 && number[exponent] == '0') number.erase(exponent, 1);
  if (number.ends_with("e+0")) number.resize(number.size() - 3);
  return number;
}

struct Scale {
  double smallest = kInfinity, largest = 0;  // of what is neither 0 nor infinite
  bool differs = false;

  void add(double error) {
    differs |= error > 0;
    if (!(error > 0) || std::isinf(error)) return;
    smallest = std::min(smallest, error);
    largest = std::max(largest, error);
  }
  [[nodiscard]] bool is_empty() const { return largest == 0; }
  [[nodiscard]] size_t level(double error) const {
    constexpr size_t kTop = kBlocks.size() - 1;
    if (smallest == largest) return kTop;
    const double share = std::log(error / smallest) / std::log(largest / smallest);
    return std::min(kTop, static_cast<size_t>(share * static_cast<double>(kBlocks.size())));
  }
  [[nodiscard]] std::string text() const {
    if (is_empty()) return "no finite difference";
    if (smallest == largest) return scale_number(largest, 1);
    // As many digits as tell the two apart.
    for (int digits = 1;; ++digits) {
      const std::string least = scale_number(smallest, digits);
      const std::string most = scale_number(largest, digits);
      if (least != most || digits == 17) return least + " to " + most;
    }
  }
};

Scale scale_of(const std::vector<LayerErrors>& stacks) {
  Scale scale;
  for (const LayerErrors& stack : stacks) {
    for (const double error : stack.errors) scale.add(error);
  }
  return scale;
}

/// Layers come first where both do not fit, but names keep a third of the line.
size_t stack_name_width(const std::vector<LayerErrors>& stacks, size_t width) {
  size_t longest = 0;
  size_t layers = 0;
  for (const LayerErrors& stack : stacks) {
    longest = std::max(longest, display_columns(stack.name));
    layers = std::max(layers, stack.errors.size());
  }
  const size_t beside = width - std::min(width, kIndent + 2 + layers);
  return std::min(longest, std::max(width / 3, beside));
}

std::string_view character(double error, const Scale& scale, bool blocks) {
  if (std::isinf(error)) return "!";
  if (!(error > 0)) return blocks ? kNoBlock : kNoAscii;
  return (blocks ? kBlocks : kAscii)[scale.level(error)];
}

/// Columns of a line with at most `room`: each the largest error of its layers.
struct Pooled {
  std::vector<double> errors;
  std::optional<size_t> marked;
  size_t layers = 1;  // at most, in one column
};

Pooled pooled(const LayerErrors& stack, size_t room) {
  const size_t count = stack.errors.size();
  const size_t columns = std::min(count, room);
  Pooled out{std::vector<double>(columns, 0), {}, (count + columns - 1) / columns};
  for (size_t i = 0; i < count; ++i) {
    const size_t column = i * columns / count;
    out.errors[column] = std::max(out.errors[column], stack.errors[i]);
    if (stack.marked == i) out.marked = column;
  }
  return out;
}

std::string stack_lines(const LayerErrors& stack, const Pooled& line, size_t name_width,
                        const Scale& scale, const SparklineOptions& options) {
  std::string out =
      std::string(kIndent, ' ') + pad_right(shorten(stack.name, name_width), name_width);
  out += "  ";
  for (size_t i = 0; i < line.errors.size(); ++i) {
    out += paint(std::string(character(line.errors[i], scale, options.blocks)), kRed,
                 options.colour && line.marked == i);
  }
  out += "\n";
  if (!line.marked || options.colour) return out;
  const std::string word = std::to_string(stack.numbers[*stack.marked]);
  // Behind the caret, or before it where there is no room.
  const size_t column = kIndent + name_width + 2 + *line.marked;
  const bool fits = column + 2 + word.size() <= options.width;
  return out + (fits ? std::string(column, ' ') + "^ " + word : pad_left(word + " ^", column + 1)) +
         "\n";
}

}  // namespace

std::vector<LayerErrors> errors_by_layer(const compare::Comparison& comparison,
                                         const std::string& first_bad) {
  std::vector<Stack> stacks;
  for (const compare::Sheet& sheet : comparison.sheets) {
    for (const Row& row : sheet.rows) {
      const double error = shown_error(row);
      if (std::isnan(error)) continue;
      const auto layer = run::layer_of_node(node_of_label(row.label));
      if (!layer) continue;
      double& largest = stack_of(*layer, &stacks).errors[layer->number];
      largest = std::max(largest, error);
    }
  }
  const auto bad = run::layer_of_node(node_of_label(first_bad));
  std::vector<LayerErrors> layers;
  for (const Stack& stack : stacks) {
    if (stack.errors.size() > 1) layers.push_back(layer_errors(stack, bad));
  }
  return layers;
}

std::string sparkline(const std::vector<LayerErrors>& stacks, const std::string& measure,
                      const SparklineOptions& options) {
  const Scale scale = scale_of(stacks);
  if (!scale.differs) return {};
  const size_t name_width = stack_name_width(stacks, options.width);
  const size_t room = options.width - kIndent - name_width - 2;
  std::string lines;
  size_t most = 1;
  for (size_t i = 0; i < std::min(stacks.size(), kMostStacks); ++i) {
    const Pooled line = pooled(stacks[i], room);
    most = std::max(most, line.layers);
    lines += stack_lines(stacks[i], line, name_width, scale, options);
  }
  if (stacks.size() > kMostStacks)
    lines += std::string(kIndent, ' ') + "and " +
             counted(stacks.size() - kMostStacks, "more list") + "\n";
  std::string title = "error by layer (" + measure + ", " + scale.text();
  if (most > 1) title += "; the largest of up to " + std::to_string(most) + " layers a column";
  return hanging(title + ")", kIndent, options.width) + "\n" + lines;
}

}  // namespace assay::report
