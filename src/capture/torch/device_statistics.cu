// SPDX-License-Identifier: Apache-2.0
// The statistics of src/stats for tensors on a GPU: the same blocks, the same chains of additions in
// the same order, so the sums have the same bits. Compiled at run time by the host's own NVRTC
// (assay.torch._cuda), and by the unit test as plain C++.
//
//   element  0    16    32    48    64          A block is what src/stats calls one. 16 threads take it, one a
//            |  0  |  1  |  2  |  3  | group     sketch bucket: thread b has the elements i with i % 16 == b.
//
// Sums are fp64 and never fused with a product (--fmad=false): docs/metrics.md
#ifdef ASSAY_ON_HOST
#define ASSAY_DEVICE inline
#else
#define ASSAY_DEVICE __device__ __forceinline__
#endif

typedef unsigned long long assay_u64;
typedef long long assay_i64;

constexpr int kAssayBuckets = 16;
constexpr int kAssayGroup = 64;
constexpr int kAssayRow = 24;  // doubles: sum, squares, min, max, NaN, +Inf, -Inf, unused, sketch
constexpr int kAssayThreads = 128;  // eight blocks; four warps, which join them
constexpr int kAssayChunks = 256;

ASSAY_DEVICE double assay_infinity() {
#ifdef ASSAY_ON_HOST
  return __builtin_inf();
#else
  return __longlong_as_double(0x7FF0000000000000ll);
#endif
}

ASSAY_DEVICE float assay_float_of(unsigned bits) {
#ifdef ASSAY_ON_HOST
  return __builtin_bit_cast(float, bits);
#else
  return __uint_as_float(bits);
#endif
}

// ---- Types: how an element is read, and what it is widened to first -----------------------------

// kParities  sums of squares and extremes have a chain for the even sixteens of a group and one for
//            the odd ones (types of float), or one for all (integers)
// kPairs     neighbours are in two vectors of the host's kernel, which adds their lanes later
struct AssayFloat32 {
  typedef unsigned Raw;
  typedef float Value;
  static constexpr int kParities = 2;
  static constexpr bool kPairs = false;
  ASSAY_DEVICE static float value(Raw raw) { return assay_float_of(raw); }
};
struct AssayBFloat16 {
  typedef unsigned short Raw;
  typedef float Value;
  static constexpr int kParities = 2;
  static constexpr bool kPairs = true;
  ASSAY_DEVICE static float value(Raw raw) {
    return assay_float_of(static_cast<unsigned>(raw) << 16);
  }
};
struct AssayFloat16 {
  typedef unsigned short Raw;
  typedef float Value;
  static constexpr int kParities = 2;
  static constexpr bool kPairs = true;
  ASSAY_DEVICE static float value(Raw raw) {
#ifndef ASSAY_ON_HOST
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(raw));
    return wide;
#else
    // Shifted into a float32 whose exponent is 112 too small; the product is exact.
    const unsigned sign = (raw & 0x8000u) << 16;
    const unsigned rest = raw & 0x7FFFu;
    if (rest >= 0x7C00u) return assay_float_of(sign | 0x7F800000u | ((rest & 0x3FFu) << 13));
    const float size = assay_float_of(rest << 13) * assay_float_of((127u + 112u) << 23);
    return sign != 0 ? -size : size;
#endif
  }
};
template <typename T>
struct AssayInteger {
  typedef T Raw;
  typedef double Value;
  static constexpr int kParities = 1;
  static constexpr bool kPairs = false;
  ASSAY_DEVICE static double value(Raw raw) { return static_cast<double>(raw); }
};
struct AssayBool : AssayInteger<unsigned char> {
  ASSAY_DEVICE static double value(Raw raw) { return raw != 0 ? 1.0 : 0.0; }
};

// One instruction of the device; which of two zeros it gives is its own choice.
ASSAY_DEVICE float assay_smaller(float a, float b) {
#ifdef ASSAY_ON_HOST
  return b < a ? b : a;
#else
  return fminf(a, b);
#endif
}
ASSAY_DEVICE float assay_larger(float a, float b) {
#ifdef ASSAY_ON_HOST
  return b >= a ? b : a;
#else
  return fmaxf(a, b);
#endif
}
ASSAY_DEVICE double assay_smaller(double a, double b) { return b < a ? b : a; }
ASSAY_DEVICE double assay_larger(double a, double b) { return b > a ? b : a; }

