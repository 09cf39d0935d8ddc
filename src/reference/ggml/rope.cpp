// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding in the modes of ggml.
//
//   mode      pairs (a, b) of a head             position of pair i
//   0 normal  (2i, 2i+1)                         pos[token]
//   2 neox    (i, i + n_dims/2)                  pos[token]
//   8 mrope   (i, i + n_dims/2)                  one of four positions by sections of pairs: time, height, width, extra
//   40 imrope (i, i + n_dims/2)                  the same, interleaved: pair i takes position i mod 3
//   24 vision (i, i + n_dims), n_dims = size/2   by sections, each of which starts again with the fastest angle
//
// Angle of pair i: pos base^(-2i/n_dims) / factor[i], times freq_scale, mixed with the unscaled one
// by YaRN's ramp. Channels beyond n_dims are copied.
#include <cmath>
#include <numbers>

#include "reference/ggml/dialect.hpp"
#include "reference/norms/rope.hpp"
#include "reference/products/matmul.hpp"
#include "tensor/convert.hpp"

namespace assay::reference::ggml {
namespace {

constexpr int64_t kNeox = 2;
constexpr int64_t kMrope = 8;
constexpr int64_t kVision = 24;
constexpr int64_t kImrope = 40;
constexpr int64_t kPositions = 4;  // time, height, width, extra

struct Rope {
  int64_t n_dims = 0;
  int64_t mode = 0;
  int64_t n_ctx_orig = 0;
  double freq_base = 0, freq_scale = 0, ext_factor = 0, attn_factor = 0, beta_fast = 0,
         beta_slow = 0;
  Sizes sections{0, 0, 0, 0};  // pairs of each of the four positions
  std::optional<Wide> factors;
  Whole positions;
  bool by_sections = false;
};

Status check(const Arguments& arguments, const Rope& rope, const Sizes& ne) {
  const bool is_known = rope.mode == 0 || rope.mode == kNeox || rope.mode == kMrope ||
                        rope.mode == kVision || rope.mode == kImrope;
  if (!is_known) return fail(arguments.unsupported("no reference for mode ", rope.mode));
  if (rope.n_dims <= 0 || rope.n_dims % 2 != 0 ||
      rope.n_dims * (rope.mode == kVision ? 2 : 1) > ne[0] ||
      (rope.mode == kVision && rope.n_dims * 2 != ne[0]))
    return fail(arguments.invalid(rope.n_dims, " rotated of ", ne[0], " channels"));
  if (rope.positions.size() < ne[2] * (rope.by_sections ? kPositions : 1))
    return fail(arguments.invalid(rope.positions.size(), " positions for ", ne[2], " tokens"));
  if (rope.factors && rope.factors->size() < rope.n_dims / 2)
    return fail(arguments.invalid("too few frequency factors"));
  if (rope.by_sections) {
    int64_t pairs = 0;
    for (const int64_t section : rope.sections) {
      if (section < 0) return fail(arguments.invalid("a section of negative size"));
      pairs += section;
    }
    if (pairs == 0) return fail(arguments.invalid("no pair in any section"));
  }
  return {};
}

Result<Rope> rope_of(const Arguments& arguments, const Sizes& ne) {
  Rope rope;
  ASSAY_TRY(rope.n_dims, integer(arguments, "n_dims", 1));
  ASSAY_TRY(rope.mode, integer(arguments, "mode", 2));
  ASSAY_TRY(rope.n_ctx_orig, integer(arguments, "n_ctx_orig", 4, 0));
  ASSAY_TRY(rope.freq_base, real(arguments, "freq_base", 5));
  ASSAY_TRY(rope.freq_scale, real(arguments, "freq_scale", 6, 1.0));
  ASSAY_TRY(rope.ext_factor, real(arguments, "ext_factor", 7, 0.0));
  ASSAY_TRY(rope.attn_factor, real(arguments, "attn_factor", 8, 1.0));
  ASSAY_TRY(rope.beta_fast, real(arguments, "beta_fast", 9, 32.0));
  ASSAY_TRY(rope.beta_slow, real(arguments, "beta_slow", 10, 1.0));
  for (size_t i = 0; i < 4; ++i) {
    ASSAY_TRY(rope.sections[i], listed(arguments, "sections", i, 11 + i, 0));
  }
  ASSAY_TRY(const int64_t offset, integer(arguments, "offset", 15, 0));
  if (offset != 0) return fail(arguments.unsupported("no reference for an offset of channels"));
  if (arguments.has("src2")) {
    ASSAY_TRY(rope.factors, values_of(arguments, "src2"));
  }
  rope.by_sections = rope.mode == kMrope || rope.mode == kVision || rope.mode == kImrope;
  ASSAY_TRY(const Tensor positions, arguments.tensor("src1"));
  ASSAY_TRY(rope.positions, whole(positions.view));
  ASSAY_TRY_STATUS(check(arguments, rope, ne));
  return rope;
}

/// Which of the four positions a pair takes, and the exponent of its frequency.
struct Place {
  int64_t position = 0;
  int64_t exponent = 0;
};
Place place_of(const Rope& rope, int64_t pair) {
  if (!rope.by_sections) return {0, pair};
  const Sizes& sections = rope.sections;
  const int64_t all = sections[0] + sections[1] + sections[2] + sections[3];
  const int64_t sector = pair % all;
  if (rope.mode == kImrope) {
    const int64_t turn = sector % 3;
    const int64_t position = turn == 1 && sector < 3 * sections[1]   ? 1
                             : turn == 2 && sector < 3 * sections[2] ? 2
                             : turn == 0 && sector < 3 * sections[0] ? 0
                                                                     : 3;
    return {position, pair};
  }
  int64_t start = 0;
  int64_t position = 0;
  while (position < 3 && sector >= start + sections[static_cast<size_t>(position)])
    start += sections[static_cast<size_t>(position++)];
  return {position, rope.mode == kVision ? sector - start : pair};
}

/// The pair at which an angle turns `turns` times within the original context.
double pair_of_turns(const Rope& rope, double turns) {
  const double context = static_cast<double>(rope.n_ctx_orig);
  return static_cast<double>(rope.n_dims) * std::log(context / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(rope.freq_base));
}

/// What turns a pair of one token: cosine and sine times the magnitude, and the size of the angle
/// before scaling.
struct Turn {
  double cosine = 0;
  double sine = 0;
  double magnitude = 0;
  double largest_angle = 0;
};
class Turns {
 public:
  explicit Turns(const Rope& rope) : rope_(rope) {
    low_ = std::fmax(0.0, std::floor(pair_of_turns(rope, rope.beta_fast)));
    high_ = std::fmin(static_cast<double>(rope.n_dims - 1),
                      std::ceil(pair_of_turns(rope, rope.beta_slow)));
  }
  [[nodiscard]] Turn turn(int64_t token, int64_t tokens, int64_t pair) const {
    const Place place = place_of(rope_, pair);
    const auto position = static_cast<double>(
        rope_.positions.values[static_cast<size_t>(token + tokens * place.position)]);
    const double frequency = std::pow(rope_.freq_base, -2.0 * static_cast<double>(place.exponent) /
                                                           static_cast<double>(rope_.n_dims));
    const double factor =
        rope_.factors ? rope_.factors->data()[std::min(pair, rope_.factors->size() - 1)] : 1;
    const double unscaled = position * frequency / factor;
    double angle = rope_.freq_scale * unscaled;
    double magnitude = rope_.attn_factor;
    if (rope_.ext_factor != 0) {
      const double distance = (static_cast<double>(pair) - low_) / std::fmax(0.001, high_ - low_);
      const double mix = (1 - std::fmin(1.0, std::fmax(0.0, distance))) * rope_.ext_factor;
      angle = angle * (1 - mix) + unscaled * mix;
      magnitude *= 1 + 0.1 * std::log(1 / rope_.freq_scale);
    }
    return {std::cos(angle) * magnitude, std::sin(angle) * magnitude, std::fabs(magnitude),
            std::fmax(std::fabs(angle), std::fabs(unscaled))};
  }

