// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "src/device/kernel/launch.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/linalg/cusolver.h"
#include "src/kernels/linalg/linalg.h"

namespace weft::cuda {

#ifdef WEFT_CUDA_EMULATED

// The emulated device has no cuSOLVER: the CPU computes.

namespace {

/// A block of the CPU with the elements of a device's block.
class OnHost {
 public:
  explicit OnHost(const MemoryBlock& block) : OnHost(block, false) {
    weft::copy(memory_.block, block);
  }
  /// A result, which `deliver` copies to the device.
  static OnHost result(const MemoryBlock& block) { return OnHost(block, true); }
  const MemoryBlock& block() const { return memory_.block; }
  void deliver() const { weft::copy(device_, memory_.block); }

 private:
  OnHost(const MemoryBlock& block, bool) : memory_(block.shape, block.dtype, cpu), device_(block) {}
  DenseMemory memory_;
  MemoryBlock device_;
};

}  // namespace

void cholesky_factor(const MemoryBlock& l, const MemoryBlock& info, const MemoryBlock& a,
                     bool upper) {
  const OnHost of(a), to = OnHost::result(l), codes = OnHost::result(info);
  host::cholesky_factor(to.block(), codes.block(), of.block(), upper);
  to.deliver(), codes.deliver();
}

void lu_factor(const MemoryBlock& lu, const MemoryBlock& pivots, const MemoryBlock& order,
               const MemoryBlock& info, const MemoryBlock& a) {
  const OnHost of(a), to = OnHost::result(lu), exchanges = OnHost::result(pivots),
                      rows = OnHost::result(order), codes = OnHost::result(info);
  host::lu_factor(to.block(), exchanges.block(), rows.block(), codes.block(), of.block());
  to.deliver(), exchanges.deliver(), rows.deliver(), codes.deliver();
}

void solve_triangle(const MemoryBlock& x, const MemoryBlock& a, const MemoryBlock& b,
                    Triangle triangle) {
  const OnHost of(a), by(b), to = OnHost::result(x);
  host::solve_triangle(to.block(), of.block(), by.block(), triangle);
  to.deliver();
}

void lu_solve(const MemoryBlock& x, const MemoryBlock& lu, const MemoryBlock& pivots,
              const MemoryBlock& b, bool transposed) {
  const OnHost of(lu), exchanges(pivots), by(b), to = OnHost::result(x);
  host::lu_solve(to.block(), of.block(), exchanges.block(), by.block(), transposed);
  to.deliver();
}

void qr_factor(const MemoryBlock& q, const MemoryBlock& r, const MemoryBlock& a) {
  const OnHost of(a), columns = OnHost::result(q), triangle = OnHost::result(r);
  host::qr_factor(columns.block(), triangle.block(), of.block());
  columns.deliver(), triangle.deliver();
}

void symmetric_eigen(const MemoryBlock& values, const MemoryBlock* vectors, const MemoryBlock& info,
                     const MemoryBlock& a, bool upper) {
  const OnHost of(a), to = OnHost::result(values), codes = OnHost::result(info),
                      columns = OnHost::result(vectors ? *vectors : values);
  host::symmetric_eigen(to.block(), vectors ? &columns.block() : nullptr, codes.block(), of.block(),
                        upper);
  to.deliver(), codes.deliver();
  if (vectors) columns.deliver();
}

void singular_values(const MemoryBlock* u, const MemoryBlock& s, const MemoryBlock* vh,
                     const MemoryBlock& info, const MemoryBlock& a) {
  const OnHost of(a), to = OnHost::result(s), codes = OnHost::result(info),
                      left = OnHost::result(u ? *u : s), right = OnHost::result(vh ? *vh : s);
  host::singular_values(u ? &left.block() : nullptr, to.block(), vh ? &right.block() : nullptr,
                        codes.block(), of.block());
  to.deliver(), codes.deliver();
  if (u) left.deliver();
  if (vh) right.deliver();
}

#else

namespace {

/// Keeps one triangle of row-major matrices [rows, columns]; all NaN where `info` (unless null) is
/// not 0.
template <class T> struct FinishMatrices {
  T* data;
  int64_t rows, columns, elements;
  const int* info;
  bool keeps_lower, keeps_upper;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    for (int64_t at = thread.index; at < elements; at += thread.count) {
      const int64_t i = at / columns % rows, j = at % columns;
      if (info && info[at / columns / rows] != 0) {
        data[at] = T(NAN);
      } else if ((!keeps_lower && j < i) || (!keeps_upper && j > i)) {
        data[at] = T(0);
      }
    }
  }
};

template <class T>
void finish(const MemoryBlock& x, const int* info, bool keeps_lower, bool keeps_upper) {
  const int64_t columns = x.shape.back(), rows = x.shape[x.shape.ndim() - 2];
  launch(FinishMatrices<T>{x.as<T>(), rows, columns, x.numel(), info, keeps_lower, keeps_upper},
         x.numel(), current_stream(x.device));
}

void finish(const MemoryBlock& x, const int* info, bool keeps_lower, bool keeps_upper) {
  x.dtype == DType::f64 ? finish<double>(x, info, keeps_lower, keeps_upper)
                        : finish<float>(x, info, keeps_lower, keeps_upper);
}

/// One thread for each matrix.
struct OrderRows {
  const int64_t* given;
  int* pivots;
  int64_t *order, m, k, count;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    for (int64_t at = thread.index; at < count; at += thread.count) {
      int64_t* rows = order + at * m;
      for (int64_t i = 0; i < m; ++i) rows[i] = i;
      for (int64_t i = 0; i < k; ++i) {
        const int64_t other = given[at * k + i] - 1, row = rows[i];
        pivots[at * k + i] = static_cast<int>(other + 1);
        rows[i] = rows[other];
        rows[other] = row;
      }
    }
  }
};

