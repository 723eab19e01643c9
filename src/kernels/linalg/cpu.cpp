// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "src/base/numeric.h"
#include "src/kernels/linalg/lapack.h"
#include "src/kernels/linalg/linalg.h"
#include "src/kernels/matmul/product.h"
#include "src/kernels/matmul/tasks.h"

namespace weft::host {

namespace {

int64_t rows_of(const MemoryBlock& a) { return a.shape[a.shape.ndim() - 2]; }

/// The elements of matrix `index` of `like`'s leading dims, which those of `x` broadcast to; `own`
/// of x's dims are its last ones.
template <class T>
T* part_at(const MemoryBlock& x, int own, const MemoryBlock& like, int like_own, int64_t index) {
  int64_t offset = 0, stride = 1;
  for (int d = x.shape.ndim() - own; d < x.shape.ndim(); ++d) stride *= x.shape[d];
  const int leading = x.shape.ndim() - own, dims = like.shape.ndim() - like_own;
  for (int i = 1; i <= dims; ++i) {
    const int64_t size = like.shape[dims - i], at = index % size;
    index /= size;
    if (i > leading) continue;
    if (x.shape[leading - i] > 1) offset += at * stride;
    stride *= x.shape[leading - i];
  }
  return x.as<T>() + offset;
}

/// The type of the parts of a complex number, and that of other numbers.
template <class T> struct RealOf { using type = T; };
template <class R> struct RealOf<Complex<R>> { using type = R; };
template <class T> using Real = typename RealOf<T>::type;

/// Calls visitor(Type<T>{}) with the type of the elements of matrices.
template <class Visitor> void visit_elements(DType dtype, const Visitor& visitor) {
  switch (dtype) {
    case DType::f32: return visitor(Type<float>{});
    case DType::f64: return visitor(Type<double>{});
    case DType::c64: return visitor(Type<Complex<float>>{});
    case DType::c128: return visitor(Type<Complex<double>>{});
    default: fail("linalg: dtype is ", dtype, ", expected float32, float64 or complex numbers");
  }
}

/// Calls f(Type<T>, i) for each of the matrices in the leading dims of `a`: for several at a time
/// if there are enough of them, otherwise with the threads of the rank for each.
template <class F> void for_matrices(const MemoryBlock& a, const F& f) {
  int64_t count = 1, work = 1;
  for (int d = 0; d < a.shape.ndim() - 2; ++d) count *= a.shape[d];
  for (const int64_t size : a.shape) {
    work *= std::max<int64_t>(size, 1);
    if (size <= std::numeric_limits<int>::max() / 2) continue;
    fail("linalg: shape is ", a.shape, ", expected sizes below 2^30");
  }
  if (count == 0) return;
  constexpr int64_t kWorthThreads = 2048;
  const int threads = work < kWorthThreads ? 1 : usable_threads();
  visit_elements(a.dtype, [&]<class T>(Type<T> type) {
    if (threads > 1 && count >= threads) {
      run_tasks(count, threads, [&](int64_t i, int) {
        BlasThreads one(1);
        f(type, i);
      });
    } else {
      BlasThreads all(threads);
      for (int64_t i = 0; i < count; ++i) f(type, i);
    }
  });
}

template <class T> constexpr T kNan = T(std::numeric_limits<Real<T>>::quiet_NaN());

/// Zeros on one side of the diagonal of a row-major matrix.
template <class T> void clear_triangle(T* a, int64_t rows, int64_t columns, bool above) {
  for (int64_t i = 0; i < rows; ++i) {
    T* row = a + i * columns;
    above ? std::fill(row + std::min(i + 1, columns), row + columns, T(0))
          : std::fill(row, row + std::min(i, columns), T(0));
  }
}

template <class T> bool are_finite(const T* a, int64_t count) {
  const auto* parts = reinterpret_cast<const Real<T>*>(a);
  const auto number = count * static_cast<int64_t>(sizeof(T) / sizeof(Real<T>));
  return std::all_of(parts, parts + number, [](Real<T> x) { return std::isfinite(x); });
}

/// Writes 1 on the diagonal of a row-major matrix and 0 elsewhere; nothing for null.
template <class T> void fill_identity(T* a, int64_t rows, int64_t columns) {
  for (int64_t i = 0; a && i < rows * columns; ++i) a[i] = T(i / columns == i % columns);
}

/// The number of elements of workspace that LAPACK asks for.
template <class T> int asked(T work) {
  if constexpr (is_complex_type<T>) {
    return asked(work.re);
  } else {
    return std::max(1, static_cast<int>(work));
  }
}

/// Calls call(work, size) with size -1, which writes the size of the workspace into work[0], and
/// then with a workspace of that size.
template <class T, class F> void run_with_work(ScratchMemory& scratch, const F& call) {
  T size(0);
  call(&size, -1);
  const int elements = asked(size);
  call(scratch.take<T>(elements), elements);
}

/// Solves in x [n, k], row-major. LAPACK sees x^T, and the transpose of the triangle, whose adjoint
/// is conjugated: x^T conj(t) = b^T where t^H x = b.
template <class T> void solve_rows(T* x, const T* a, int64_t n, int64_t k, Triangle triangle) {
  const int rows = static_cast<int>(k), size = static_cast<int>(n), leading = std::max(1, rows);
  const int own = std::max(1, size);
  const T one(1);
  Lapack<T>::trsm("R", triangle.upper ? "L" : "U", triangle.transposed ? "C" : "N",
                  triangle.unit ? "U" : "N", &rows, &size, &one, a, &own, x, &leading, 1, 1, 1, 1);
}

template <class T> void exchange_rows(T* x, const int* pivots, int64_t n, int64_t k, bool back) {
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = back ? n - 1 - i : i, other = pivots[at] - 1;
    if (other != at) std::swap_ranges(x + at * k, x + (at + 1) * k, x + other * k);
  }
}

}  // namespace

