// SPDX-License-Identifier: Apache-2.0
// Numbers have the digits of float32 where the tensor has no more, which halves the page; codes of
// pictures are base64.
#include "report/html/details.hpp"

#include <charconv>
#include <cmath>
#include <limits>

#include "base/text.hpp"

namespace assay::report::html {
namespace {

using measure::Histogram;
using measure::PairPicture;
using measure::WorstElement;

constexpr double kLargestFloat = std::numeric_limits<float>::max();

Json exact(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

/// The shortest digits that are this float32: half as many as those of the double.
Json rounded(double value) {
  const double magnitude = std::fabs(value);
  if (!(magnitude <= kLargestFloat) || magnitude < std::numeric_limits<float>::min())
    return exact(value);
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), static_cast<float>(value)).ptr;
  double number = 0;
  std::from_chars(digits, end, number);
  return number;
}

Json list_of(const std::vector<double>& values, Json (*number)(double)) {
  Json list = Json::array();
  for (const double value : values) list.push_back(number(value));
  return list;
}

Json codes_text(const std::vector<uint8_t>& codes) {
  return base64({reinterpret_cast<const char*>(codes.data()), codes.size()});
}

Json histogram_json(const Histogram& histogram) {
  return {{"edges", list_of(histogram.edges, rounded)},
          {"counts", histogram.counts},
          {"nan", histogram.nan},
          {"inf", histogram.inf}};
}

Json ulp_json(const PairPicture& picture) {
  if (!picture.ulp) return nullptr;
  return {{"type", picture.ulp->type},
          {"edges", list_of(picture.ulp->edges, exact)},
          {"counts", picture.ulp->counts}};
}

/// The way to write values of a side.
auto numbers_of(DType dtype) {
  return dtype == DType::Float64 || dtype == DType::Complex128 || is_integer(dtype) ? exact
                                                                                    : rounded;
}

Json worst_json(const PairPicture& picture, const WorstElement& worst) {
  const auto golden = numbers_of(picture.golden_type);
  const auto mine = numbers_of(picture.mine_type);
  Json json;
  json["index"] = worst.index.span();
  if (picture.grid.parts > 1) json["part"] = worst.part;
  json["golden"] = golden(worst.golden);
  json["mine"] = mine(worst.mine);
  json["error"] = rounded(worst.error);
  json["ulp"] = std::isnan(worst.ulp) ? Json(nullptr) : rounded(worst.ulp);
  json["around"] = {{"first", worst.around_first},
                    {"golden", list_of(worst.golden_around, golden)},
                    {"mine", list_of(worst.mine_around, mine)}};
  return json;
}

}  // namespace

Json details_json(const PairPicture& picture) {
  Json json;
  json["axes"] = picture.grid.axes;
  json["shape"] = picture.grid.sizes;
  json["bins"] = picture.grid.bins;
  json["max"] = codes_text(picture.largest);
  json["rms"] = codes_text(picture.rms);
  json["scale"] = {{"base", picture.scale.base}, {"codes_per_octave", 8}};
  json["golden_histogram"] = histogram_json(picture.golden);
  json["mine_histogram"] = histogram_json(picture.mine);
  json["ulp"] = ulp_json(picture);
  json["values"] = picture.values;
  json["sampled"] = picture.sampled;
  json["worst"] = Json::array();
  for (const WorstElement& worst : picture.worst)
    json["worst"].push_back(worst_json(picture, worst));
  json["shape_of_error"] = picture.shape_of_error;
  return json;
}

}  // namespace assay::report::html
