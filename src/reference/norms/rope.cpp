// SPDX-License-Identifier: Apache-2.0
// The shapes of x and of the tables tell how x falls into tokens and heads; then one row of the
// tables turns all heads of its token.
#include "reference/norms/rope.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "base/simd.hpp"
#include "reference/norms/rows.hpp"
#include "tensor/convert.hpp"
#include "tensor/sentence.hpp"

namespace assay::reference {
namespace {

/// u and v are `width` values each; tables likewise.
ASSAY_CLONES void rotate_halves(double* u, double* v, const double* cos_u, const double* cos_v,
                                const double* sin_u, const double* sin_v, int64_t width) {
  for (int64_t i = 0; i < width; ++i) {
    const double a = u[i];
    const double b = v[i];
    u[i] = a * cos_u[i] - b * sin_u[i];
    v[i] = b * cos_v[i] + a * sin_v[i];
  }
}

void rotate_pairs(double* head, const double* cos, const double* sin, int64_t size) {
  for (int64_t i = 0; i + 1 < size; i += 2) {
    const double a = head[i];
    const double b = head[i + 1];
    head[i] = a * cos[i] - b * sin[i];
    head[i + 1] = b * cos[i] + a * sin[i];
  }
}

struct Heads {
  int64_t tokens = 0;
  int64_t count = 0;  // of one token
  int64_t size = 0;
};

/// How x falls into tokens and heads, given how many rows the tables have.
Result<Heads> heads_of(const Dims& x, const Dims& table) {
  if (table.empty() || x.empty()) return fail(shapes_differ("x", x, "cos", table));
  ASSAY_TRY(const int64_t elements, checked_count(x));
  ASSAY_TRY(const int64_t table_elements, checked_count(table));
  const int64_t size = table[table.size() - 1];
  const int64_t last = x[x.size() - 1];
  if (size <= 0 || last % size != 0) return fail(shapes_differ("x", x, "cos", table));
  const int64_t rows = table_elements / size;
  if (elements == 0 && rows == 0) return Heads{0, 0, size};
  if (last > 0 && elements / last == rows) return Heads{rows, last / size, size};
  if (last == size && x.size() >= 2) {
    const int64_t heads = x[x.size() - 2];
    const int64_t tokens = heads > 0 ? elements / (heads * size) : rows;
    // The tables of one sequence serve every sequence of a batch.
    const bool shared = x.size() == 4 && rows == x[1];
    if (tokens == rows || shared) return Heads{tokens, heads, size};
  }
  return fail(shapes_differ("x", x, "cos", table));
}

}  // namespace

Result<Wide> rope(const TensorView& x, const TensorView& cos, const TensorView& sin,
                  const RopeOptions& options) {
  if (cos.shape != sin.shape) return fail(shapes_differ("sin", sin.shape, "cos", cos.shape));
  ASSAY_TRY(const Heads heads, heads_of(x.shape, cos.shape));
  const int64_t groups = options.interleaved ? 1 : options.groups;
  if (groups <= 0 || heads.size / 2 < groups || heads.size % (2 * groups) != 0)
    return fail(Errc::Invalid, "a head of ", heads.size, " elements cannot be rotated in ", groups,
                (groups == 1 ? " group" : " groups"), " of two halves");
  ASSAY_TRY(const Wide cosines, widen(cos));
  ASSAY_TRY(const Wide sines, widen(sin));
  ASSAY_TRY(Wide result, widen(x));
  if (result.size() == 0) return result;
  const int64_t rows = cosines.size() / heads.size;
  const int64_t half = heads.size / (2 * groups);
  for (int64_t token = 0; token < heads.tokens; ++token) {
    const double* cos_row = cosines.data() + (token % rows) * heads.size;
    const double* sin_row = sines.data() + (token % rows) * heads.size;
    double* head = result.data() + token * heads.count * heads.size;
    for (int64_t number = 0; number < heads.count; ++number, head += heads.size) {
      if (options.interleaved) {
        rotate_pairs(head, cos_row, sin_row, heads.size);
        continue;
      }
      for (int64_t u = 0; u < heads.size; u += 2 * half) {
        const int64_t v = u + half;
        rotate_halves(head + u, head + v, cos_row + u, cos_row + v, sin_row + u, sin_row + v, half);
      }
    }
  }
  return result;
}

Result<Wide> rope_gradient(const TensorView& gradient, const TensorView& cos, const TensorView& sin,
                           std::span<const int64_t> seq_lens) {
  if (cos.shape != sin.shape) return fail(shapes_differ("sin", sin.shape, "cos", cos.shape));
  if (cos.shape.size() != 2 || gradient.shape.size() != 2 || cos.shape[1] <= 0 ||
      cos.shape[1] % 2 != 0 || gradient.shape[1] % cos.shape[1] != 0)
    return fail(shapes_differ("the gradient", gradient.shape, "cos", cos.shape));
  const int64_t size = cos.shape[1];
  int64_t tokens = 0;
  for (const int64_t length : seq_lens) {
    if (length < 0 || length > cos.shape[0])
      return fail(Errc::Invalid, "a sequence of ", length, " tokens, cos has rows for ",
                  cos.shape[0]);
    if (tokens > gradient.shape[0] - length) {
      tokens = -1;
      break;
    }
    tokens += length;
  }
  if (tokens != gradient.shape[0])
    return fail(Errc::Invalid, "the sequences ", seq_lens,
                " do not add up to the tokens of a gradient of shape ", gradient.shape);
  ASSAY_TRY(Wide factors, widen(cos));
  ASSAY_TRY(const Wide sines, widen(sin));
  const int64_t half = size / 2;
  for (int64_t row = 0; row < cos.shape[0]; ++row) {
    double* factor = factors.data() + row * size;
    const double* sine = sines.data() + row * size;
    for (int64_t i = 0; i < half; ++i) {
      factor[i] += sine[half + i];
      factor[half + i] -= sine[i];
    }
  }
  ASSAY_TRY(Wide result, widen(gradient));
  const int64_t heads = gradient.shape[1] / size;
  double* head = result.data();
  for (const int64_t length : seq_lens) {
    for (int64_t position = 0; position < length; ++position) {
      const double* factor = factors.data() + position * size;
      for (int64_t number = 0; number < heads; ++number, head += size)
        for (int64_t i = 0; i < size; ++i) head[i] *= factor[i];
    }
  }
  return result;
}

Result<Wide> rope_concat(const TensorView& q, const TensorView& cos, const TensorView& sin,
                         const TensorView& other) {
  if (q.shape.size() != 2 || other.shape.size() != 3 || cos.shape.size() != 2 ||
      q.shape[0] != other.shape[0])
    return fail(shapes_differ("q", q.shape, "the part beside it", other.shape));
  const int64_t heads = other.shape[1];
  const int64_t size = cos.shape[1];
  if (size <= 0 || q.shape[1] % size != 0 || q.shape[1] / size != heads)
    return fail(shapes_differ("q", q.shape, "the part beside it", other.shape));
  ASSAY_TRY(const Wide rotated, rope(q, cos, sin));
  ASSAY_TRY(const Wide beside, widen(other));
  const int64_t extra = other.shape[2];
  if (extra > std::numeric_limits<int64_t>::max() - size)
    return fail(shapes_differ("q", q.shape, "the part beside it", other.shape));
  const Dims shape{q.shape[0], heads, size + extra};
  ASSAY_TRY_STATUS(checked_count(shape));
  Wide result(shape);
  double* out = result.data();
  const int64_t rows = q.shape[0] * heads;
  for (int64_t row = 0; row < rows; ++row) {
    out = std::copy_n(rotated.data() + row * size, size, out);
    out = std::copy_n(beside.data() + row * extra, extra, out);
  }
  return result;
}

Result<RotaryTables> rotary_tables(const TensorView& positions, const TensorView& inv_freq,
                                   const TensorView& seq_lens) {
  if (inv_freq.shape.size() != 2)
    return fail(Errc::Invalid, "inverse frequencies of shape ", inv_freq.shape,
                ", not [batch, d / 2]");
  ASSAY_TRY(const Whole place, whole(positions));
  ASSAY_TRY(const Whole lengths, whole(seq_lens));
  ASSAY_TRY(const Wide frequencies, widen(inv_freq));
  if (lengths.size() != inv_freq.shape[0])
    return fail(shapes_differ("the lengths of sequences", seq_lens.shape, "inverse frequencies",
                              inv_freq.shape));
  const int64_t half = inv_freq.shape[1];
  if (half > (int64_t{1} << 36))
    return fail(Errc::TooLarge, "inverse frequencies of shape ", inv_freq.shape);
  const Dims shape{place.size(), 2 * half};
  ASSAY_TRY_STATUS(checked_count(shape));
  RotaryTables tables{Wide(shape, 0.0), Wide(shape, 0.0)};
  int64_t token = 0;
  for (int64_t batch = 0; batch < lengths.size(); ++batch) {
    const int64_t length = lengths.values[static_cast<size_t>(batch)];
    if (length < 0 || length > place.size() - token)
      return fail(Errc::Invalid, "the sequences ", lengths.values, " do not fit ", place.size(),
                  " positions");
    for (const int64_t end = token + length; token < end; ++token) {
      const auto position = static_cast<float>(place.values[static_cast<size_t>(token)]);
      double* cos = tables.cos.data() + token * 2 * half;
      double* sin = tables.sin.data() + token * 2 * half;
      for (int64_t i = 0; i < half; ++i) {
        const auto frequency =
            static_cast<float>(frequencies.values[static_cast<size_t>(batch * half + i)]);
        const auto angle = static_cast<double>(position * frequency);
        cos[i] = cos[half + i] = std::cos(angle);
        sin[i] = sin[half + i] = std::sin(angle);
      }
    }
  }
  return tables;
}

}  // namespace assay::reference
