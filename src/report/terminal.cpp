// SPDX-License-Identifier: Apache-2.0
#include "report/terminal.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "base/text.hpp"
#include "report/terminal_text.hpp"

namespace assay::report {
namespace {

using compare::Comparison;
using compare::Outcome;
using compare::Row;

constexpr size_t kNumberWidth = 10;

template <typename Number>
std::string number_list(const std::vector<Number>& numbers) {
  std::vector<Number> sorted(numbers);
  std::sort(sorted.begin(), sorted.end());
  std::string text;
  for (size_t i = 0; i < sorted.size();) {
    size_t end = i + 1;
    while (end < sorted.size() && sorted[end] == sorted[end - 1] + 1) ++end;
    if (!text.empty()) text += ",";
    text += std::to_string(sorted[i]);
    if (end - i > 1) text += "-" + std::to_string(sorted[end - 1]);
    i = end;
  }
  return text;
}

void append_side(std::string_view name, const std::string& path, run::Layout layout, size_t records,
                 const TerminalOptions& options, std::string* out) {
  const std::string what = std::string(run::layout_title(layout)) + ", " + std::to_string(records) +
                           (records == 1 ? " record" : " records");
  const size_t used = 8 + what.size() + 2;
  const auto width = static_cast<size_t>(options.width);
  const size_t left = width > used + 12 ? width - used : 12;
  *out += pad_right(std::string(name), 8) + pad_right(shorten(printable(path), left), left) + "  " +
          what + "\n";
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

// What a row is called: the end of its label, behind the step when there are several.
std::string row_name(const Row& row, bool show_token, size_t width) {
  const std::string token = show_token ? std::to_string(row.token_id) + " " : "";
  return token + shorten(printable(row.label), width > token.size() + 8 ? width - token.size() : 8);
}

bool has_several_tokens(const Comparison& comparison) {
  std::set<int64_t> tokens;
  for (const compare::Sheet& sheet : comparison.sheets) {
    for (const Row& row : sheet.rows) tokens.insert(row.token_id);
  }
  return tokens.size() > 1;
}

void append_rows(const std::string& title, const std::vector<const Row*>& rows,
                 const Comparison& comparison, const TerminalOptions& options, std::string* out) {
  if (rows.empty()) return;
  const auto width = static_cast<size_t>(options.width);
  const size_t mark_width = comparison.judged ? 6 : 0;
  const size_t fixed = 3 * (kNumberWidth + 1) + mark_width;
  const size_t name_width = width > fixed + 16 ? width - fixed : 16;
  const Columns head = heads(comparison);
  const bool show_token = has_several_tokens(comparison);
  *out += "\n" + paint(pad_right(show_token ? title + ", by step" : title, name_width), kBold,
                       options.colour);
  for (const char* text : {head.first, head.second, head.third}) {
    *out += " " + pad_left(text, kNumberWidth);
  }
  *out += "\n";
  for (const Row* row : rows) {
    *out += pad_right(row_name(*row, show_token, name_width), name_width);
    if (!row->comparable) {
      *out += " " + shorten(printable(row->fail_reason), fixed - 1) + "\n";
      continue;
    }
    for (const std::string& number : row_numbers(*row))
      *out += " " + pad_left(number, kNumberWidth);
    if (row->outcome == Outcome::Fail) *out += "  " + paint("FAIL", kRed, options.colour);
    *out += "\n";
  }
}

}  // namespace

std::string verdict(const Comparison& comparison) {
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
  const std::string all = "all " + std::to_string(counts.pairs) + " pairs ";
  if (comparison.judged && counts.failed > 0) {
    text = "differs: " + of_pairs(counts.failed) + " beyond the limits";
  } else if (comparison.judged) {
    text =
        (comparison.gaps.empty() ? "same: " + all : "not comparable as a whole: " + all + "are ") +
        "within the limits";
  } else if (counts.identical == counts.pairs) {
    text = (comparison.gaps.empty() ? "same: " : "") + of_pairs(counts.pairs) +
           " equal in every value";
  } else {
    text = std::to_string(counts.pairs - counts.identical - counts.unreadable) + " of " +
           std::to_string(counts.pairs) + " pairs differ; no limit was given, so none is judged";
  }
  if (counts.unreadable > 0) text += "; " + of_pairs(counts.unreadable) + " could not be compared";
  for (const std::string& gap : comparison.gaps) text += "; " + gap;
  return text;
}

namespace {

void append_notes(const Comparison& comparison, std::string* out) {
  for (const std::string& note : comparison.notes) *out += "note: " + printable(note) + "\n";
  for (const std::string& warning : comparison.warnings)
    *out += "warning: " + printable(warning) + "\n";
}

std::string final_verdict(const Comparison& comparison, const TerminalOptions& options) {
  const bool bad =
      comparison.judged ? !comparison.is_within_limits() : comparison.counts().pairs == 0;
  std::string out = paint(verdict(comparison), bad ? kRed : kGreen, options.colour) + "\n";
  for (const std::string& file : options.files) out += "report: " + file + "\n";
  return out;
}

/// What was compared with what, and how much of it.
std::string heading(const Comparison& comparison, const TerminalOptions& options) {
  std::string out;
  append_side("golden", comparison.golden_path, comparison.golden_layout, comparison.golden_records,
              options, &out);
  append_side("mine", comparison.mine_path, comparison.mine_layout, comparison.mine_records,
              options, &out);
  out += coverage_line(comparison) + "\n";
  return out;
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
  append_notes(comparison, &out);
  append_rows("worst rows", comparison.worst_rows(options.worst_count), comparison, options, &out);
  if (const Row* first = comparison.first_failed_row()) {
    out += comparison.order_known
               ? "\nfirst beyond its limit, in execution order:\n  step "
               : "\none beyond its limit; the first is not known (no order of execution):\n  step ";
    out += std::to_string(first->token_id) + "  " + printable(first->label) + "\n  " +
           printable(first->comparable ? first->exceeded : first->fail_reason) + "\n";
  }
  out += "\n" + final_verdict(comparison, options);
  return out;
}

namespace {

/// Two files of many tensors: a line for each, the worst first, equal ones last in the order of the
/// files.
std::string container_report(const Comparison& comparison, const TerminalOptions& options) {
  std::string out = heading(comparison, options);
  append_notes(comparison, &out);
  const std::vector<Row>& rows = comparison.sheets.front().rows;
  std::vector<const Row*> lines = comparison.worst_rows(rows.size());
  const std::set<const Row*> worst(lines.begin(), lines.end());
  for (const Row& row : rows) {
    if (!row.filtered && !worst.contains(&row)) lines.push_back(&row);
  }
  append_rows("tensors, the worst first", lines, comparison, options, &out);
  out += "\n" + final_verdict(comparison, options);
  return out;
}

}  // namespace

std::string pair_report(const Comparison& comparison, const TerminalOptions& options) {
  std::string out;
  if (comparison.sheets.size() == 1 && comparison.sheets.front().rows.size() > 1)
    return container_report(comparison, options);
  for (const compare::Sheet& sheet : comparison.sheets) {
    for (const Row& row : sheet.rows) {
      out += pad_right("golden", 29) + row.golden.path + "  " + row.golden.dtype + " " +
             row.golden.shape + "\n";
      out += pad_right("mine", 29) + row.mine.path + "  " + row.mine.dtype + " " + row.mine.shape +
             "\n";
      const auto line = [&](const char* name, double value) {
        if (!std::isnan(value)) out += pad_right(name, 29) + python_repr(value) + "\n";
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
      if (!row.fail_reason.empty())
        out += pad_right("cmp_fail_reason", 29) + printable(row.fail_reason) + "\n";
      if (!row.note.empty()) out += pad_right("note", 29) + row.note + "\n";
      if (!row.exceeded.empty()) out += pad_right("exceeded", 29) + printable(row.exceeded) + "\n";
    }
  }
  out += final_verdict(comparison, options);
  return out;
}

}  // namespace assay::report