/// One thread for each column of a row-major matrix [n, k].
template <class T> struct ExchangeRows {
  T* x;
  const int* pivots;
  int64_t n, k;
  bool back;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    for (int64_t column = thread.index; column < k; column += thread.count) {
      for (int64_t i = 0; i < n; ++i) {
        const int64_t at = back ? n - 1 - i : i, other = pivots[at] - 1;
        const T moved = x[at * k + column];
        x[at * k + column] = x[other * k + column];
        x[other * k + column] = moved;
      }
    }
  }
};

int64_t rows_of(const MemoryBlock& a) { return a.shape[a.shape.ndim() - 2]; }

/// The number of matrices, and of the elements of one.
int64_t matrices_in(const MemoryBlock& a) {
  int64_t count = 1;
  for (int d = 0; d < a.shape.ndim() - 2; ++d) count *= a.shape[d];
  return count;
}

void* element(const MemoryBlock& a, int64_t index) {
  return static_cast<char*>(a.data) + index * static_cast<int64_t>(size_of(a.dtype));
}

/// The first element of matrix (vector, for `own` 1) `index` of `like`'s leading dims, to which
/// those of x broadcast.
void* part_of(const MemoryBlock& x, int own, const MemoryBlock& like, int64_t index) {
  int64_t offset = 0, stride = 1;
  for (int d = x.shape.ndim() - own; d < x.shape.ndim(); ++d) stride *= x.shape[d];
  const int leading = x.shape.ndim() - own, dims = like.shape.ndim() - 2;
  for (int i = 1; i <= std::min(leading, dims); ++i) {
    const int64_t size = like.shape[dims - i], at = index % size;
    index /= size;
    if (x.shape[leading - i] > 1) offset += at * stride;
    stride *= x.shape[leading - i];
  }
  return element(x, offset);
}

/// A dense copy of the matrices in column-major order.
DenseMemory by_columns(const MemoryBlock& a) {
  const MemoryBlock flipped = transposed(a);
  DenseMemory made(flipped.shape, a.dtype, a.device);
  weft::copy(made.block, flipped);
  return made;
}