void cholesky_factor(const MemoryBlock& l, const MemoryBlock& info, const MemoryBlock& a,
                     bool upper) {
  const int n = static_cast<int>(rows_of(a)), leading = std::max(1, n);
  const int64_t elements = int64_t{n} * n;
  for_matrices(a, [&]<class T>(Type<T>, int64_t i) {
    T* out = l.as<T>() + i * elements;
    int& failed = info.as<int>()[i];
    std::copy_n(a.as<T>() + i * elements, elements, out);
    Lapack<T>::potrf(upper ? "L" : "U", &n, out, &leading, &failed, 1);
    if (failed) return void(std::fill_n(out, elements, kNan<T>));
    clear_triangle(out, n, n, !upper);
  });
}

void lu_factor(const MemoryBlock& lu, const MemoryBlock& pivots, const MemoryBlock& order,
               const MemoryBlock& info, const MemoryBlock& a) {
  const int m = static_cast<int>(rows_of(a)), n = static_cast<int>(a.shape.back());
  const int k = std::min(m, n), leading = std::max(1, m);
  for_matrices(a, [&]<class T>(Type<T>, int64_t i) {
    ScratchMemory scratch;
    const int64_t elements = int64_t{m} * n;
    const Matrix by_column{scratch.take<T>(elements), a.dtype, 1, m};
    copy_matrix({a.as<T>() + i * elements, a.dtype, n, 1}, m, n, by_column);
    int* pivot = pivots.as<int>() + i * k;
    Lapack<T>::getrf(&m, &n, by_column.as<T>(), &leading, pivot, info.as<int>() + i);
    copy_matrix(by_column, m, n, {lu.as<T>() + i * elements, a.dtype, n, 1});
    int64_t* rows = order.as<int64_t>() + i * m;
    std::iota(rows, rows + m, int64_t{0});
    exchange_rows(rows, pivot, k, 1, false);
  });
}

