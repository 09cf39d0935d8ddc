// SPDX-License-Identifier: Apache-2.0
// Two ways: up to four rows of x stream w once, read in its own type; more go through dgemm in
// blocks of 512 x 512 of w, which are widened one by one.
//   docs/opcheck/products.md, "How a product is computed"
#include "reference/products/matmul.hpp"

#include <cblas.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>

#include "base/interruption.hpp"
#include "base/simd.hpp"
#include "base/thread_pool.hpp"
#include "reference/blas.hpp"
#include "tensor/convert.hpp"
#include "tensor/sentence.hpp"
#include "tensor/widen.hpp"

namespace assay::reference {
namespace {

using simd::f64x8;
using simd::i32x16;
using simd::i32x8;
using simd::load;
using simd::store;
typedef int8_t i8x16 __attribute__((vector_size(16)));

// Sizes are fixed, so that a result has the same bits whatever the number of threads.
constexpr int64_t kStreamedRows = 4;       // of x, at most, for the loop that reads w once
constexpr int64_t kStreamedColumns = 512;  // of w at a time: sums of four rows fill half of L1
constexpr int64_t kStreamedDots = 32;      // rows of w [n, k] a task
constexpr int64_t kBlockColumns = 512;     // of w in one dgemm
constexpr int64_t kBlockDepth = 512;       // 512 * 512 doubles: 2 MB
constexpr int64_t kMaxWidenedX = int64_t{4} << 20;  // values of x widened at a time: 32 MB
constexpr int64_t kMinBlockRows = 64;

// ---- Few rows of x: w streams through the registers once --------------------------------------

/// Sixteen consecutive values as two vectors of doubles.
struct Values {
  f64x8 low, high;
};
template <typename Elements>
struct LoadFloats {
  static constexpr int64_t kBytes = Elements::kBytes;
  [[gnu::always_inline]] static inline Values at(const std::byte* source) {
    return {Elements::eight(source), Elements::eight(source + 8 * kBytes)};
  }
};
using LoadFloat16 = LoadFloats<simd::Float16Elements>;
using LoadBFloat16 = LoadFloats<simd::BFloat16Elements>;
using LoadFloat32 = LoadFloats<simd::Float32Elements>;
struct LoadFloat64 {
  static constexpr int64_t kBytes = 8;
  [[gnu::always_inline]] static inline Values at(const std::byte* source) {
    return {simd::load<f64x8>(source), simd::load<f64x8>(source + 64)};
  }
};
struct LoadInt8 {
  static constexpr int64_t kBytes = 1;
  [[gnu::always_inline]] static inline Values at(const std::byte* source) {
    const i32x16 values = __builtin_convertvector(simd::load<i8x16>(source), i32x16);
    i32x8 parts[2];
    std::memcpy(parts, &values, sizeof(values));
    return {__builtin_convertvector(parts[0], f64x8), __builtin_convertvector(parts[1], f64x8)};
  }
};

[[gnu::always_inline]] inline double total(f64x8 sums) {
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

/// out[r] = x[r] . w for Rows rows of x. Lengths are padded with zeros to a multiple of 16: `depth`
/// counts the values that are there, the rest of w's last sixteen comes from `tail`.
template <typename Load, int Rows>
[[gnu::always_inline]] inline void dots(const double* x, int64_t x_stride, const std::byte* w,
                                        int64_t depth, double* out) {
  f64x8 low[Rows] = {};
  f64x8 high[Rows] = {};
  const auto add = [&](const std::byte* source, int64_t i) __attribute__((always_inline)) {
    const Values values = Load::at(source);
    for (int r = 0; r < Rows; ++r) {
      low[r] += values.low * load<f64x8>(x + r * x_stride + i);
      high[r] += values.high * load<f64x8>(x + r * x_stride + i + 8);
    }
  };
  int64_t i = 0;
  for (; i + 16 <= depth; i += 16) add(w + i * Load::kBytes, i);
  if (i < depth) {
    std::byte tail[16 * Load::kBytes] = {};
    std::memcpy(tail, w + i * Load::kBytes, static_cast<size_t>((depth - i) * Load::kBytes));
    add(tail, i);
  }
  for (int r = 0; r < Rows; ++r) out[r] = total(low[r] + high[r]);
}

/// sums[r][j] += x[r] * w[j] for Rows rows and `columns` columns of one row of w.
template <typename Load, int Rows>
[[gnu::always_inline]] inline void add_scaled(const double* x, int64_t x_stride, const std::byte* w,
                                              int64_t columns, double* sums) {
  const auto add = [&](const std::byte* source, int64_t j) __attribute__((always_inline)) {
    const Values values = Load::at(source);
    for (int r = 0; r < Rows; ++r) {
      double* place = sums + r * kStreamedColumns + j;
      store(place, load<f64x8>(place) + values.low * x[r * x_stride]);
      store(place + 8, load<f64x8>(place + 8) + values.high * x[r * x_stride]);
    }
  };
  int64_t j = 0;
  for (; j + 16 <= columns; j += 16) add(w + j * Load::kBytes, j);
  if (j < columns) {
    std::byte tail[16 * Load::kBytes] = {};
    std::memcpy(tail, w + j * Load::kBytes, static_cast<size_t>((columns - j) * Load::kBytes));
    add(tail, j);  // kStreamedColumns is a multiple of 16: there is room for the zeros
  }
}

using Dots = void (*)(int64_t rows, const double* x, int64_t x_stride, const std::byte* w,
                      int64_t depth, double* out);
using AddScaled = void (*)(int64_t rows, const double* x, int64_t x_stride, const std::byte* w,
                           int64_t columns, double* sums);

// Each function exists once an instruction set; see base/simd.hpp.
#define ASSAY_STREAM_KERNELS(suffix, Load)                                                   \
  ASSAY_CLONES void dots_##suffix(int64_t rows, const double* x, int64_t x_stride,           \
                                  const std::byte* w, int64_t depth, double* out) {          \
    switch (rows) {                                                                          \
      case 1:                                                                                \
        return dots<Load, 1>(x, x_stride, w, depth, out);                                    \
      case 2:                                                                                \
        return dots<Load, 2>(x, x_stride, w, depth, out);                                    \
      case 3:                                                                                \
        return dots<Load, 3>(x, x_stride, w, depth, out);                                    \
      default:                                                                               \
        return dots<Load, 4>(x, x_stride, w, depth, out);                                    \
    }                                                                                        \
  }                                                                                          \
  ASSAY_CLONES void add_scaled_##suffix(int64_t rows, const double* x, int64_t x_stride,     \
                                        const std::byte* w, int64_t columns, double* sums) { \
    switch (rows) {                                                                          \
      case 1:                                                                                \
        return add_scaled<Load, 1>(x, x_stride, w, columns, sums);                           \
      case 2:                                                                                \
        return add_scaled<Load, 2>(x, x_stride, w, columns, sums);                           \
      case 3:                                                                                \
        return add_scaled<Load, 3>(x, x_stride, w, columns, sums);                           \
      default:                                                                               \
        return add_scaled<Load, 4>(x, x_stride, w, columns, sums);                           \
    }                                                                                        \
  }
ASSAY_STREAM_KERNELS(float16, LoadFloat16)
ASSAY_STREAM_KERNELS(bfloat16, LoadBFloat16)
ASSAY_STREAM_KERNELS(float32, LoadFloat32)
ASSAY_STREAM_KERNELS(float64, LoadFloat64)
ASSAY_STREAM_KERNELS(int8, LoadInt8)
#undef ASSAY_STREAM_KERNELS

/// Kernels that read a type directly; other types are widened first and use those of Float64.
struct StreamKernels {
  Dots dots;
  AddScaled add_scaled;
  int64_t bytes;
};
std::optional<StreamKernels> stream_kernels(DType dtype) {
  switch (dtype) {
    case DType::Float16:
      return StreamKernels{dots_float16, add_scaled_float16, 2};
    case DType::BFloat16:
      return StreamKernels{dots_bfloat16, add_scaled_bfloat16, 2};
    case DType::Float32:
      return StreamKernels{dots_float32, add_scaled_float32, 4};
    case DType::Float64:
      return StreamKernels{dots_float64, add_scaled_float64, 8};
    case DType::Int8:
    case DType::QInt8:
      return StreamKernels{dots_int8, add_scaled_int8, 1};
    default:
      return std::nullopt;
  }
}

void make_absolute(std::span<double> values) {
  for (double& value : values) value = std::fabs(value);
}

/// Rows of a matrix, each in one piece: where they lie when no widening is needed, otherwise
/// widened.
class RowReader {
 public:
  RowReader(const TensorView& matrix, bool absolute)
      : matrix_(matrix),
        kernels_(StreamKernels{dots_float64, add_scaled_float64, 8}),
        absolute_(absolute) {
    const auto direct = stream_kernels(matrix.dtype);
    if (direct && matrix.strides[1] == 1 && !matrix.negative && !absolute) {
      kernels_ = *direct;
    } else {
      widened_.resize(static_cast<size_t>(matrix.shape[1]));
    }
  }
  [[nodiscard]] const StreamKernels& kernels() const { return kernels_; }
  /// Valid until the next call.
  [[nodiscard]] const std::byte* row(int64_t index) {
    if (widened_.empty())
      return matrix_.storage.data() +
             (matrix_.offset_elements + index * matrix_.strides[0]) * kernels_.bytes;
    read_values(section(matrix_, 0, index, 1), 0, matrix_.shape[1], widened_);
    if (absolute_) make_absolute(widened_);
    return reinterpret_cast<const std::byte*>(widened_.data());
  }

