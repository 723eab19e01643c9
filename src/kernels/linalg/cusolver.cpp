// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/linalg/cusolver.h"

#include <cublas_v2.h>
#include <cusolverDn.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "src/base/loaded_library.h"
#include "src/device/cuda/checked.h"
#include "src/device/cuda/runtime.h"
#include "src/kernels/copy/copy.h"

namespace weft::cuda {

static constinit const LoadedLibrary kSolver(WEFT_CUSOLVER_FILE, WEFT_CUSOLVER_DIRECTORY);
static constinit const LoadedLibrary kBlas(WEFT_CUBLAS_FILE, WEFT_CUBLAS_DIRECTORY);
WEFT_LOADED(kBlas, cublasCreate_v2);
WEFT_LOADED(kBlas, cublasDestroy_v2);
WEFT_LOADED(kBlas, cublasSetStream_v2);
WEFT_LOADED(kBlas, cublasGetStatusName);
WEFT_LOADED(kBlas, cublasStrsm_v2_64);
WEFT_LOADED(kBlas, cublasDtrsm_v2_64);
WEFT_LOADED(kSolver, cusolverDnCreate);
WEFT_LOADED(kSolver, cusolverDnDestroy);
WEFT_LOADED(kSolver, cusolverDnSetStream);
WEFT_LOADED(kSolver, cusolverDnCreateParams);
WEFT_LOADED(kSolver, cusolverDnDestroyParams);
WEFT_LOADED(kSolver, cusolverDnXpotrf_bufferSize);
WEFT_LOADED(kSolver, cusolverDnXpotrf);
WEFT_LOADED(kSolver, cusolverDnXgetrf_bufferSize);
WEFT_LOADED(kSolver, cusolverDnXgetrf);
WEFT_LOADED(kSolver, cusolverDnXgeqrf_bufferSize);
WEFT_LOADED(kSolver, cusolverDnXgeqrf);
WEFT_LOADED(kSolver, cusolverDnXsyevd_bufferSize);
WEFT_LOADED(kSolver, cusolverDnXsyevd);
WEFT_LOADED(kSolver, cusolverDnXgesvd_bufferSize);
WEFT_LOADED(kSolver, cusolverDnXgesvd);
WEFT_LOADED(kSolver, cusolverDnSorgqr_bufferSize);
WEFT_LOADED(kSolver, cusolverDnDorgqr_bufferSize);
WEFT_LOADED(kSolver, cusolverDnSorgqr);
WEFT_LOADED(kSolver, cusolverDnDorgqr);

static void check_blas(const char* call, cublasStatus_t status) {
  check_status(call, status, cublasGetStatusName);
}
static void check_solver(const char* call, cusolverStatus_t status) {
  check_status(call, status, [](cusolverStatus_t) { return "cuSOLVER status"; });
}

namespace {

cusolverDnHandle_t solver_on(const Stream& stream) {
  using Handles =
      LibraryHandles<cusolverDnHandle_t, cusolverDnCreate, cusolverDnDestroy, check_solver>;
  thread_local const auto handles = std::make_unique<Handles>();
  cusolverDnHandle_t handle = handles->of(stream.device, "cusolverDnCreate");
  check_solver("cusolverDnSetStream", cusolverDnSetStream(handle, handle_of(stream)));
  return handle;
}

cusolverDnParams_t options_on(const Stream& stream) {
  using Handles = LibraryHandles<cusolverDnParams_t, cusolverDnCreateParams,
                                 cusolverDnDestroyParams, check_solver>;
  thread_local const auto handles = std::make_unique<Handles>();
  return handles->of(stream.device, "cusolverDnCreateParams");
}

cublasHandle_t blas_on(const Stream& stream) {
  using Handles = LibraryHandles<cublasHandle_t, cublasCreate_v2, cublasDestroy_v2, check_blas>;
  thread_local const auto handles = std::make_unique<Handles>();
  cublasHandle_t handle = handles->of(stream.device, "cublasCreate");
  check_blas("cublasSetStream", cublasSetStream_v2(handle, handle_of(stream)));
  return handle;
}

cublasFillMode_t triangle(bool upper) {
  return upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER;
}

DenseMemory device_bytes(size_t bytes, Device device) {
  return {{static_cast<int64_t>(bytes)}, DType::u8, device};
}

/// Asks for the sizes of the workspaces by `ask(&device, &host)` and calls with these.
template <class Ask, class Run>
void run_with_workspace(const char* call, Device device, const Ask& ask, const Run& run) {
  size_t on_device = 0, on_host = 0;
  check_solver(call, ask(&on_device, &on_host));
  const DenseMemory work = device_bytes(on_device, device);
  std::vector<std::byte> host(on_host);
  check_solver(call, run(work.block.data, on_device, host.data(), on_host));
  // The call reads the host's workspace until it ends.
  if (on_host > 0) synchronize(current_stream(device));
}

}  // namespace

void SolverCall::cholesky(void* a, int64_t n, bool upper, int* info) const {
  const auto handle = solver_on(current_stream(device));
  const auto options = options_on(current_stream(device));
  const auto type = type_in_library(dtype);
  const auto fill = triangle(upper);
  run_with_workspace(
      "cusolverDnXpotrf", device,
      [&](size_t* there, size_t* here) {
        return cusolverDnXpotrf_bufferSize(handle, options, fill, n, type, a, n, type, there, here);
      },
      [&](void* there, size_t size, void* here, size_t host) {
        return cusolverDnXpotrf(handle, options, fill, n, type, a, n, type, there, size, here, host,
                                info);
      });
}

void SolverCall::lu(void* a, int64_t m, int64_t n, int64_t* pivots, int* info) const {
  const auto handle = solver_on(current_stream(device));
  const auto options = options_on(current_stream(device));
  const auto type = type_in_library(dtype);
  run_with_workspace(
      "cusolverDnXgetrf", device,
      [&](size_t* there, size_t* here) {
        return cusolverDnXgetrf_bufferSize(handle, options, m, n, type, a, m, type, there, here);
      },
      [&](void* there, size_t size, void* here, size_t host) {
        return cusolverDnXgetrf(handle, options, m, n, type, a, m, pivots, type, there, size, here,
                                host, info);
      });
}

void SolverCall::divide_by_triangle(void* x, const void* a, int64_t k, int64_t n, bool upper,
                                    bool transposed, bool unit) const {
  const auto handle = blas_on(current_stream(device));
  const auto operation = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  const auto diagonal = unit ? CUBLAS_DIAG_UNIT : CUBLAS_DIAG_NON_UNIT;
  const auto call = [&]<class T>(const auto& trsm, T one) {
    return trsm(handle, CUBLAS_SIDE_RIGHT, triangle(upper), operation, diagonal, k, n, &one,
                static_cast<const T*>(a), n, static_cast<T*>(x), k);
  };
  check_blas("cublasTrsm",
             dtype == DType::f64 ? call(cublasDtrsm_v2_64, 1.0) : call(cublasStrsm_v2_64, 1.0f));
}

void SolverCall::qr(void* a, int64_t m, int64_t n, void* tau, int* info) const {
  const auto handle = solver_on(current_stream(device));
  const auto options = options_on(current_stream(device));
  const auto type = type_in_library(dtype);
  run_with_workspace(
      "cusolverDnXgeqrf", device,
      [&](size_t* there, size_t* here) {
        return cusolverDnXgeqrf_bufferSize(handle, options, m, n, type, a, m, type, tau, type,
                                           there, here);
      },
      [&](void* there, size_t size, void* here, size_t host) {
        return cusolverDnXgeqrf(handle, options, m, n, type, a, m, type, tau, type, there, size,
                                here, host, info);
      });
}

void SolverCall::form_q(void* a, int64_t m, int64_t columns, int64_t reflections, const void* tau,
                        int* info) const {
  const auto handle = solver_on(current_stream(device));
  const int rows = static_cast<int>(m), wide = static_cast<int>(columns),
            count = static_cast<int>(reflections);
  const auto call = [&]<class T>(const auto& ask, const auto& run, T) {
    auto* matrix = static_cast<T*>(a);
    const auto* factors = static_cast<const T*>(tau);
    int size = 0;
    check_solver("cusolverDnOrgqr_bufferSize",
                 ask(handle, rows, wide, count, matrix, rows, factors, &size));
    const DenseMemory work = device_bytes(static_cast<size_t>(size) * sizeof(T), device);
    check_solver("cusolverDnOrgqr", run(handle, rows, wide, count, matrix, rows, factors,
                                        work.block.as<T>(), size, info));
  };
  dtype == DType::f64 ? call(cusolverDnDorgqr_bufferSize, cusolverDnDorgqr, 0.0)
                      : call(cusolverDnSorgqr_bufferSize, cusolverDnSorgqr, 0.0f);
}

void SolverCall::symmetric_eigen(void* a, int64_t n, void* values, bool with_vectors, bool upper,
                                 int* info) const {
  const auto handle = solver_on(current_stream(device));
  const auto options = options_on(current_stream(device));
  const auto type = type_in_library(dtype);
  const auto job = with_vectors ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR;
  const auto fill = triangle(upper);
  run_with_workspace(
      "cusolverDnXsyevd", device,
      [&](size_t* there, size_t* here) {
        return cusolverDnXsyevd_bufferSize(handle, options, job, fill, n, type, a, n, type, values,
                                           type, there, here);
      },
      [&](void* there, size_t size, void* here, size_t host) {
        return cusolverDnXsyevd(handle, options, job, fill, n, type, a, n, type, values, type,
                                there, size, here, host, info);
      });
}

void SolverCall::singular_values(char job, void* a, int64_t m, int64_t n, void* s, void* u,
                                 void* vt, int64_t vt_leading, int* info) const {
  const auto handle = solver_on(current_stream(device));
  const auto options = options_on(current_stream(device));
  const auto type = type_in_library(dtype);
  const auto mode = static_cast<signed char>(job);
  run_with_workspace(
      "cusolverDnXgesvd", device,
      [&](size_t* there, size_t* here) {
        return cusolverDnXgesvd_bufferSize(handle, options, mode, mode, m, n, type, a, m, type, s,
                                           type, u, m, type, vt, vt_leading, type, there, here);
      },
      [&](void* there, size_t size, void* here, size_t host) {
        return cusolverDnXgesvd(handle, options, mode, mode, m, n, type, a, m, type, s, type, u, m,
                                type, vt, vt_leading, type, there, size, here, host, info);
      });
}

}  // namespace weft::cuda