void solve_triangle(const MemoryBlock& x, const MemoryBlock& a, const MemoryBlock& b,
                    Triangle triangle) {
  const int64_t n = rows_of(x), k = x.shape.back();
  for_matrices(x, [&]<class T>(Type<T>, int64_t i) {
    T* out = x.as<T>() + i * n * k;
    std::copy_n(part_at<T>(b, 2, x, 2, i), n * k, out);
    if (n * k > 0) solve_rows(out, part_at<T>(a, 2, x, 2, i), n, k, triangle);
  });
}

void lu_solve(const MemoryBlock& x, const MemoryBlock& lu, const MemoryBlock& pivots,
              const MemoryBlock& b, bool transposed) {
  const int64_t n = rows_of(x), k = x.shape.back();
  for_matrices(x, [&]<class T>(Type<T>, int64_t i) {
    T* out = x.as<T>() + i * n * k;
    const T* factors = part_at<T>(lu, 2, x, 2, i);
    const int* pivot = part_at<int>(pivots, 1, x, 2, i);
    const auto outside = std::find_if(pivot, pivot + n, [&](int p) { return p < 1 || p > n; });
    if (outside != pivot + n) {
      fail("lu_solve: pivot ", outside - pivot, " is ", *outside, ", expected 1 to ", n);
    }
    std::copy_n(part_at<T>(b, 2, x, 2, i), n * k, out);
    if (n * k == 0) return;
    const Triangle lower{false, transposed, true}, upper{true, transposed, false};
    if (!transposed) exchange_rows(out, pivot, n, k, false);
    solve_rows(out, factors, n, k, transposed ? upper : lower);
    solve_rows(out, factors, n, k, transposed ? lower : upper);
    if (transposed) exchange_rows(out, pivot, n, k, true);
  });
}

void qr_factor(const MemoryBlock& q, const MemoryBlock& r, const MemoryBlock& a) {
  const int m = static_cast<int>(rows_of(a)), n = static_cast<int>(a.shape.back());
  const int columns = static_cast<int>(q.shape.back()), k = std::min(m, n);
  // LAPACK sees a^T [n, m], whose LQ factors are those of a transposed.
  const int leading = std::max({1, n, columns});
  for_matrices(a, [&]<class T>(Type<T>, int64_t i) {
    ScratchMemory scratch;
    T *rows = scratch.take<T>(int64_t{m} * leading), *tau = scratch.take<T>(k + 1);
    const Matrix own{rows, a.dtype, leading, 1};
    copy_matrix({a.as<T>() + i * m * n, a.dtype, n, 1}, m, n, own);
    int failed = 0, query = -1;
    T factor_size(0), form_size(0);
    Lapack<T>::gelqf(&n, &m, rows, &leading, tau, &factor_size, &query, &failed);
    Lapack<T>::orglq(&columns, &m, &k, rows, &leading, tau, &form_size, &query, &failed);
    const int size = std::max(asked(factor_size), asked(form_size));
    T* work = scratch.take<T>(size);
    Lapack<T>::gelqf(&n, &m, rows, &leading, tau, work, &size, &failed);
    T* upper = r.as<T>() + i * columns * n;
    copy_matrix(own, columns, n, {upper, a.dtype, n, 1});
    clear_triangle(upper, columns, n, false);
    Lapack<T>::orglq(&columns, &m, &k, rows, &leading, tau, work, &size, &failed);
    copy_matrix(own, m, columns, {q.as<T>() + i * m * columns, a.dtype, columns, 1});
  });
}