// ---- One thread: the chains of one bucket of one block ------------------------------------------

ASSAY_DEVICE unsigned assay_signs(assay_u64 group) {
  assay_u64 hash = (group + 1) * 0x9E3779B97F4A7C15ull;
  hash = (hash ^ (hash >> 29)) * 0xBF58476D1CE4E5B9ull;
  return static_cast<unsigned>(hash >> 48);
}

template <typename Type>
struct AssayChain {
  typedef typename Type::Value Value;
  double along;
  double against;
  double squares[Type::kParities];
  Value low[Type::kParities];
  Value high[Type::kParities];
  int nan_count;
  int positive_inf_count;
  int negative_inf_count;
  bool is_negative;  // the sign of the bucket in the group at hand

  ASSAY_DEVICE void begin() {
    along = against = 0;
    for (int p = 0; p < Type::kParities; ++p) squares[p] = 0;
    forget_extremes();
    nan_count = positive_inf_count = negative_inf_count = 0;
    is_negative = false;
  }
  ASSAY_DEVICE void forget_extremes() {
    for (int p = 0; p < Type::kParities; ++p) {
      low[p] = static_cast<Value>(assay_infinity());
      high[p] = static_cast<Value>(-assay_infinity());
    }
  }
  ASSAY_DEVICE void begin_group(bool now_negative) {
    const bool changes = now_negative != is_negative;
    const double before = along;
    along = changes ? against : before;
    against = changes ? before : against;
    is_negative = now_negative;
  }
  ASSAY_DEVICE void add_extremes(int sixteen, Value v, bool finite) {
    const int p = sixteen % Type::kParities;
    low[p] = (finite & (v < low[p])) ? v : low[p];
    high[p] = (finite & (v > high[p])) ? v : high[p];
  }
  ASSAY_DEVICE void add_sums(int sixteen, double wide) {
    if (sixteen == 1)
      against += wide;
    else
      along += wide;
    squares[sixteen % Type::kParities] += wide * wide;
  }
  // As if all values were finite and there were one zero. The number of instructions is what a large
  // tensor waits for.
  ASSAY_DEVICE void add_fast(int sixteen, Value v) {
    const int p = sixteen % Type::kParities;
    low[p] = assay_smaller(low[p], v);
    high[p] = assay_larger(high[p], v);
    add_sums(sixteen, static_cast<double>(v));
  }
  // Integers are.
  ASSAY_DEVICE static bool is_finite(Value v) { return Type::kParities == 1 || v - v == 0; }
  // Leaves out and counts what is not finite.
  ASSAY_DEVICE void add(int sixteen, Value v) {
    const bool finite = is_finite(v);
    add_extremes(sixteen, v, finite);
    nan_count += v != v;
    positive_inf_count += !finite && v > 0;
    negative_inf_count += !finite && v < 0;
    add_sums(sixteen, static_cast<double>(finite ? v : static_cast<Value>(0)));
  }
  // A square of a float32 is finite in fp64, so a sum of them is when all values are.
  ASSAY_DEVICE bool has_non_finite() const {
    const double all = squares[0] + squares[Type::kParities - 1];
    return Type::kParities == 2 && all - all != 0;
  }
  // Which of two zeros an extreme is depends on their order.
  ASSAY_DEVICE bool has_extreme_zero() const {
    bool any = false;
    for (int p = 0; p < Type::kParities; ++p) any |= (low[p] == 0) | (high[p] == 0);
    return Type::kParities == 2 && any;
  }
};

