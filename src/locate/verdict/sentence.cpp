// SPDX-License-Identifier: Apache-2.0
// A function for each clause, empty where the clause does not apply; add() puts "; " between them.
//   docs/localisation.md, "The sentence"
#include "locate/verdict/sentence.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "base/text.hpp"
#include "locate/judge/pair_tests.hpp"
#include "locate/verdict/unjudged_steps.hpp"
#include "run/common_names.hpp"

namespace assay::locate {
namespace {

// "31x what rounding explains"; of what is infinitely more than that there is nothing to count.
std::string beyond_rounding(double ratio) {
  return std::isinf(ratio) ? "which no rounding explains"
                           : times_text(ratio) + " what rounding explains";
}

void add(std::string* text, const std::string& clause) {
  if (clause.empty()) return;
  if (!text->empty()) *text += "; ";
  *text += clause;
}

std::string worst_element(const Finding& finding) {
  if (std::isnan(finding.worst_ulp) || std::isnan(finding.allowed_ulp)) return {};
  return ", largest element " + amount_text(finding.worst_ulp) + " ULP where " +
         amount_text(finding.allowed_ulp) + " is allowed";
}

std::string own_error_clause(const Finding& finding) {
  if (std::isnan(finding.ratio))
    return finding.detail.empty() ? "its result is not that of its inputs" : finding.detail;
  if (std::isinf(finding.ratio)) {
    return finding.detail.empty()
               ? "its result is not that of its inputs: other integers, NaN or shape"
               : finding.detail;
  }
  return "its own error is " + beyond_rounding(finding.ratio) + worst_element(finding);
}

std::string weight_clause(const Finding& finding) {
  const std::string name = finding.slot.empty() ? "weight" : finding.slot;
  std::string text;
  if (!finding.hypothesis.empty()) {
    text = finding.hypothesis.starts_with("weight ")
               ? finding.hypothesis
               : name + " differs from golden's: " + finding.hypothesis;
    if (finding.err_own > finding.noise_floor)
      text += " (" + percent_text(finding.err_own) + " relative L2)";
  } else {
    text = finding.detail.empty() ? name + " differs from golden's" : finding.detail;
  }
  return text;
}

std::string gap_clause(const Finding& finding) {
  std::string text = "golden's function of the run's own values gives something else";
  if (!std::isnan(finding.ratio)) text += ", " + beyond_rounding(finding.ratio);
  return text;
}

std::string measured_clause(const Finding& finding) {
  if (std::isnan(finding.ratio)) return "differs more from golden than healthy runs do";
  if (std::isinf(finding.ratio)) return "differs from golden where healthy runs do not";
  return "differs " + times_text(finding.ratio) + " as much from golden as healthy runs do";
}

std::string first_clause(const Finding& finding) {
  if (finding.kind == FindingKind::OwnError) return own_error_clause(finding);
  if (finding.kind == FindingKind::Weight) return weight_clause(finding);
  if (finding.kind == FindingKind::Gap) return gap_clause(finding);
  if (finding.kind == FindingKind::MeasuredFloor) return measured_clause(finding);
  constexpr const char* kClauses[] = {"",
                                      "",
                                      "an argument differs from golden's",
                                      "a constant differs from golden's",
                                      "golden's program has no such operator",
                                      "an input is not what it is in golden's program",
                                      "",
                                      "",
                                      "NaN or infinity comes out of finite inputs",
                                      "shape or integer values differ from golden's",
                                      "ranks hold different values of a tensor that they share"};
  return finding.detail.empty() ? kClauses[static_cast<size_t>(finding.kind)] : finding.detail;
}

// "in all 12 layers"
std::string layers_of(const Systematic& group) {
  return group.members >= group.layers
             ? "all " + std::to_string(group.layers) + " layers"
             : std::to_string(group.members) + " of " + std::to_string(group.layers) + " layers";
}

const Systematic* systematic_of(const Verdict& verdict) {
  if (verdict.candidates.empty()) return nullptr;
  const Finding& first = verdict.candidates.front();
  const std::string pattern = run::layer_pattern(first.module);
  for (const Systematic& group : verdict.systematic) {
    if (group.kind == first.kind &&
        (group.pattern == pattern || group.pattern.starts_with(pattern + " ")))
      return &group;
  }
  return nullptr;
}

std::string others_clause(const Verdict& verdict) {
  const Coverage& coverage = verdict.coverage;
  std::string text;
  if (verdict.candidates.size() > 1)
    add(&text, counted(verdict.candidates.size() - 1, "more candidate"));
  if (verdict.level == JudgedBy::Operators && coverage.judged > 0) {
    size_t wrong = 0;
    for (const Finding& finding : verdict.candidates)
      wrong += finding.kind == FindingKind::OwnError ? 1 : 0;
    const size_t other = wrong + coverage.judged_around;
    const size_t exact = coverage.judged > other ? coverage.judged - other : 0;
    add(&text, std::to_string(exact) + (wrong > 0 ? " other" : "") +
                   (exact == 1 ? " operator" : " operators") + " exact to rounding");
    if (coverage.judged < coverage.judgeable)
      text += ", " + std::to_string(coverage.judgeable - coverage.judged) + " not judged";
  }
  return text;
}

/// "0.3 %", "0.0001 %": one digit, and no exponent.
std::string percent(double share) {
  char digit[32], text[48];
  std::snprintf(digit, sizeof(digit), "%.0e", 100 * share);
  const double rounded = std::strtod(digit, nullptr);
  const int decimals = std::max(0, -std::atoi(std::strchr(digit, 'e') + 1));
  std::snprintf(text, sizeof(text), "%.*f %%", std::min(decimals, 12),
                share < 0.095 ? rounded : 100 * share);
  return text;
}

std::string power_place(const Power& power) {
  return (power.module.empty() ? std::string("the model") : power.module) + ", step " +
         std::to_string(power.step);
}

std::string seen(const Power& power) {
  return "errors above " + percent(power.error) + " of a value would have been seen";
}

std::string unseen(const Power& power) {
  return (power.error < 1 ? "errors up to " + percent(power.error) + " of a value"
                          : std::string("an error as large as the values")) +
         " would not have been seen in " + power_place(power);
}

std::string power_clause(const Power& power) {
  if (std::isnan(power.error)) return {};
  if (power.error > power.allowed) return unseen(power);
  return seen(power) + (power.cancelled == 0 ? ""
                                             : ", but where values cancel to their rounding (" +
                                                   counted(power.cancelled, "result") + ")");
}

std::string inputs_clause(const Verdict& verdict) {
  if (!verdict.order_known)
    return "which operator ran first is not known, so others may have been wrong before it";
  if (verdict.level == JudgedBy::Identity || is_measured(verdict.level)) return {};
  const size_t unjudged = verdict.coverage.unjudged_before;
  if (verdict.level == JudgedBy::Operators && unjudged > 0)
    return counted(unjudged, "operator") + " before it not judged";
  const auto earlier =
      static_cast<size_t>(std::ranges::count_if(verdict.candidates, [&](const Finding& other) {
        return comes_before(other, verdict.candidates.front());
      }));
  if (earlier > 0)
    return counted(earlier, "place") + " before it " + (earlier == 1 ? "differs" : "differ") +
           ", too, with less effect";
  const Power& power = verdict.power;
  // A weight that is wrong moves values by less than it differs.
  const Finding& found = verdict.candidates.front();
  if (power.error > power.allowed ||
      (found.kind != FindingKind::Weight && power.error > found.err_own))
    return "before it " + unseen(power);
  return (verdict.level == JudgedBy::Operators ? "inputs were clean"
                                               : std::string("nothing before it is wrong")) +
         (std::isnan(power.error) ? "" : " (" + seen(power) + ")");
}

std::string first_bad(const Verdict& verdict) {
  const Finding& first = verdict.candidates.front();
  std::string text = clause_of(first);
  if (const Systematic* group = systematic_of(verdict))
    add(&text, "the same in " + layers_of(*group) + ", so systematic");
  add(&text, inputs_clause(verdict));
  add(&text, others_clause(verdict));
  add(&text, "confidence " + std::string(confidence_name(verdict.confidence)));
  return (verdict.order_known ? "first bad: " : "bad: ") + place_of(first) + ": " + text;
}

/// "3 near ties chose other tokens, margin 0.4 of the noise"
std::string choices_clause(const TokenChoices& tokens) {
  std::string text;
  if (tokens.near_ties > 0) {
    char margin[32];
    std::snprintf(margin, sizeof(margin), "%.2g", tokens.largest_near_tie);
    const auto count = static_cast<uint64_t>(tokens.near_ties);
    text = counted(count, "near tie") + " chose " +
           (count == 1 ? "another token" : "other tokens") + ", margin " + margin + " of the noise";
  }
  if (tokens.chances > 0)
    add(&text, counted(static_cast<uint64_t>(tokens.chances), "choice") + " beyond a near tie of " +
                   counted(static_cast<uint64_t>(tokens.positions), "position") +
                   ", which noise may decide");
  return text;
}

/// Arguments that both programs show and that differ, although nothing that was judged does:
/// "approximate 'tanh' against golden's default in model.layers.*.mlp.act (3 places) changes no
/// more than rounding does"
std::string arguments_clause(const Verdict& verdict) {
  std::map<std::string, size_t> places;
  for (const Finding& one : verdict.suspicions) {
    if (one.kind == FindingKind::Attribute && !is_place_or_size(one.slot))
      ++places[one.detail + " in " + run::layer_pattern(one.module)];
  }
  if (places.empty()) return {};
  const auto& [first, count] = *places.begin();
  return first + (count > 1 ? " (" + counted(count, "place") + ")" : "") +
         (places.size() > 1 ? " and " + counted(places.size() - 1, "more argument") : "") +
         (places.size() > 1 ? " change" : " changes") + " no more than rounding does";
}

/// "clean up to step 3, then a near tie gave mine other tokens (not held against each other: steps
/// 4 to 7, which have other tokens)"
std::string clean_steps(const Verdict& verdict) {
  std::string text = "clean";
  if (verdict.clean_up_to >= 0) text += " up to step " + std::to_string(verdict.clean_up_to - 1);
  std::string unjudged;
  for (const UnjudgedSteps& steps : verdict.unjudged_steps) {
    if (steps.of == StepsOf::Both) text += ", then a near tie gave mine other tokens";
    add(&unjudged, unjudged_text(steps));
  }
  return unjudged.empty() ? text : text + " (not held against each other: " + unjudged + ")";
}

std::string clean(const Verdict& verdict) {
  const Coverage& coverage = verdict.coverage;
  std::string text;
  const size_t judged = coverage.judged - coverage.judged_around;
  const bool all = judged == coverage.judgeable;
  const std::string of = all ? "all " + std::to_string(judged)
                             : std::to_string(judged) + " of " + std::to_string(coverage.judgeable);
  switch (verdict.level) {
    case JudgedBy::Operators:
      text = of + " operators are exact to rounding";
      if (coverage.around() > 0)
        add(&text,
            std::to_string(coverage.around()) + " more are judged by the values around them");
      break;
    case JudgedBy::Leaves:
    case JudgedBy::Modules:
    case JudgedBy::Layers:
      text = counted(coverage.values, "captured value") + " of mine " +
             (coverage.values == 1 ? "is" : "are") +
             " golden's function of the ones before, to rounding (" + of + " operators replayed)";
      break;
    case JudgedBy::MeasuredValues:
    case JudgedBy::MeasuredStatistics:
      text = of + " captured values differ no more from golden than healthy runs do";
      break;
    default:
      return clean_steps(verdict) + ": all " + counted(coverage.values, "captured value") +
             " of mine are golden's, bit for bit; confidence high";
  }
  std::string expected = verdict.quantisation.empty() && verdict.cache_blocks.empty()
                             ? std::string()
                             : std::string("quantisation");
  if (!verdict.products.empty()) expected += (expected.empty() ? "" : ", ") + verdict.products;
  if (!expected.empty()) text = expected + ", as expected: " + text;
  if (!verdict.cache_blocks.empty()) add(&text, verdict.cache_blocks + ", within their rounding");
  if (!verdict.quantisation.empty()) {
    add(&text, verdict.quantisation + ", the others golden's");
  } else if (coverage.weights_by_function > 0) {
    add(&text, std::to_string(coverage.weights_compared - coverage.weights_refuted) + " of " +
                   counted(coverage.weights, "weight") +
                   " are golden's, the others compute what other weights of golden's do");
  } else if (coverage.weights_refuted > 0) {
    add(&text, std::to_string(coverage.weights_compared - coverage.weights_refuted) + " of " +
                   counted(coverage.weights_compared, "weight") +
                   " are golden's, the others are written otherwise");
  } else if (coverage.weights > 0) {
    add(&text, "all " + counted(coverage.weights_compared, "weight") + " are golden's");
  }
  add(&text, arguments_clause(verdict));
  add(&text, choices_clause(verdict.tokens));
  add(&text, power_clause(verdict.power));
  add(&text, "confidence " + std::string(confidence_name(verdict.confidence)));
  return clean_steps(verdict) + ": " + text;
}

// Behind a fault the choice is no tie, however close it was.
std::string token_clause(const Verdict& verdict) {
  const TokenChoice& token = verdict.tokens.first;
  if (token.step < 0) return {};
  std::string text = "golden and mine first choose other tokens in step " +
                     std::to_string(token.step) + ": " + std::to_string(token.golden_token) +
                     " and " + std::to_string(token.mine_token);
  if (token.kind == ChoiceKind::NearTie && verdict.outcome != VerdictOutcome::FirstWrong)
    text += ", a near tie";
  char numbers[96];
  if (!std::isnan(token.margin) && !std::isnan(token.difference)) {
    std::snprintf(numbers, sizeof(numbers), " (margin %.3g, logits differ by %.3g)", token.margin,
                  token.difference);
    text += numbers;
  }
  return text;
}

}  // namespace

std::string place_of(const Finding& finding) {
  std::string text =
      finding.module.empty() ? (finding.node.empty() ? "the model" : finding.node) : finding.module;
  if (!finding.also.empty() && finding.also != finding.module) text += " or " + finding.also;
  std::string inside = finding.module_type;
  if (!finding.op_type.empty() && finding.op_type != finding.module_type)
    inside += (inside.empty() ? "" : ": ") + finding.op_type;
  if (!inside.empty()) inside += ", ";
  inside += "step " + std::to_string(finding.step);
  if (finding.rank > 0) inside += ", rank " + std::to_string(finding.rank);
  return text + " (" + inside + ")";
}

std::string clause_of(const Finding& finding) {
  // What it comes from, before how it was seen.
  std::string text = finding.cause;
  if (finding.kind != FindingKind::Weight) add(&text, finding.hypothesis);
  add(&text, first_clause(finding));
  // Of others the detail is the clause, or repeats its numbers.
  if (finding.kind == FindingKind::Gap || finding.kind == FindingKind::MeasuredFloor)
    add(&text, finding.detail);
  if (finding.idle)
    add(&text, "no part that could be seen of what is wrong around it comes from there");
  return text;
}

std::string sentence(const Verdict& verdict) {
  std::string text;
  if (!verdict.golden_findings.empty()) {
    const Finding& first = verdict.golden_findings.front();
    text = "golden itself is not clean: " + place_of(first) + ": " + clause_of(first) + "; ";
  }
  if (verdict.outcome == VerdictOutcome::FirstWrong) return text + first_bad(verdict);
  if (verdict.outcome == VerdictOutcome::Clean) return text + clean(verdict);
  return text + "cannot judge: " + verdict.reason;
}

std::vector<std::string> checked_list(const Verdict& verdict) {
  std::vector<std::string> lines;
  for (const Obligation& one : verdict.obligations)
    lines.push_back((one.open.empty() ? "holds: " : "open: ") + one.name +
                    (one.open.empty() ? "" : ": " + one.open));
  if (const Power& power = verdict.power; !std::isnan(power.error))
    lines.push_back("power: " + power_clause(power) +
                    (power.error > power.allowed ? "" : "; least in " + power_place(power)));
  return lines;
}

std::vector<std::string> token_lines(const Verdict& verdict) {
  const TokenChoices& tokens = verdict.tokens;
  std::vector<std::string> lines;
  if (tokens.positions == 0) {
    lines.emplace_back("no position has logits of both runs that can be compared");
  } else {
    lines.push_back(std::to_string(tokens.other_choices()) + " of " +
                    counted(static_cast<uint64_t>(tokens.positions), "position") +
                    " chose another token: " + std::to_string(tokens.near_ties) +
                    " by a near tie, " + std::to_string(tokens.chances) +
                    " by a chance of so many, " + std::to_string(tokens.unexplained) +
                    " beyond the noise");
    char numbers[192];
    std::snprintf(numbers, sizeof(numbers),
                  "KL(golden || mine) in nats: mean %.3g, largest %.3g; without the near ties mean "
                  "%.3g, largest %.3g",
                  tokens.kl_mean, tokens.kl_max, tokens.kl_mean_without_ties,
                  tokens.kl_max_without_ties);
    lines.emplace_back(std::isnan(tokens.kl_mean)
                           ? "KL is not known: of golden only the largest logits are"
                           : numbers);
  }
  if (tokens.padding > 0)
    lines.push_back(counted(static_cast<uint64_t>(tokens.padding), "position") +
                    " of padding left out");
  if (tokens.not_finite > 0)
    lines.push_back(counted(static_cast<uint64_t>(tokens.not_finite), "position") +
                    " with NaN or infinity left out");
  if (tokens.other_inputs_from >= 0)
    lines.push_back("from step " + std::to_string(tokens.other_inputs_from) +
                    " on mine was given other inputs than golden (not teacher-forced, or another "
                    "prompt), so what they choose there is not compared");
  return lines;
}

std::vector<std::string> remarks(const Verdict& verdict) {
  constexpr size_t kShown = 4;
  std::vector<std::string> lines;
  const std::string then = verdict.order_known ? "then: " : "also: ";
  for (size_t i = 1; i < std::min(verdict.candidates.size(), kShown + 1); ++i) {
    const Finding& finding = verdict.candidates[i];
    lines.push_back(then + place_of(finding) + ": " + clause_of(finding));
  }
  if (verdict.candidates.size() > kShown + 1)
    lines.push_back(then + std::to_string(verdict.candidates.size() - kShown - 1) + " more");
  for (const Systematic& group : verdict.systematic) {
    lines.push_back("systematic: " + group.pattern + ": " + std::string(kind_name(group.kind)) +
                    " in " + layers_of(group));
  }
  for (const CoarseGroup& group : verdict.coarse) {
    lines.push_back("coarse kernel (systematic): " + group.pattern + ": " +
                    times_text(group.median_z) + " one rounding in " +
                    std::to_string(group.members) + " places; no alarm");
  }
  if (std::string token = token_clause(verdict); !token.empty())
    lines.push_back("tokens: " + token);
  if (verdict.outcome == VerdictOutcome::FirstWrong && !verdict.quantisation.empty())
    lines.push_back("quantisation, as expected: " + verdict.quantisation);
  if (verdict.outcome == VerdictOutcome::FirstWrong && !verdict.products.empty())
    lines.push_back(verdict.products + ", as expected");
  for (const std::string& note : verdict.notes) lines.push_back("note: " + note);
  return lines;
}

}  // namespace assay::locate