namespace {

/// A [n, n] in column-major order becomes the eigenvectors of its triangle, if `job` is "V".
template <class T>
void run_hermitian(const char* job, const char* triangle, int n, T* a, Real<T>* values,
                   int* failed) {
  ScratchMemory scratch;
  const int leading = std::max(1, n);
  if constexpr (is_complex_type<T>) {
    T size(0);
    Real<T> reals = 0;
    int integers = 1, query = -1;
    const auto call = [&](T* work, int count, Real<T>* real, int real_count, int* whole,
                          int whole_count) {
      Lapack<T>::syevd(job, triangle, &n, a, &leading, values, work, &count, real, &real_count,
                       whole, &whole_count, failed, 1, 1);
    };
    call(&size, query, &reals, query, &integers, query);
    const int real_count = asked(reals);
    call(scratch.take<T>(asked(size)), asked(size), scratch.take<Real<T>>(real_count), real_count,
         scratch.take<int>(std::max(1, integers)), std::max(1, integers));
  } else {
    T size = 0;
    int integers = 1, query = -1;
    Lapack<T>::syevd(job, triangle, &n, a, &leading, values, &size, &query, &integers, &query,
                     failed, 1, 1);
    const int count = asked(size), whole_count = std::max(1, integers);
    Lapack<T>::syevd(job, triangle, &n, a, &leading, values, scratch.take<T>(count), &count,
                     scratch.take<int>(whole_count), &whole_count, failed, 1, 1);
  }
}

}  // namespace

void symmetric_eigen(const MemoryBlock& values, const MemoryBlock* vectors, const MemoryBlock& info,
                     const MemoryBlock& a, bool upper) {
  const int n = static_cast<int>(rows_of(a));
  const int64_t elements = int64_t{n} * n;
  for_matrices(a, [&]<class T>(Type<T>, int64_t i) {
    ScratchMemory scratch;
    T* own = scratch.take<T>(elements);
    auto* value = values.as<Real<T>>() + i * n;
    int& failed = info.as<int>()[i];
    std::copy_n(a.as<T>() + i * elements, elements, own);
    // Not the other triangle, which may hold anything.
    clear_triangle(own, n, n, !upper);
    failed = are_finite(own, elements) ? 0 : kNotFinite;
    if (!failed) run_hermitian(vectors ? "V" : "N", upper ? "L" : "U", n, own, value, &failed);
    if (failed) std::fill_n(value, n, kNan<Real<T>>);
    if (!vectors) return;
    T* columns = vectors->as<T>() + i * elements;
    if (failed) return void(std::fill_n(columns, elements, kNan<T>));
    copy_matrix({own, a.dtype, 1, n}, n, n, {columns, a.dtype, n, 1});
    if constexpr (is_complex_type<T>) {
      // LAPACK sees a^T, the conjugate of a.
      for (int64_t at = 0; at < elements; ++at) columns[at].im = -columns[at].im;
    }
  });
}

void singular_values(const MemoryBlock* u, const MemoryBlock& s, const MemoryBlock* vh,
                     const MemoryBlock& info, const MemoryBlock& a) {
  const int m = static_cast<int>(rows_of(a)), n = static_cast<int>(a.shape.back());
  const int k = std::min(m, n), leading = std::max(1, n), columns = u ? int(u->shape.back()) : k;
  const int rows = vh ? static_cast<int>(rows_of(*vh)) : k, u_leading = std::max(1, columns);
  // LAPACK sees a^T = vh^T s u^T, so that its u is vh and its vh is u.
  const char* job = !u ? "N" : columns > k || rows > k ? "A" : "S";
  for_matrices(a, [&]<class T>(Type<T>, int64_t i) {
    ScratchMemory scratch;
    const int64_t elements = int64_t{m} * n;
    T* own = scratch.take<T>(elements);
    auto* value = s.as<Real<T>>() + i * k;
    T *left = u ? u->as<T>() + i * m * columns : nullptr,
      *right = vh ? vh->as<T>() + i * rows * n : nullptr;
    int& failed = info.as<int>()[i];
    if (elements == 0) {
      failed = 0;
      fill_identity(left, m, columns);
      return fill_identity(right, rows, n);
    }
    std::copy_n(a.as<T>() + i * elements, elements, own);
    failed = are_finite(own, elements) ? 0 : kNotFinite;
    if (!failed) {
      int* integers = scratch.take<int>(8 * k + 1);
      const int64_t reals = int64_t{5} * k * k + 7 * k + 2 * int64_t{std::max(m, n)} * k;
      Real<T>* real = is_complex_type<T> ? scratch.take<Real<T>>(reals) : nullptr;
      run_with_work<T>(scratch, [&](T* work, int size) {
        if constexpr (is_complex_type<T>) {
          Lapack<T>::gesdd(job, &n, &m, own, &leading, value, right, &leading, left, &u_leading,
                           work, &size, real, integers, &failed, 1);
        } else {
          Lapack<T>::gesdd(job, &n, &m, own, &leading, value, right, &leading, left, &u_leading,
                           work, &size, integers, &failed, 1);
        }
      });
    }
    if (!failed) return;
    std::fill_n(value, k, kNan<Real<T>>);
    if (left) std::fill_n(left, int64_t{m} * columns, kNan<T>);
    if (right) std::fill_n(right, int64_t{rows} * n, kNan<T>);
  });
}