// The elements behind the last whole group, whose number is `group`.
template <typename Type>
ASSAY_DEVICE void assay_run_rest(const typename Type::Raw* data, int count, assay_u64 group,
                                 int bucket, AssayChain<Type>* chain) {
  const int done = count / kAssayGroup * kAssayGroup;
  chain->begin_group(((assay_signs(group) >> bucket) & 1u) != 0);
  // The host pads what it reads at once with zeros for the sums, which change none, and with the
  // last element for the extremes, which decides between -0 and 0.
  constexpr int kAtOnce = 16 * Type::kParities;
  const typename Type::Value last = Type::value(data[count - 1]);
  for (int s = 0; s < 4; ++s) {
    const int at = done + s * kAssayBuckets + bucket;
    if (at < count)
      chain->add(s, Type::value(data[at]));
    else if (at / kAtOnce * kAtOnce < count)
      chain->add_extremes(s, last, AssayChain<Type>::is_finite(last));
  }
}

// Whole groups, as fast as it goes.
template <typename Type>
ASSAY_DEVICE void assay_run_groups(const typename Type::Raw* data, int groups, assay_u64 group,
                                   int bucket, AssayChain<Type>* chain) {
  int g = 0;
#ifndef ASSAY_ON_HOST
  constexpr int kBatch = sizeof(typename Type::Raw) > 4 ? 4 : 8;  // groups that are read at once
  // The 16 threads of a block stand and fall together; the other half of a warp has another block.
  const unsigned lanes = 0xFFFFu << (threadIdx.x & 16);
  typename Type::Raw ahead[kBatch * 4];
  if (kBatch <= groups) {
#pragma unroll
    for (int k = 0; k < kBatch * 4; ++k) ahead[k] = data[k * kAssayBuckets + bucket];
  }
  for (; g + kBatch <= groups; g += kBatch) {
    typename Type::Raw raw[kBatch * 4];
#pragma unroll
    for (int k = 0; k < kBatch * 4; ++k) raw[k] = ahead[k];
    if (g + 2 * kBatch <= groups) {
      const typename Type::Raw* next = data + (g + kBatch) * kAssayGroup + bucket;
#pragma unroll
      for (int k = 0; k < kBatch * 4; ++k) ahead[k] = next[k * kAssayBuckets];
    }
    const unsigned own = assay_signs(group + static_cast<assay_u64>(g + (bucket % kBatch)));
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const unsigned signs = __shfl_sync(lanes, own, (threadIdx.x & 16) + k);
      chain->begin_group(((signs >> bucket) & 1u) != 0);
#pragma unroll
      for (int s = 0; s < 4; ++s) chain->add_fast(s, Type::value(raw[4 * k + s]));
    }
  }
#endif
  for (; g < groups; ++g) {
    chain->begin_group(((assay_signs(group + static_cast<assay_u64>(g)) >> bucket) & 1u) != 0);
    for (int s = 0; s < 4; ++s)
      chain->add_fast(s, Type::value(data[g * kAssayGroup + s * kAssayBuckets + bucket]));
  }
}

// data   the first element of the block; count: of the block; group: number of its first
template <typename Type>
ASSAY_DEVICE void assay_run_chain(const typename Type::Raw* data, int count, assay_u64 group,
                                  int bucket, AssayChain<Type>* chain) {
  const int groups = count / kAssayGroup;
  chain->begin();
  assay_run_groups<Type>(data, groups, group, bucket, chain);
  if (chain->has_non_finite()) {
    chain->begin();
    for (int g = 0; g < groups; ++g) {
      chain->begin_group(((assay_signs(group + static_cast<assay_u64>(g)) >> bucket) & 1u) != 0);
      for (int s = 0; s < 4; ++s)
        chain->add(s, Type::value(data[g * kAssayGroup + s * kAssayBuckets + bucket]));
    }
  } else if (chain->has_extreme_zero()) {
    chain->forget_extremes();
#ifndef ASSAY_ON_HOST
#pragma unroll 4
#endif
    for (int g = 0; g < groups; ++g) {
      for (int s = 0; s < 4; ++s) {
        const typename Type::Raw raw = data[g * kAssayGroup + s * kAssayBuckets + bucket];
        chain->add_extremes(s, Type::value(raw), true);
      }
    }
  }
  if (groups * kAssayGroup < count)
    assay_run_rest<Type>(data, count, group + static_cast<assay_u64>(groups), bucket, chain);
}

