// SPDX-License-Identifier: Apache-2.0
#include <cublas_v2.h>

#include <algorithm>
#include <vector>

#include "src/base/loaded_library.h"
#include "src/device/cuda/checked.h"
#include "src/device/cuda/runtime.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/matmul/product.h"

namespace weft::cuda {

static constinit const LoadedLibrary kCublas(WEFT_CUBLAS_FILE, WEFT_CUBLAS_DIRECTORY);
WEFT_LOADED(kCublas, cublasCreate_v2);
WEFT_LOADED(kCublas, cublasDestroy_v2);
WEFT_LOADED(kCublas, cublasSetStream_v2);
WEFT_LOADED(kCublas, cublasGetStatusName);
WEFT_LOADED(kCublas, cublasGemmGroupedBatchedEx_64);

static void check_cublas(const char* call, cublasStatus_t status) {
  check_status(call, status, cublasGetStatusName);
}

namespace {

cublasHandle_t handle_for(const Stream& stream) {
  using Handles = LibraryHandles<cublasHandle_t, cublasCreate_v2, cublasDestroy_v2, check_cublas>;
  thread_local const auto handles = std::make_unique<Handles>();
  cublasHandle_t handle = handles->of(stream.device, "cublasCreate");
  check_cublas("cublasSetStream", cublasSetStream_v2(handle, handle_of(stream)));
  return handle;
}

/// One operand of each product, as cuBLAS reads it: in column-major order.
struct Side {
  std::vector<cublasOperation_t> operations;
  std::vector<int64_t> leading;
  std::vector<const void*> data;

  /// Returns false when neither the rows nor the columns of the matrix are dense.
  bool add(const Matrix& matrix, int64_t rows, int64_t columns) {
    const bool by_row = matrix.column == 1 && matrix.row >= columns;
    const bool by_column = matrix.row == 1 && matrix.column >= rows;
    if (!by_row && !by_column) return false;
    operations.push_back(by_row ? CUBLAS_OP_N : CUBLAS_OP_T);
    leading.push_back(std::max<int64_t>(1, by_row ? matrix.row : matrix.column));
    data.push_back(matrix.data);
    return true;
  }
};

/// Products as cuBLAS computes them: weft's row-major c = a b is the same as c^T = b^T a^T.
template <class Scalar> struct GroupedProducts {
  Side a, b, c;
  std::vector<int64_t> m, n, k, sizes;
  std::vector<Scalar> alpha, beta;

  bool add(const Product& p) {
    m.push_back(p.n), n.push_back(p.m), k.push_back(p.k), sizes.push_back(1);
    alpha.push_back(1), beta.push_back(static_cast<Scalar>(p.beta));
    return a.add(p.b, p.k, p.n) && b.add(p.a, p.m, p.k) && c.add(p.c, p.m, p.n) &&
           c.operations.back() == CUBLAS_OP_N;
  }
};

/// The addresses of the three sides' matrices, in the device's memory.
DenseMemory addresses_on(Device device, const Side* const (&sides)[3]) {
  std::vector<const void*> all;
  for (const Side* side : sides) all.insert(all.end(), side->data.begin(), side->data.end());
  static_assert(sizeof(void*) == 8);
  DenseMemory memory({static_cast<int64_t>(all.size())}, DType::i64, device);
  weft::copy(memory.block, dense_block(all.data(), DType::i64, memory.block.shape));
  return memory;
}

template <class Scalar>
bool multiply_grouped(std::span<const Product> products, const Stream& stream) {
  GroupedProducts<Scalar> all;
  for (const Product& product : products) {
    if (!all.add(product)) return false;
  }
  const DenseMemory memory = addresses_on(stream.device, {&all.a, &all.b, &all.c});
  auto** address = memory.block.as<void*>();
  const size_t count = products.size();
  const cudaDataType_t type = type_in_library(products[0].a.dtype);
  const cublasStatus_t status = cublasGemmGroupedBatchedEx_64(
      handle_for(stream), all.a.operations.data(), all.b.operations.data(), all.m.data(),
      all.n.data(), all.k.data(), all.alpha.data(), address, type, all.a.leading.data(),
      address + count, type, all.b.leading.data(), all.beta.data(), address + 2 * count,
      type_in_library(products[0].c.dtype), all.c.leading.data(), static_cast<int64_t>(count),
      all.sizes.data(),
      products[0].a.dtype == DType::f64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return false;
  check_cublas("cublasGemmGroupedBatchedEx", status);
  return true;
}

bool are_of_one_type(std::span<const Product> products) {
  return std::all_of(products.begin(), products.end(), [&](const Product& p) {
    return is_floating(p.a.dtype) && p.a.dtype == products[0].a.dtype && p.c.dtype == p.a.dtype &&
           !p.bias && p.m > 0 && p.n > 0 && p.k > 0;
  });
}

}  // namespace

bool multiply_each_by_cublas(std::span<const Product> products, Device device) {
  if (products.empty()) return true;
  if (!are_of_one_type(products)) return false;
  const Stream stream = current_stream(device);
  return products[0].a.dtype == DType::f64 ? multiply_grouped<double>(products, stream)
                                           : multiply_grouped<float>(products, stream);
}

}  // namespace weft::cuda