namespace {

/// Eigenvectors of a real matrix: those of two conjugate eigenvalues are x + iy and x - iy, and the
/// columns are x and y.
template <class R>
void store_pairs(const R* parts, const R* imaginary, int n, Complex<R>* vectors) {
  for (int64_t j = 0; j < n; ++j) {
    const bool is_pair = imaginary[j] != 0;
    for (int64_t i = 0; i < n; ++i) {
      const R re = parts[j * n + i], im = is_pair ? parts[(j + 1) * n + i] : R(0);
      vectors[i * n + j] = {re, im};
      if (is_pair) vectors[i * n + j + 1] = {re, -im};
    }
    if (is_pair) ++j;
  }
}

/// The eigenvalues of a [n, n] in column-major order, which is overwritten.
template <class T>
void run_general(T* a, int n, Complex<Real<T>>* values, Complex<Real<T>>* vectors, int* failed) {
  ScratchMemory scratch;
  const int leading = std::max(1, n), none = 1;
  const char* job = vectors ? "V" : "N";
  T* columns = vectors ? scratch.take<T>(int64_t{n} * n) : nullptr;
  auto* reals = scratch.take<Real<T>>(2 * leading);
  run_with_work<T>(scratch, [&](T* work, int size) {
    if constexpr (is_complex_type<T>) {
      Lapack<T>::geev("N", job, &n, a, &leading, values, nullptr, &none, columns, &leading, work,
                      &size, reals, failed, 1, 1);
    } else {
      Lapack<T>::geev("N", job, &n, a, &leading, reals, reals + n, nullptr, &none, columns,
                      &leading, work, &size, failed, 1, 1);
    }
  });
  if (*failed) return;
  if constexpr (is_complex_type<T>) {
    for (int64_t at = 0; vectors && at < int64_t{n} * n; ++at) {
      vectors[at] = columns[at % n * n + at / n];
    }
  } else {
    for (int i = 0; i < n; ++i) values[i] = {reals[i], reals[n + i]};
    if (vectors) store_pairs(columns, reals + n, n, vectors);
  }
}

}  // namespace

void general_eigen(const MemoryBlock& values, const MemoryBlock* vectors, const MemoryBlock& info,
                   const MemoryBlock& a) {
  const int n = static_cast<int>(rows_of(a));
  const int64_t elements = int64_t{n} * n;
  for_matrices(a, [&]<class T>(Type<T>, int64_t i) {
    using C = Complex<Real<T>>;
    ScratchMemory scratch;
    T* own = scratch.take<T>(elements);
    C *value = values.as<C>() + i * n,
      *columns = vectors ? vectors->as<C>() + i * elements : nullptr;
    int& failed = info.as<int>()[i];
    T* given = a.as<T>() + i * elements;
    failed = are_finite(given, elements) ? 0 : kNotFinite;
    copy_matrix({given, a.dtype, n, 1}, n, n, {own, a.dtype, 1, n});
    if (!failed && n > 0) run_general(own, n, value, columns, &failed);
    if (!failed) return;
    std::fill_n(value, n, kNan<C>);
    if (columns) std::fill_n(columns, elements, kNan<C>);
  });
}

}  // namespace weft::host