void exchange_rows(const MemoryBlock& x, void* matrix, const int* pivots, bool back) {
  const int64_t n = rows_of(x), k = x.shape.back();
  const Stream stream = current_stream(x.device);
  x.dtype == DType::f64
      ? launch(ExchangeRows<double>{static_cast<double*>(matrix), pivots, n, k, back}, k, stream)
      : launch(ExchangeRows<float>{static_cast<float*>(matrix), pivots, n, k, back}, k, stream);
}

/// Solves in a row-major matrix x [n, k]: cuBLAS sees x^T, and the transpose of the triangle.
void solve_rows(const MemoryBlock& x, void* matrix, const void* a, Triangle triangle) {
  SolverCall{x.dtype, x.device}.divide_by_triangle(
      matrix, a, x.shape.back(), rows_of(x), !triangle.upper, triangle.transposed, triangle.unit);
}

}  // namespace

void cholesky_factor(const MemoryBlock& l, const MemoryBlock& info, const MemoryBlock& a,
                     bool upper) {
  const int64_t n = rows_of(a);
  weft::copy(l, a);
  for (int64_t i = 0; n > 0 && i < matrices_in(a); ++i) {
    SolverCall{a.dtype, a.device}.cholesky(element(l, i * n * n), n, !upper, info.as<int>() + i);
  }
  if (n == 0) return weft::fill(info, 0);
  finish(l, info.as<int>(), !upper, upper);
}

void lu_factor(const MemoryBlock& lu, const MemoryBlock& pivots, const MemoryBlock& order,
               const MemoryBlock& info, const MemoryBlock& a) {
  const int64_t m = rows_of(a), n = a.shape.back(), k = std::min(m, n), count = matrices_in(a);
  weft::fill(info, 0);
  const DenseMemory columns = by_columns(a);
  const DenseMemory wide({count, k}, DType::i64, a.device);
  for (int64_t i = 0; k > 0 && i < count; ++i) {
    SolverCall{a.dtype, a.device}.lu(element(columns.block, i * m * n), m, n,
                                     wide.block.as<int64_t>() + i * k, info.as<int>() + i);
  }
  launch(OrderRows{wide.block.as<int64_t>(), pivots.as<int>(), order.as<int64_t>(), m, k, count},
         count, current_stream(a.device));
  weft::copy(lu, transposed(columns.block));
}

void solve_triangle(const MemoryBlock& x, const MemoryBlock& a, const MemoryBlock& b,
                    Triangle triangle) {
  const int64_t elements = rows_of(x) * x.shape.back();
  weft::copy(x, b);
  for (int64_t i = 0; elements > 0 && i < matrices_in(x); ++i) {
    solve_rows(x, element(x, i * elements), part_of(a, 2, x, i), triangle);
  }
}

void lu_solve(const MemoryBlock& x, const MemoryBlock& lu, const MemoryBlock& pivots,
              const MemoryBlock& b, bool transposed) {
  const int64_t elements = rows_of(x) * x.shape.back();
  weft::copy(x, b);
  for (int64_t i = 0; elements > 0 && i < matrices_in(x); ++i) {
    void* matrix = element(x, i * elements);
    const void* factors = part_of(lu, 2, x, i);
    const int* pivot = static_cast<int*>(part_of(pivots, 1, x, i));
    const Triangle lower{false, transposed, true}, upper{true, transposed, false};
    if (!transposed) exchange_rows(x, matrix, pivot, false);
    solve_rows(x, matrix, factors, transposed ? upper : lower);
    solve_rows(x, matrix, factors, transposed ? lower : upper);
    if (transposed) exchange_rows(x, matrix, pivot, true);
  }
}