// ---- One block: its 16 chains in the host's tree ------------------------------------------------

ASSAY_DEVICE double assay_reduce_sum(const double* v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

// Of equal ones the second: what `a < b ? a : b` of the host keeps.
template <typename Value>
ASSAY_DEVICE Value assay_lower(Value a, Value b) {
  return a < b ? a : b;
}

// Of all chains, in the host's order: the lowest, or the highest as the lowest of negated values.
template <typename Type>
ASSAY_DEVICE double assay_reduce_extreme(const AssayChain<Type>* chains, bool of_highest) {
  typedef typename Type::Value Value;
  Value v[kAssayBuckets];
  for (int lane = 0; lane < kAssayBuckets; ++lane) {
    // The host's vectors: even and odd neighbours, or the even and odd sixteens. In any order for
    // integers, which have one zero.
    Value of_slot[2];
    for (int slot = 0; slot < 2; ++slot) {
      const int bucket = Type::kPairs ? 2 * (lane % 8) + slot : lane;
      const int parity = Type::kPairs ? lane / 8 : slot;
      const AssayChain<Type>& chain = chains[bucket];
      of_slot[slot] =
          of_highest ? chain.high[parity % Type::kParities] : chain.low[parity % Type::kParities];
    }
    if (of_highest)
      v[lane] = -(of_slot[0] > of_slot[1] ? of_slot[0] : of_slot[1]);
    else
      v[lane] = assay_lower(of_slot[0], of_slot[1]);
  }
  for (int half = 8; half >= 4; half /= 2)
    for (int i = 0; i < half; ++i) v[i] = assay_lower(v[i], v[i + half]);
  const Value result = assay_lower(assay_lower(v[0], v[1]), assay_lower(v[2], v[3]));
  return static_cast<double>(of_highest ? -result : result);
}

template <typename Type>
ASSAY_DEVICE double assay_join_sums(const AssayChain<Type>* c) {
  double v[8];
  for (int j = 0; j < 8; ++j) {
    const AssayChain<Type>& a = c[Type::kPairs ? 2 * j : j];
    const AssayChain<Type>& b = c[Type::kPairs ? 2 * j + 1 : j + 8];
    v[j] = (a.along + b.along) + (a.against + b.against);
  }
  return assay_reduce_sum(v);
}

template <typename Type>
ASSAY_DEVICE double assay_join_squares(const AssayChain<Type>* c) {
  constexpr int kOdd = Type::kParities - 1;
  double v[8];
  for (int j = 0; j < 8; ++j) {
    const double* a = c[Type::kPairs ? 2 * j : j].squares;
    const double* b = c[Type::kPairs ? 2 * j + 1 : j + 8].squares;
    if (kOdd == 0)
      v[j] = a[0] + b[0];
    else if (Type::kPairs)
      v[j] = (a[0] + a[kOdd]) + (b[0] + b[kOdd]);
    else
      v[j] = (a[0] + b[0]) + (a[kOdd] + b[kOdd]);
  }
  return assay_reduce_sum(v);
}

// Four parts, so that four warps can do them at once, and what each chain adds by itself.
constexpr int kAssayParts = 4;
template <typename Type>
ASSAY_DEVICE void assay_join_chains(const AssayChain<Type>* c, int part, double* row) {
  if (part == 0) row[0] = assay_join_sums<Type>(c);
  if (part == 1) row[1] = assay_join_squares<Type>(c);
  if (part == 2) row[2] = assay_reduce_extreme<Type>(c, false);
  if (part == 3) row[3] = assay_reduce_extreme<Type>(c, true);
  if (part != 0) return;
  int counts[3] = {0, 0, 0};
  for (int b = 0; b < kAssayBuckets; ++b) {
    counts[0] += c[b].nan_count;
    counts[1] += c[b].positive_inf_count;
    counts[2] += c[b].negative_inf_count;
  }
  for (int i = 0; i < 3; ++i) row[4 + i] = counts[i];
  row[7] = 0;
}
template <typename Type>
ASSAY_DEVICE double assay_sketch_of(const AssayChain<Type>& chain) {
  const double difference = chain.along - chain.against;
  return chain.is_negative ? -difference : difference;
}

// ---- One tensor: its blocks in order ------------------------------------------------------------

// One column of `count` rows, `stride` rows apart.
ASSAY_DEVICE double assay_merge_column(const double* rows, assay_i64 count, assay_i64 stride,
                                       int column) {
  double total = rows[column];
#ifndef ASSAY_ON_HOST
#pragma unroll 8
#endif
  for (assay_i64 i = 1; i < count; ++i) {
    const double next = rows[i * stride * kAssayRow + column];
    if (column == 2)
      total = next < total ? next : total;
    else if (column == 3)
      total = next > total ? next : total;
    else
      total += next;
  }
  return total;
}

ASSAY_DEVICE assay_i64 assay_blocks_per_chunk(assay_i64 blocks) {
  return (blocks + kAssayChunks - 1) / kAssayChunks;
}

#ifndef ASSAY_ON_HOST

template <typename Type>
ASSAY_DEVICE void assay_blocks_of(const void* data, assay_i64 count, assay_i64 block_elements,
                                  double* rows) {
  __shared__ AssayChain<Type> chains[kAssayThreads];
  const int bucket = threadIdx.x % kAssayBuckets;
  constexpr int kBlocks = kAssayThreads / kAssayBuckets;
  const assay_i64 block =
      static_cast<assay_i64>(blockIdx.x) * kBlocks + threadIdx.x / kAssayBuckets;
  const assay_i64 first = block * block_elements;
  if (first < count) {
    AssayChain<Type> chain;
    const assay_i64 rest = count - first;
    assay_run_chain<Type>(static_cast<const typename Type::Raw*>(data) + first,
                          static_cast<int>(rest < block_elements ? rest : block_elements),
                          static_cast<assay_u64>(first / kAssayGroup), bucket, &chain);
    chains[threadIdx.x] = chain;
    rows[block * kAssayRow + 8 + bucket] = assay_sketch_of<Type>(chain);
  }
  __syncthreads();
  // A warp a part, a thread of it a block.
  const int lane = threadIdx.x % 32;
  const assay_i64 joined = static_cast<assay_i64>(blockIdx.x) * kBlocks + lane;
  if (lane < kBlocks && joined * block_elements < count)
    assay_join_chains<Type>(&chains[lane * kAssayBuckets], threadIdx.x / 32,
                            rows + joined * kAssayRow);
}

// Compiled for one type at a time, ASSAY_TYPE, when a tensor of it is met.
extern "C" __global__ void __launch_bounds__(kAssayThreads)
    assay_blocks(const void* data, assay_i64 count, assay_i64 block_elements, double* rows) {
  assay_blocks_of<ASSAY_TYPE>(data, count, block_elements, rows);
}

struct AssayTensor {
  double* rows;  // of its blocks
  assay_i64 blocks;
};

// One block of threads a tensor; `out` is memory of the host.
extern "C" __global__ void __launch_bounds__(256)
    assay_merge(const AssayTensor* tensors, double* out) {
  const AssayTensor tensor = tensors[blockIdx.x];
  const assay_i64 per_chunk = assay_blocks_per_chunk(tensor.blocks);
  const int column = threadIdx.x % 32;
  if (per_chunk > 1 && column < kAssayRow) {
    for (assay_i64 first = threadIdx.x / 32 * per_chunk; first < tensor.blocks;
         first += 8 * per_chunk) {
      const assay_i64 rest = tensor.blocks - first;
      double* rows = tensor.rows + first * kAssayRow;
      rows[column] = assay_merge_column(rows, rest < per_chunk ? rest : per_chunk, 1, column);
    }
  }
  __syncthreads();
  if (threadIdx.x < kAssayRow) {
    const assay_i64 chunks = (tensor.blocks + per_chunk - 1) / per_chunk;
    out[static_cast<assay_i64>(blockIdx.x) * kAssayRow + threadIdx.x] =
        assay_merge_column(tensor.rows, chunks, per_chunk, threadIdx.x);
  }
}
#endif
