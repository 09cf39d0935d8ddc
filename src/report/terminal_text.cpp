// SPDX-License-Identifier: Apache-2.0
// Names lose parts in their middle: the number of the layer and the last part stay. Sentences are
// broken at blanks, and numbers shortened.
#include "report/terminal_text.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "base/display.hpp"
#include "base/text.hpp"
#include "run/layers.hpp"
#include "run/record.hpp"

namespace assay::report {

namespace {

constexpr std::string_view kGap = "...";

/// A part of a name, as "layers" of "model.layers.17".
struct Part {
  std::string_view separator;  // in front of it: ".", "/", "::" or nothing
  std::string_view text;
  bool kept = false;
};

/// The last part is whole whatever it holds: an operator's name, and what a label says behind its
/// name, as " input kwargs.hidden_states".
std::vector<Part> parts_of(std::string_view name) {
  std::vector<Part> parts;
  const size_t end = std::min(name.find(kOperatorMark), node_of_label(name).size());
  const bool has_operator = name.substr(end).starts_with(kOperatorMark);
  size_t start = 0;
  size_t separator = 0;  // its length
  for (size_t i = 1; i < end; ++i) {
    if (name[i] != '.' && name[i] != '/') continue;
    parts.push_back({name.substr(start - separator, separator), name.substr(start, i - start)});
    start = i + 1;
    separator = 1;
  }
  const size_t length = has_operator ? end - start : name.size() - start;
  parts.push_back({name.substr(start - separator, separator), name.substr(start, length)});
  if (has_operator) parts.push_back({kOperatorMark, name.substr(end + kOperatorMark.size())});
  return parts;
}

std::string kept_text(const std::vector<Part>& parts) {
  std::string text;
  bool gap = false;
  for (const Part& part : parts) {
    if (!part.kept) {
      gap = true;
      continue;
    }
    text += std::string(gap ? kGap : part.separator) + std::string(part.text);
    gap = false;
  }
  return text;
}

/// The part with the number of the layer; the first part where there is none, as in "/data/golden".
size_t layer_part(const std::vector<Part>& parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    if (run::layer_of_part(parts[i].text)) return i;
  }
  return 0;
}

/// "17" of "17_Decoder_layer".
std::string_view number_of(std::string_view part) { return part.substr(0, part.find('_')); }

/// Keeps a part where it still fits.
bool keep(size_t index, size_t width, std::vector<Part>* parts) {
  Part& part = (*parts)[index];
  if (part.kept) return true;
  part.kept = true;
  part.kept = display_columns(kept_text(*parts)) <= width;
  return part.kept;
}

/// Fills what the last part and the layer's leave free: first what stands before the layer, from
/// there outwards, then what stands behind it, from the end inwards.
void keep_more(size_t layer, size_t width, std::vector<Part>* parts) {
  for (size_t i = layer; i-- > 0;) {
    if (!keep(i, width, parts)) break;
  }
  for (size_t i = parts->size(); i-- > layer;) keep(i, width, parts);
}

/// Both ends of a text without parts.
std::string cut_middle(std::string_view text, size_t width) {
  constexpr size_t kLeastEnd = 4;
  if (width <= kGap.size() + kLeastEnd) return std::string(last_columns(text, width));
  const std::string_view head = first_columns(text, (width - kGap.size()) / 2);
  const size_t room = width - kGap.size() - display_columns(head);
  return std::string(head) + std::string(kGap) + std::string(last_columns(text, room));
}

/// Lines of whole words; `room` columns each, the first `first_room`. Blanks at the beginning of the
/// text stay.
std::vector<std::string> broken(std::string_view text, size_t first_room, size_t room,
                                bool shorten_words) {
  std::vector<std::string> lines(1);
  bool begins = true;  // nothing stands on the line yet
  for (const std::string_view part : split(text, ' ')) {
    const size_t left = lines.size() == 1 ? first_room : room;
    const std::string word = shorten_words ? shorten(part, room) : std::string(part);
    const bool is_indented = lines.back().find_first_not_of(' ') == std::string::npos;
    if (begins) {
      lines.back() = word;
    } else if (!is_indented && display_columns(lines.back()) + 1 + display_columns(word) > left) {
      if (word.empty()) continue;  // blanks at the end of a line
      lines.back().resize(lines.back().find_last_not_of(' ') + 1);
      lines.push_back(word);
    } else {
      lines.back() += " " + word;
    }
    begins = false;
  }
  return lines;
}

}  // namespace

std::string_view node_of_label(std::string_view label) {
  size_t end = label.size();
  for (const std::string_view role : {" input", " output", " weight", " buffer"})
    end = std::min(end, label.find(role));
  return label.substr(0, end);
}

std::string shorten(std::string_view text, size_t width) {
  if (display_columns(text) <= width) return std::string(text);
  std::vector<Part> parts = parts_of(text);
  const size_t layer = layer_part(parts);
  parts.back().kept = parts[layer].kept = true;
  if (display_columns(kept_text(parts)) > width && layer + 1 < parts.size())
    parts[layer].text = number_of(parts[layer].text);
  const std::string least = kept_text(parts);
  if (display_columns(least) <= width) {
    keep_more(layer, width, &parts);
    return kept_text(parts);
  }
  // The last part is cut, behind the number where there is room for both.
  constexpr size_t kLeastRoom = 8;
  const std::string_view last = parts.back().text;
  std::string before = least.substr(0, least.size() - last.size());
  if (before.starts_with(kGap)) before.erase(0, kGap.size());
  const size_t others = display_columns(before);
  if (width < others + kLeastRoom) return cut_middle(last, width);
  return before + cut_middle(last, width - others);
}

std::string wrapped(std::string_view text, size_t indent, size_t width) {
  const size_t room = width > indent + 8 ? width - indent : 8;
  std::string out;
  for (const std::string& line : broken(text, room, room, true))
    out += std::string(indent, ' ') + line + "\n";
  return out;
}

std::string hanging(std::string_view text, size_t indent, size_t width) {
  const size_t room = width > indent + 8 ? width - indent : 8;
  std::string out;
  for (const std::string& line : broken(text, width, room, false))
    out += (out.empty() ? "" : "\n" + std::string(indent, ' ')) + line;
  std::replace(out.begin(), out.end(), kNoBreak, ' ');
  return out;
}

std::string pad_right(std::string text, size_t width) {
  const size_t columns = display_columns(text);
  if (columns < width) text.append(width - columns, ' ');
  return text;
}
std::string pad_left(const std::string& text, size_t width) {
  const size_t columns = display_columns(text);
  return columns < width ? std::string(width - columns, ' ') + text : text;
}

std::string short_number(double value) {
  if (std::isnan(value)) return "-";
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g", value);
  return text;
}

std::string cosine_number(double value) {
  if (std::isnan(value)) return "-";
  char text[32];
  std::snprintf(text, sizeof(text), "%.7f", value);
  return text;
}

std::string paint(std::string text, const char* code, bool colour) {
  return colour ? std::string("\033[") + code + "m" + text + "\033[0m" : text;
}

}  // namespace assay::report