 private:
  const TensorView& matrix_;
  StreamKernels kernels_;
  bool absolute_;
  std::vector<double, NoInitAllocator<double>> widened_;
};

/// x: m <= kStreamedRows rows of doubles, each padded with zeros to `x_stride`, a multiple of 16.
void stream_dots(const double* x, int64_t m, int64_t x_stride, const TensorView& w_rows,
                 double* out, int64_t row_stride, unsigned jobs, bool absolute) {
  const int64_t n = w_rows.shape[0];
  const int64_t k = w_rows.shape[1];
  const auto tasks = static_cast<size_t>((n + kStreamedDots - 1) / kStreamedDots);
  parallel_for(tasks, jobs, [&](size_t task) {
    RowReader reader(w_rows, absolute);
    const int64_t first = static_cast<int64_t>(task) * kStreamedDots;
    for (int64_t j = first; j < std::min(n, first + kStreamedDots); ++j) {
      double sums[kStreamedRows];
      reader.kernels().dots(m, x, x_stride, reader.row(j), k, sums);
      for (int64_t i = 0; i < m; ++i) out[i * row_stride + j] = sums[i];
    }
  });
}

void stream_scaled(const double* x, int64_t m, int64_t x_stride, const TensorView& w, double* out,
                   int64_t row_stride, unsigned jobs, bool absolute) {
  const int64_t k = w.shape[0];
  const int64_t n = w.shape[1];
  const auto tasks = static_cast<size_t>((n + kStreamedColumns - 1) / kStreamedColumns);
  parallel_for(tasks, jobs, [&](size_t task) {
    const int64_t first = static_cast<int64_t>(task) * kStreamedColumns;
    const int64_t columns = std::min(kStreamedColumns, n - first);
    const TensorView part = section(w, 1, first, columns);
    RowReader reader(part, absolute);
    std::vector<double> sums(static_cast<size_t>(kStreamedRows * kStreamedColumns), 0.0);
    for (int64_t i = 0; i < k; ++i)
      reader.kernels().add_scaled(m, x + i, x_stride, reader.row(i), columns, sums.data());
    for (int64_t i = 0; i < m; ++i)
      std::copy_n(sums.data() + i * kStreamedColumns, columns, out + i * row_stride + first);
  });
}

// ---- Many rows: dgemm over widened blocks -----------------------------------------------------

/// A block as dgemm takes it: row-major, or the transpose of what lies there.
struct Block {
  const double* values;
  blasint stride;
  bool transposed;
};

/// The doubles of a matrix where they lie, or widened into `scratch`, along the dimension that is
/// contiguous.
Block block_of(const TensorView& matrix, std::vector<double, NoInitAllocator<double>>& scratch,
               bool absolute) {
  const bool columns_first = matrix.strides[1] != 1 && matrix.strides[0] == 1;
  const TensorView view = columns_first ? transposed(matrix) : matrix;
  constexpr int64_t kMaxStride = std::numeric_limits<blasint>::max();
  if (view.dtype == DType::Float64 && view.strides[1] == 1 && !view.negative && !absolute &&
      view.strides[0] >= view.shape[1] && view.strides[0] <= kMaxStride &&
      reinterpret_cast<uintptr_t>(view.storage.data()) % alignof(double) == 0)
    return {reinterpret_cast<const double*>(view.storage.data()) + view.offset_elements,
            static_cast<blasint>(view.strides[0]), columns_first};
  const int64_t count = view.shape[0] * view.shape[1];
  if (static_cast<int64_t>(scratch.size()) < count) scratch.resize(static_cast<size_t>(count));
  const auto values = std::span(scratch).first(static_cast<size_t>(count));
  read_values(view, 0, count, values);
  if (absolute) make_absolute(values);
  return {scratch.data(), static_cast<blasint>(view.shape[1]), columns_first};
}

void multiply_blocks(const TensorView& x, const TensorView& w, double* out, int64_t row_stride,
                     unsigned jobs, bool absolute) {
  prepare_blas();
  const int64_t m = x.shape[0];
  const int64_t k = x.shape[1];
  const int64_t n = w.shape[1];
  const auto tasks = static_cast<size_t>((n + kBlockColumns - 1) / kBlockColumns);
  parallel_for(tasks, jobs, [&](size_t task) {
    const int64_t first = static_cast<int64_t>(task) * kBlockColumns;
    const int64_t columns = std::min(kBlockColumns, n - first);
    std::vector<double, NoInitAllocator<double>> x_scratch;
    std::vector<double, NoInitAllocator<double>> w_scratch;
    for (int64_t start = 0; start < k && !is_interrupted(); start += kBlockDepth) {
      const int64_t depth = std::min(kBlockDepth, k - start);
      const Block right =
          block_of(section(section(w, 0, start, depth), 1, first, columns), w_scratch, absolute);
      const Block left = block_of(section(x, 1, start, depth), x_scratch, absolute);
      cblas_dgemm(CblasRowMajor, left.transposed ? CblasTrans : CblasNoTrans,
                  right.transposed ? CblasTrans : CblasNoTrans, static_cast<blasint>(m),
                  static_cast<blasint>(columns), static_cast<blasint>(depth), 1.0, left.values,
                  left.stride, right.values, right.stride, start == 0 ? 0.0 : 1.0, out + first,
                  static_cast<blasint>(row_stride));
    }
  });
}

/// Widens rows once for all blocks of w.
void multiply_rows(const TensorView& x, const TensorView& w, double* out, int64_t row_stride,
                   unsigned jobs, bool absolute) {
  const int64_t m = x.shape[0];
  const int64_t k = x.shape[1];
  if (x.dtype == DType::Float64 && (x.strides[1] == 1 || x.strides[0] == 1))
    return multiply_blocks(x, w, out, row_stride, jobs, absolute);
  Wide rows(Dims{m, k});
  constexpr int64_t kRowsATask = 16;
  parallel_for(static_cast<size_t>((m + kRowsATask - 1) / kRowsATask), jobs, [&](size_t task) {
    const int64_t first = static_cast<int64_t>(task) * kRowsATask;
    const int64_t count = std::min(kRowsATask, m - first);
    read_values(section(x, 0, first, count), 0, count * k,
                std::span(rows.values)
                    .subspan(static_cast<size_t>(first * k), static_cast<size_t>(count * k)));
  });
  multiply_blocks(view_of(rows), w, out, row_stride, jobs, absolute);
}

std::string shapes(const TensorView& x, const TensorView& w, const MatmulOptions& options) {
  return "x " + list_text(x.shape.span()) + (options.transpose_x ? " transposed" : "") +
         " does not fit w " + list_text(w.shape.span()) +
         (options.transpose_w ? " transposed" : "");
}

/// Leading sizes of both, as NumPy broadcasts them.
std::optional<Dims> broadcast_batches(const Dims& x, const Dims& w) {
  const size_t count = std::max(x.size(), w.size()) - 2;
  Dims batches;
  batches.resize(count);
  const auto size_of = [&](const Dims& shape, size_t i) {
    const size_t own = shape.size() - 2;
    return i + own < count ? int64_t{1} : shape[i + own - count];
  };
  for (size_t i = 0; i < count; ++i) {
    const int64_t a = size_of(x, i);
    const int64_t b = size_of(w, i);
    if (a != b && a != 1 && b != 1) return std::nullopt;
    batches[i] = a == 1 ? b : a;
  }
  return batches;
}

/// The matrix of one batch; sizes of 1 stand for every index.
TensorView matrix_of(const TensorView& view, const Dims& batches, int64_t index) {
  TensorView matrix = view;
  const size_t own = view.shape.size() - 2;
  matrix.shape = {view.shape[own], view.shape[own + 1]};
  matrix.strides = {view.strides[own], view.strides[own + 1]};
  for (size_t i = batches.size(); i-- > 0;) {
    const int64_t place = index % batches[i];
    index /= batches[i];
    const size_t missing = batches.size() - own;
    if (i >= missing && view.shape[i - missing] != 1)
      matrix.offset_elements += place * view.strides[i - missing];
  }
  return matrix;
}

/// Leading dimensions joined into the rows when one stride describes them.
std::optional<TensorView> as_matrix(const TensorView& view) {
  const size_t rank = view.shape.size();
  TensorView matrix = view;
  int64_t rows = 1;
  int64_t stride = 0;
  for (size_t i = rank - 1; i-- > 0;) {
    if (view.shape[i] == 1) continue;
    if (rows == 1) {
      stride = view.strides[i];
    } else if (view.strides[i] != rows * stride) {
      return std::nullopt;
    }
    rows *= view.shape[i];
  }
  matrix.shape = {rows, view.shape[rank - 1]};
  matrix.strides = {rows == 1 ? view.shape[rank - 1] : stride, view.strides[rank - 1]};
  return matrix;
}

/// Both operands as [..., m, k] and [..., k, n], and what comes out.
struct Plan {
  TensorView x, w;
  Dims batches;
  Dims shape;
};

Result<Plan> plan_of(const TensorView& x_given, const TensorView& w_given,
                     const MatmulOptions& options) {
  for (const TensorView* view : {&x_given, &w_given}) {
    ASSAY_TRY_STATUS(check_real(*view));
  }
  if (x_given.shape.empty() || w_given.shape.size() < 2 ||
      (options.transpose_x && x_given.shape.size() < 2))
    return fail(Errc::Invalid, shapes(x_given, w_given, options), ": both need two dimensions");
  TensorView x = options.transpose_x ? transposed(x_given) : x_given;
  TensorView w = options.transpose_w ? transposed(w_given) : w_given;
  const bool is_vector = x.shape.size() == 1;
  if (is_vector) {
    x.shape = {1, x.shape[0]};
    x.strides = {x.shape[1], x.strides[0]};
  }
  const int64_t k = x.shape[x.shape.size() - 1];
  const int64_t n = w.shape[w.shape.size() - 1];
  const std::optional<Dims> batches = broadcast_batches(x.shape, w.shape);
  if (w.shape[w.shape.size() - 2] != k || !batches)
    return fail(Errc::Invalid, shapes(x_given, w_given, options));
  Dims shape = *batches;
  if (!is_vector) shape.push_back(x.shape[x.shape.size() - 2]);
  shape.push_back(n);
  ASSAY_TRY_STATUS(checked_count(shape));
  if (n > std::numeric_limits<blasint>::max())
    return fail(Errc::TooLarge, shapes(x_given, w_given, options),
                ": rows of the result are too long");
  return Plan{std::move(x), std::move(w), *batches, std::move(shape)};
}

}  // namespace