 private:
  const Rope& rope_;
  double low_ = 0;   // pairs before turn as without scaling,
  double high_ = 0;  // pairs behind as with it
};

/// How pairs of one token and head lie: pair i is (i step, i step + distance).
struct Pairs {
  int64_t count, step, distance;
};
Pairs pairs_of(const Rope& rope) {
  if (rope.mode == 0) return {rope.n_dims / 2, 2, 1};
  const int64_t count = rope.mode == kVision ? rope.n_dims : rope.n_dims / 2;
  return {count, 1, count};
}

Result<Values> rope(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Source x, source(arguments, "src0"));
  ASSAY_TRY(const Rope how, rope_of(arguments, x.ne));
  const Turns turns(how);
  const Pairs pairs = pairs_of(how);
  const int64_t turned = 2 * pairs.count;
  const int64_t tokens = x.ne[2];
  Wide cosines(Dims{tokens, turned}), sines(Dims{tokens, turned});
  for (int64_t token = 0; token < tokens; ++token)
    for (int64_t pair = 0; pair < pairs.count; ++pair) {
      const Turn turn = turns.turn(token, tokens, pair);
      const int64_t first = token * turned + pair * pairs.step;
      for (const int64_t at : {first, first + pairs.distance}) {
        cosines.data()[at] = turn.cosine;
        sines.data()[at] = turn.sine;
      }
    }
  // [batch, tokens, heads, channels]
  ASSAY_TRY(const Wide part,
            reference::rope(section(x.view(), 3, 0, turned), to_tensor(std::move(cosines)).view,
                            to_tensor(std::move(sines)).view, {.interleaved = how.mode == 0}));
  if (turned == x.ne[0]) return result_of(Wide(part));
  ASSAY_TRY(Wide whole, widen(x.view()));
  for (int64_t row = 0; row < part.size() / turned; ++row)
    std::copy_n(part.data() + row * turned, turned, whole.data() + row * x.ne[0]);
  return result_of(std::move(whole));
}

/// Kernels get the angle of pair i by i products in float32 from pos: its error is (2i + 4) u
/// |angle|, which for positions in the thousands is far more than that of sine and cosine.
Result<Magnitudes> rounding_of_rope(const Arguments& arguments, int) {
  ASSAY_TRY(const Source given, source(arguments, "src0"));
  ASSAY_TRY(const Rope how, rope_of(arguments, given.ne));
  ASSAY_TRY(const Wide x, widen(given.view()));
  const Turns turns(how);
  const Pairs pairs = pairs_of(how);
  const int64_t heads = given.ne[1], tokens = given.ne[2], channels = given.ne[0];
  Magnitudes rounding = no_rounding(x.shape);
  for (int64_t token = 0; token < tokens; ++token)
    for (int64_t pair = 0; pair < pairs.count; ++pair) {
      const Turn turn = turns.turn(token, tokens, pair);
      const double relative =
          kFloat32Roundoff * (4 + (2 * static_cast<double>(pair) + 4) * turn.largest_angle);
      for (int64_t row = 0; row < given.ne[3] * heads; ++row) {
        const int64_t line = (row / heads * tokens + token) * heads + row % heads;
        const int64_t first = line * channels + pair * pairs.step;
        const int64_t second = first + pairs.distance;
        const double size =
            (std::fabs(x.data()[first]) + std::fabs(x.data()[second])) * turn.magnitude;
        const double w = size * relative;
        for (const int64_t place : {first, second}) {
          rounding.c.data()[place] = size;
          rounding.allowed.data()[place] = w;
          rounding.variance.data()[place] = w * w / 12;
        }
      }
    }
  return rounding;
}

}  // namespace

std::span<const DialectRow> rope_operators() {
  static constexpr DialectRow kTable[] = {
      own("ggml.rope", OperatorClass::Trigonometric, rope, rounding_of_rope),
  };
  return kTable;
}

}  // namespace assay::reference::ggml