void qr_factor(const MemoryBlock& q, const MemoryBlock& r, const MemoryBlock& a) {
  const int64_t m = rows_of(a), n = a.shape.back(), c = q.shape.back(), k = std::min(m, n);
  const int64_t wide = std::max(n, c), count = matrices_in(a);
  // Columns of both a and q.
  const DenseMemory all({count, wide, m}, a.dtype, a.device),
      tau({count, k + 1}, a.dtype, a.device), info({1}, DType::i32, a.device);
  // The first columns, as matrices of the shape of `like`.
  const auto first = [&](const MemoryBlock& like) {
    MemoryBlock part = like;
    part.data = all.block.data;
    const int rows_at = like.shape.ndim() - 2;
    part.strides[rows_at] = 1, part.strides[rows_at + 1] = m;
    int64_t stride = wide * m;
    for (int d = rows_at - 1; d >= 0; --d) part.strides[d] = stride, stride *= like.shape[d];
    return part;
  };
  weft::copy(first(a), a);
  const SolverCall call{a.dtype, a.device};
  for (int64_t i = 0; m * n > 0 && i < count; ++i) {
    call.qr(element(all.block, i * wide * m), m, n, element(tau.block, i * (k + 1)),
            info.block.as<int>());
  }
  weft::copy(r, first(r));
  if (r.numel() > 0) finish(r, nullptr, false, true);
  for (int64_t i = 0; m * c > 0 && i < count; ++i) {
    call.form_q(element(all.block, i * wide * m), m, c, k, element(tau.block, i * (k + 1)),
                info.block.as<int>());
  }
  weft::copy(q, first(q));
}

void symmetric_eigen(const MemoryBlock& values, const MemoryBlock* vectors, const MemoryBlock& info,
                     const MemoryBlock& a, bool upper) {
  const int64_t n = rows_of(a);
  weft::fill(info, 0);
  const DenseMemory own(a.shape, a.dtype, a.device);
  weft::copy(own.block, a);
  for (int64_t i = 0; n > 0 && i < matrices_in(a); ++i) {
    SolverCall{a.dtype, a.device}.symmetric_eigen(element(own.block, i * n * n), n,
                                                  element(values, i * n), vectors != nullptr,
                                                  !upper, info.as<int>() + i);
  }
  if (vectors) weft::copy(*vectors, transposed(own.block));
}

void singular_values(const MemoryBlock* u, const MemoryBlock& s, const MemoryBlock* vh,
                     const MemoryBlock& info, const MemoryBlock& a) {
  const int64_t m = rows_of(a), n = a.shape.back(), k = std::min(m, n), count = matrices_in(a);
  weft::fill(info, 0);
  const bool is_wide = n >= m;
  const char job = !u ? 'N' : u->shape.back() > k || rows_of(*vh) > k ? 'A' : 'S';
  // cuSOLVER takes no matrix with more columns than rows: it gets a^T = v s u^T for a wide one,
  // whose rows are the columns of that.
  DenseMemory own(is_wide ? a.shape : transposed(a).shape, a.dtype, a.device);
  weft::copy(own.block, is_wide ? a : transposed(a));
  const auto flipped = [](const MemoryBlock& x) {
    return DenseMemory(transposed(x).shape, x.dtype, x.device);
  };
  const DenseMemory u_columns = u && !is_wide ? flipped(*u) : DenseMemory({0}, a.dtype, a.device),
                    v_columns = vh && !is_wide ? flipped(*vh) : DenseMemory({0}, a.dtype, a.device);
  const auto matrix = [](const MemoryBlock* x, const DenseMemory& columns, bool in_place,
                         int64_t i) {
    if (!x) return static_cast<void*>(nullptr);
    return element(in_place ? *x : columns.block, i * rows_of(*x) * x->shape.back());
  };
  for (int64_t i = 0; m * n > 0 && i < count; ++i) {
    void *left = matrix(u, u_columns, is_wide, i), *right = matrix(vh, v_columns, is_wide, i);
    const int64_t leading = !u ? 1 : is_wide ? u->shape.back() : rows_of(*vh);
    SolverCall{a.dtype, a.device}.singular_values(
        job, element(own.block, i * m * n), is_wide ? n : m, is_wide ? m : n, element(s, i * k),
        is_wide ? right : left, is_wide ? left : right, leading, info.as<int>() + i);
  }
  if (u && !is_wide) weft::copy(*u, transposed(u_columns.block));
  if (vh && !is_wide) weft::copy(*vh, transposed(v_columns.block));
}

#endif

void general_eigen(const MemoryBlock&, const MemoryBlock*, const MemoryBlock&,
                   const MemoryBlock& a) {
  fail("eig: device is ", a.device, ", expected the CPU");
}

}  // namespace weft::cuda