TensorView transposed(TensorView view) {
  const size_t last = view.shape.size() - 1;
  std::swap(view.shape[last - 1], view.shape[last]);
  std::swap(view.strides[last - 1], view.strides[last]);
  return view;
}

TensorView section(TensorView view, size_t axis, int64_t first, int64_t count) {
  view.offset_elements += first * view.strides[axis];
  view.shape[axis] = count;
  return view;
}

void multiply_into(const TensorView& x, const TensorView& w, double* out, int64_t row_stride,
                   int jobs, bool absolute) {
  const int64_t m = x.shape[0];
  const int64_t k = x.shape[1];
  const int64_t n = w.shape[1];
  if (m == 0 || n == 0) return;
  if (k == 0) {
    for (int64_t i = 0; i < m; ++i) std::fill_n(out + i * row_stride, n, 0.0);
    return;
  }
  const unsigned threads = resolve_job_count(jobs);
  if (m <= kStreamedRows) {
    const int64_t x_stride = (k + 15) / 16 * 16;
    std::vector<double> rows(static_cast<size_t>(m * x_stride), 0.0);
    for (int64_t i = 0; i < m; ++i)
      read_values(
          section(x, 0, i, 1), 0, k,
          std::span(rows).subspan(static_cast<size_t>(i * x_stride), static_cast<size_t>(k)));
    if (absolute) make_absolute(rows);
    if (w.strides[0] == 1 && w.strides[1] != 1)
      return stream_dots(rows.data(), m, x_stride, transposed(w), out, row_stride, threads,
                         absolute);
    return stream_scaled(rows.data(), m, x_stride, w, out, row_stride, threads, absolute);
  }
  const int64_t block_rows = std::max(kMinBlockRows, kMaxWidenedX / k);
  for (int64_t first = 0; first < m; first += block_rows)
    multiply_rows(section(x, 0, first, std::min(block_rows, m - first)), w,
                  out + first * row_stride, row_stride, threads, absolute);
}

