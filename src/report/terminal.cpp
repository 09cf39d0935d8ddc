// SPDX-License-Identifier: Apache-2.0
// Puts the screen together from its parts, from the heading to the paths of the files; two files of
// one or of many tensors have screens of their own.
#include "report/terminal.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <set>

#include "base/display.hpp"
#include "base/text.hpp"
#include "report/rank_errors.hpp"
#include "report/sparkline.hpp"
#include "report/terminal_text.hpp"

namespace assay::report {
namespace {

using compare::Comparison;
using compare::Outcome;
using compare::Row;

constexpr size_t kNumberWidth = 10;

size_t sentence_width(const TerminalOptions& options) {
  return options.whole_lines ? SIZE_MAX / 2 : static_cast<size_t>(options.width);
}

template <typename Number>
std::string number_list(const std::vector<Number>& numbers) {
  std::vector<int64_t> ascending(numbers.begin(), numbers.end());
  std::sort(ascending.begin(), ascending.end());
  return number_ranges(ascending, ",");
}

/// "golden  PATH  PyTorch dump, 82 records" and the same of mine, in columns.
std::string side_lines(const Comparison& comparison, const TerminalOptions& options) {
  struct Side {
    const char* name;
    std::string path, what;
  };
  const auto side = [](const char* name, const std::string& path, run::Layout layout,
                       size_t records) {
    return Side{name, printable(path),
                std::string(run::layout_title(layout)) + ", " + counted(records, "record")};
  };
  const Side sides[] = {
      side("golden", comparison.golden_path, comparison.golden_layout, comparison.golden_records),
      side("mine", comparison.mine_path, comparison.mine_layout, comparison.mine_records)};
  const size_t used = 8 + 2 + std::max(sides[0].what.size(), sides[1].what.size());
  const auto width = static_cast<size_t>(options.width);
  const size_t longest = std::max(display_columns(sides[0].path), display_columns(sides[1].path));
  const size_t room = std::min(longest, width > used + 12 ? width - used : 12);
  std::string out;
  for (const Side& one : sides)
    out +=
        pad_right(one.name, 8) + pad_right(shorten(one.path, room), room) + "  " + one.what + "\n";
  return out;
}

std::string coverage_line(const Comparison& comparison) {
  if (comparison.sheets.empty()) return {};
  const pair::Matching& matching = comparison.sheets.back().matching;
  char percent[32];
  std::snprintf(percent, sizeof(percent), "%.1f %%", matching.coverage_percent());
  std::string text = "matched " + std::string(percent) + " of the tensors";
  std::vector<int64_t> tokens;
  for (const int64_t token : matching.tokens) {
    if (token >= 0) tokens.push_back(token);
  }
  if (!tokens.empty()) text += ", steps " + number_list(tokens);
  std::vector<int> ranks = matching.ranks;
  for (const compare::Sheet& sheet : comparison.sheets) {
    if (sheet.rank >= 0) ranks.push_back(sheet.rank);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  if (!ranks.empty()) text += ", ranks " + number_list(ranks);
  return text;
}

struct Columns {
  const char* first;
  const char* second;
  const char* third;
};

Columns heads(const Comparison& comparison) {
  if (comparison.statistics) return {"l2norm rel", "max abs", "mean abs"};
  return {"rel L2", "cosine", "max abs"};
}

std::vector<std::string> row_numbers(const Row& row) {
  if (row.metrics) {
    return {short_number(row.metrics->relative_euclidean_distance),
            cosine_number(row.metrics->cosine_similarity),
            short_number(row.metrics->max_absolute_error)};
  }
  if (row.summary) {
    return {short_number(row.summary->l2_norm.relative), short_number(row.summary->max.absolute),
            short_number(row.summary->mean.absolute)};
  }
  return {"-", "-", "-"};
}

// What stands in front of the label of a row: what there are several of.
struct RowPlace {
  bool rank = false;
  bool step = false;

  [[nodiscard]] std::string title(const std::string& name) const {
    if (rank) return name + (step ? ", by rank and step" : ", by rank");
    return step ? name + ", by step" : name;
  }
  [[nodiscard]] std::string text(const Row& row) const {
    return (rank ? std::to_string(row.rank) + " " : "") +
           (step ? std::to_string(row.token_id) + " " : "");
  }
};

// What a row is called: its label, behind its place.
std::string row_name(const Row& row, const RowPlace& place, size_t width) {
  const std::string front = place.text(row);
  return front + shorten(printable(row.label), width > front.size() + 8 ? width - front.size() : 8);
}

RowPlace places_in(const Comparison& comparison) {
  std::set<int64_t> tokens;
  std::set<int> ranks;
  for (const compare::Sheet& sheet : comparison.sheets) {
    for (const Row& row : sheet.rows) {
      tokens.insert(row.token_id);
      ranks.insert(row.rank);
    }
  }
  return {.rank = ranks.size() > 1, .step = tokens.size() > 1};
}

// As wide as the longest name, where there is room for it.
size_t name_width_of(const std::string& title, const std::vector<const Row*>& rows,
                     const RowPlace& place, size_t room) {
  size_t longest = title.size();
  for (const Row* row : rows)
    longest = std::max(longest, display_columns(row_name(*row, place, SIZE_MAX)));
  return std::min(longest, std::max<size_t>(room, 16));
}

// The numbers of a row, or why there are none: beside the name where that fits, below it otherwise.
std::string row_end(const Row& row, size_t room, const TerminalOptions& options) {
  if (!row.comparable) {
    const std::string reason = printable(row.fail_reason);
    if (display_columns(reason) < room) return " " + reason + "\n";
    return "\n" + wrapped(reason, 4, sentence_width(options));
  }
  std::string out;
  for (const std::string& number : row_numbers(row)) out += " " + pad_left(number, kNumberWidth);
  if (row.outcome == Outcome::Fail) out += "  " + paint("FAIL", kRed, options.colour);
  return out + "\n";
}

void append_rows(const std::string& name, const std::vector<const Row*>& rows,
                 const Comparison& comparison, const TerminalOptions& options, std::string* out) {
  if (rows.empty()) return;
  const auto width = static_cast<size_t>(options.width);
  const size_t fixed = 3 * (kNumberWidth + 1) + (comparison.judged ? 6 : 0);
  const RowPlace place = places_in(comparison);
  const std::string title = place.title(name);
  const size_t name_width = name_width_of(title, rows, place, width > fixed ? width - fixed : 0);
  const Columns head = heads(comparison);
  *out += "\n" + paint(pad_right(title, name_width), kBold, options.colour);
  for (const char* text : {head.first, head.second, head.third})
    *out += " " + pad_left(text, kNumberWidth);
  *out += "\n";
  for (const Row* row : rows) {
    *out += pad_right(row_name(*row, place, name_width), name_width) +
            row_end(*row, width > name_width ? width - name_width : 0, options);
  }
}

// Ranks that differ from their peers, what the others are together, and a sentence.
std::string rank_lines(const Comparison& comparison, const TerminalOptions& options) {
  constexpr size_t kShown = 8;
  const auto summary = summarise_ranks(comparison, comparison.parallel);
  if (!summary || summary->sentence.empty()) return {};
  struct Line {
    std::string name;
    const RankErrors& errors;
  };
  std::vector<Line> lines;
  for (const RankErrors& one : summary->beside) {
    if (lines.size() == kShown) break;
    const std::string places = places_text(comparison.parallel, one.rank);
    lines.push_back({std::to_string(one.rank) + (places.empty() ? "" : " (" + places + ")"), one});
  }
  const size_t left_out = summary->beside.size() - lines.size();
  if (summary->peers > 0)
    lines.push_back(
        {(summary->beside.empty() ? "all " : "the other ") + std::to_string(summary->peers),
         summary->all_peers});
  size_t width = 5;
  for (const Line& line : lines) width = std::max(width, display_columns(line.name));
  std::string out = "\n" + paint(pad_right("ranks", width), kBold, options.colour);
  for (const char* head : {"pairs", "differ", "worst"}) out += " " + pad_left(head, kNumberWidth);
  out += "\n";
  for (const Line& line : lines) {
    out += pad_right(line.name, width);
    for (const std::string& number :
         {std::to_string(line.errors.pairs), std::to_string(line.errors.different),
          short_number(line.errors.worst)})
      out += " " + pad_left(number, kNumberWidth);
    out += "\n";
  }
  if (left_out > 0) out += "... and " + counted(left_out, "more rank") + "\n";
  return out + hanging(printable(summary->sentence), 2, sentence_width(options)) + "\n";
}

// Where along the layers the runs part.
std::string layer_line(const Comparison& comparison, const TerminalOptions& options) {
  std::string first_bad = options.first_bad;
  const Row* failed = comparison.first_failed_row();
  if (first_bad.empty() && failed != nullptr && comparison.order_known) first_bad = failed->label;
  const std::string text =
      sparkline(errors_by_layer(comparison, first_bad),
                comparison.statistics ? "relative, of the L2 norm" : "relative L2",
                {.width = static_cast<size_t>(options.width),
                 .colour = options.colour,
                 .blocks = options.blocks});
  return text.empty() ? text : "\n" + text;
}

}  // namespace

bool is_same(const Comparison& comparison) {
  const Comparison::Counts counts = comparison.counts();
  return counts.pairs > 0 && counts.identical == counts.pairs && comparison.gaps.empty() &&
         !comparison.damaged && !comparison.statistics;
}

std::string verdict(const Comparison& comparison, const locate::Verdict* located) {
  const Comparison::Counts counts = comparison.counts();
  const auto of_pairs = [&](size_t n) {
    return std::to_string(n) + " of " + std::to_string(counts.pairs) +
           (counts.pairs == 1 ? " pair" : " pairs");
  };
  if (counts.pairs == 0 && counts.filtered > 0)
    return "nothing compared: all " + std::to_string(counts.filtered) +
           " pairs are left out, of other shape or int8 on one side only";
  if (counts.pairs == 0) return "nothing compared: no tensor of golden has a partner in mine";
  std::string text;
  const std::string all = "all " + counted(counts.pairs, "pair");
  const bool is_clean = located == nullptr || located->outcome == locate::VerdictOutcome::Clean;
  if (comparison.judged && counts.failed > 0) {
    text = "differs: " + of_pairs(counts.failed) + " beyond the limits";
  } else if (comparison.judged) {
    text = comparison.gaps.empty() ? "within the limits: " + all
                                   : "not comparable as a whole: " + all + " are within the limits";
  } else if (counts.identical == counts.pairs) {
    text = (is_clean && is_same(comparison) ? "same: " : "") + of_pairs(counts.pairs) +
           (comparison.statistics ? " of equal statistics" : " equal in every value");
  } else {
    text = std::to_string(counts.pairs - counts.identical - counts.unreadable) + " of " +
           std::to_string(counts.pairs) + " pairs differ; no limit was given, so none is judged";
  }
  if (counts.unreadable > 0) text += "; " + of_pairs(counts.unreadable) + " could not be compared";
  for (const std::string& gap : comparison.gaps) text += "; " + gap;
  return text;
}

namespace {

std::string sentence(const std::string& text, const TerminalOptions& options) {
  return hanging(printable(text), 2, sentence_width(options));
}

std::string notes(const Comparison& comparison, const TerminalOptions& options) {
  std::string out;
  for (const std::string& note : comparison.notes) out += sentence("note: " + note, options) + "\n";
  for (const std::string& warning : comparison.warnings)
    out += sentence("warning: " + warning, options) + "\n";
  return out;
}

std::string final_verdict(const Comparison& comparison, const TerminalOptions& options) {
  const bool accused =
      options.verdict != nullptr && options.verdict->outcome == locate::VerdictOutcome::FirstWrong;
  const bool bad = accused || (comparison.judged ? !comparison.is_within_limits()
                                                 : comparison.counts().pairs == 0);
  std::string out = paint(sentence(verdict(comparison, options.verdict), options),
                          bad ? kRed : kGreen, options.colour) +
                    "\n";
  for (const std::string& file : options.files) out += "report: " + file + "\n";
  return out;
}

/// What was compared with what, and how much of it.
std::string heading(const Comparison& comparison, const TerminalOptions& options) {
  return side_lines(comparison, options) + sentence(coverage_line(comparison), options) + "\n";
}

/// The row that comes first beyond its limit, and the limit.
std::string first_beyond(const Comparison& comparison, const TerminalOptions& options) {
  const Row* first = comparison.first_failed_row();
  if (first == nullptr) return {};
  const std::string title =
      comparison.order_known
          ? "first beyond its limit, in execution order:"
          : "one beyond its limit; the first is not known (no order of execution):";
  const std::string place = "step " + std::to_string(first->token_id) + "  " + first->label;
  return "\n" + sentence(title, options) + "\n  " + sentence(place, options) + "\n  " +
         sentence(first->comparable ? first->exceeded.str() : first->fail_reason.str(), options) +
         "\n";
}

}  // namespace

std::string terminal_report(const Comparison& comparison, const TerminalOptions& options) {
  std::string out = heading(comparison, options);
  for (const compare::Sheet& sheet : comparison.sheets) {
    if (comparison.sheets.size() == 1) break;
    out += "  " + pad_right(sheet.name, std::max<size_t>(8, sheet.name.size() + 2)) +
           std::to_string(sheet.matching.pairs.size()) + " pairs\n";
  }
  const Comparison::Counts counts = comparison.counts();
  if (counts.filtered > 0) {
    out += std::to_string(counts.filtered) +
           " rows left out: pairs that were only tried, of other shape\n";
  }
  out += notes(comparison, options);
  out += rank_lines(comparison, options);
  append_rows("worst rows", comparison.worst_rows(options.worst_count), comparison, options, &out);
  out += layer_line(comparison, options) + first_beyond(comparison, options);
  out += "\n" + final_verdict(comparison, options);
  return out;
}

namespace {

/// Two files of many tensors: a line for each, the worst first, equal ones last in the order of the
/// files.
std::string container_report(const Comparison& comparison, const TerminalOptions& options) {
  std::string out = heading(comparison, options);
  out += notes(comparison, options);
  const std::vector<Row>& rows = comparison.sheets.front().rows;
  std::vector<const Row*> lines = comparison.worst_rows(rows.size());
  const std::set<const Row*> worst(lines.begin(), lines.end());
  for (const Row& row : rows) {
    if (!row.filtered && !worst.contains(&row)) lines.push_back(&row);
  }
  append_rows("tensors, the worst first", lines, comparison, options, &out);
  out += layer_line(comparison, options);
  out += "\n" + final_verdict(comparison, options);
  return out;
}

}  // namespace

namespace {

constexpr size_t kKeyWidth = 29;

/// A value that is a text; a long one goes on below itself.
std::string text_line(const char* key, const std::string& text, const TerminalOptions& options) {
  if (text.empty()) return {};
  return hanging(pad_right(key, kKeyWidth) + printable(text), kKeyWidth, sentence_width(options)) +
         "\n";
}

std::string side_line(const char* key, const compare::SideSummary& side,
                      const TerminalOptions& options) {
  return text_line(key, side.path.str() + "  " + side.dtype + " " + side.shape, options);
}

std::string number_lines(const Row& row) {
  std::string out;
  const auto line = [&](const char* name, double value) {
    if (!std::isnan(value)) out += pad_right(name, kKeyWidth) + python_repr(value) + "\n";
  };
  if (row.metrics) {
    line("cosine_similarity", row.metrics->cosine_similarity);
    line("max_relative_error", row.metrics->max_relative_error);
    line("mean_relative_error", row.metrics->mean_relative_error);
    line("max_absolute_error", row.metrics->max_absolute_error);
    line("mean_absolute_error", row.metrics->mean_absolute_error);
    line("kl_divergence", row.metrics->kl_divergence);
    line("relative_euclidean_distance", row.metrics->relative_euclidean_distance);
    line("kl_row_mean", row.metrics->kl_row_mean);
    line("kl_row_max", row.metrics->kl_row_max);
  }
  if (row.summary) {
    line("max_stat_absolute_error", row.summary->max.absolute);
    line("min_stat_absolute_error", row.summary->min.absolute);
    line("mean_stat_absolute_error", row.summary->mean.absolute);
    line("l2norm_stat_absolute_error", row.summary->l2_norm.absolute);
    line("l2norm_stat_relative_error", row.summary->l2_norm.relative);
  }
  return out;
}

}  // namespace

std::string pair_report(const Comparison& comparison, const TerminalOptions& options) {
  std::string out;
  if (comparison.sheets.size() == 1 && comparison.sheets.front().rows.size() > 1)
    return container_report(comparison, options);
  for (const compare::Sheet& sheet : comparison.sheets) {
    for (const Row& row : sheet.rows) {
      out += side_line("golden", row.golden, options) + side_line("mine", row.mine, options);
      out += number_lines(row) + text_line("cmp_fail_reason", row.fail_reason, options);
      out += text_line("note", row.note, options) + text_line("exceeded", row.exceeded, options);
    }
  }
  return out + final_verdict(comparison, options);
}

}  // namespace assay::report