Result<Dims> matmul_shape(const TensorView& x_given, const TensorView& w_given,
                          const MatmulOptions& options) {
  ASSAY_TRY(const Plan plan, plan_of(x_given, w_given, options));
  return plan.shape;
}

Result<Wide> matmul(const TensorView& x_given, const TensorView& w_given,
                    const MatmulOptions& options) {
  ASSAY_TRY(const Plan plan, plan_of(x_given, w_given, options));
  const auto& [x, w, batches, shape] = plan;
  const int64_t m = x.shape[x.shape.size() - 2];
  const int64_t k = x.shape[x.shape.size() - 1];
  const int64_t n = w.shape[w.shape.size() - 1];
  Wide result(shape);
  const int64_t count = result.size();
  if (count == 0) return result;
  if (w.shape.size() == 2) {
    // One product instead of one a batch.
    if (const std::optional<TensorView> joined = as_matrix(x)) {
      multiply_into(*joined, w, result.data(), n, options.jobs, options.absolute);
      return result;
    }
  }
  // Small products side by side, a large one in parallel itself; the bits are the same.
  constexpr int64_t kLargeProduct = int64_t{1} << 24;
  const bool inside = m * n >= kLargeProduct / std::max<int64_t>(k, 1);
  const auto batch_count = static_cast<size_t>(count / (m * n));
  parallel_for(batch_count, inside ? 1 : resolve_job_count(options.jobs), [&](size_t index) {
    const auto batch = static_cast<int64_t>(index);
    multiply_into(matrix_of(x, batches, batch), matrix_of(w, batches, batch),
                  result.data() + batch * m * n, n, inside ? options.jobs : 1, options.absolute);
  });
  return result;
}

}  // namespace assay::reference
