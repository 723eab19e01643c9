// SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <unordered_map>

#include "src/base/loaded_library.h"
#include "src/device/cuda/checked.h"
#include "src/device/cuda/runtime.h"
#include "src/kernels/matmul/product.h"
#include "weft/error.h"
#include "weft/extend/hash.h"
#include "weft/storage.h"

namespace weft::cuda {

static constinit const LoadedLibrary kLibrary(WEFT_CUBLASLT_FILE, WEFT_CUBLASLT_DIRECTORY);
WEFT_LOADED(kLibrary, cublasLtCreate);
WEFT_LOADED(kLibrary, cublasLtDestroy);
WEFT_LOADED(kLibrary, cublasLtGetStatusName);
WEFT_LOADED(kLibrary, cublasLtMatmul);
WEFT_LOADED(kLibrary, cublasLtMatmulAlgoGetHeuristic);
WEFT_LOADED(kLibrary, cublasLtMatmulDescCreate);
WEFT_LOADED(kLibrary, cublasLtMatmulDescDestroy);
WEFT_LOADED(kLibrary, cublasLtMatmulDescSetAttribute);
WEFT_LOADED(kLibrary, cublasLtMatmulPreferenceCreate);
WEFT_LOADED(kLibrary, cublasLtMatmulPreferenceDestroy);
WEFT_LOADED(kLibrary, cublasLtMatmulPreferenceSetAttribute);
WEFT_LOADED(kLibrary, cublasLtMatrixLayoutCreate);
WEFT_LOADED(kLibrary, cublasLtMatrixLayoutDestroy);
WEFT_LOADED(kLibrary, cublasLtMatrixLayoutSetAttribute);

static void check_cublaslt(const char* call, cublasStatus_t status) {
  check_status(call, status, cublasLtGetStatusName);
}

namespace {

/// Workspace recommended for cuBLASLt on Hopper; one per thread and stream.
constexpr size_t kWorkspaceBytes = size_t{32} << 20;
constexpr int64_t kBestAlignment = 256;

/// A matrix as cuBLASLt sees it, in column-major order.
struct Stored {
  const void* data;
  DType dtype;
  int64_t rows, columns, leading;
  /// It stores the transpose of the operand.
  bool transposed;
  int64_t batch_stride;
};

/// One product for cuBLASLt, in column-major order: d = op(a) op(b) + beta d. weft's row-major c =
/// a b is the same as c^T = b^T a^T.
struct Problem {
  Stored a, b, d;
  int64_t m, n, k, batch;
  const void* bias;
  DType bias_dtype;
  float beta;
};

/// Everything that the choice of algorithm depends on; compared byte by byte.
struct Key {
  int64_t m, n, k, batch, leading[3], batch_strides[3], alignment[4];
  int32_t transposed[2], dtypes[4], device, beta;
  bool operator==(const Key& other) const { return std::memcmp(this, &other, sizeof(Key)) == 0; }
};

struct KeyHash {
  size_t operator()(const Key& key) const { return xxh3_of(std::as_bytes(std::span(&key, 1))); }
};

struct Destroy {
  void operator()(cublasLtMatmulDescOpaque_t* desc) const { cublasLtMatmulDescDestroy(desc); }
  void operator()(cublasLtMatrixLayoutOpaque_t* layout) const {
    cublasLtMatrixLayoutDestroy(layout);
  }
  void operator()(cublasLtMatmulPreferenceOpaque_t* preference) const {
    cublasLtMatmulPreferenceDestroy(preference);
  }
};
using Description = std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroy>;
using MatrixLayout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroy>;
using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Destroy>;

/// The algorithm of one kind of product; has no algorithm when cuBLASLt supports none.
struct Recipe {
  Description description;
  MatrixLayout a, b, d;
  bool has_algorithm = false;
  cublasLtMatmulAlgo_t algorithm;
};

template <class T>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check_cublaslt("cublasLtMatmulDescSetAttribute",
                 cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof(T)));
}

Description make_description(const Problem& p) {
  const bool wide = p.a.dtype == DType::f64;
  cublasLtMatmulDesc_t desc = nullptr;
  check_cublaslt("cublasLtMatmulDescCreate",
                 cublasLtMatmulDescCreate(&desc, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                          wide ? CUDA_R_64F : CUDA_R_32F));
  Description description(desc);
  const cublasOperation_t op_a = p.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t op_b = p.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  set(desc, CUBLASLT_MATMUL_DESC_TRANSA, op_a);
  set(desc, CUBLASLT_MATMUL_DESC_TRANSB, op_b);
  if (p.bias) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const cudaDataType_t type = type_in_library(p.bias_dtype);
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    set(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type);
    set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  }
  return description;
}

MatrixLayout make_layout(const Stored& matrix, int64_t batch) {
  cublasLtMatrixLayout_t layout = nullptr;
  check_cublaslt("cublasLtMatrixLayoutCreate",
                 cublasLtMatrixLayoutCreate(&layout, type_in_library(matrix.dtype),
                                            static_cast<uint64_t>(matrix.rows),
                                            static_cast<uint64_t>(matrix.columns), matrix.leading));
  MatrixLayout owned(layout);
  const auto count = static_cast<int32_t>(batch);
  check_cublaslt("cublasLtMatrixLayoutSetAttribute",
                 cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                  &count, sizeof(count)));
  check_cublaslt(
      "cublasLtMatrixLayoutSetAttribute",
      cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                       &matrix.batch_stride, sizeof(matrix.batch_stride)));
  return owned;
}

uint32_t alignment_of(uintptr_t address) {
  return static_cast<uint32_t>(std::min<uintptr_t>(address & (~address + 1), kBestAlignment));
}

/// Returns the alignment common to all matrices of a batch.
uint32_t alignment_of(const Stored& side) {
  const auto stride = static_cast<uintptr_t>(side.batch_stride) * size_of(side.dtype);
  return alignment_of(reinterpret_cast<uintptr_t>(side.data) | stride | kBestAlignment);
}

Preference make_preference(const Problem& p) {
  cublasLtMatmulPreference_t made = nullptr;
  check_cublaslt("cublasLtMatmulPreferenceCreate", cublasLtMatmulPreferenceCreate(&made));
  Preference preference(made);
  const auto set_preference = [&](cublasLtMatmulPreferenceAttributes_t attribute,
                                  const auto& value) {
    check_cublaslt("cublasLtMatmulPreferenceSetAttribute",
                   cublasLtMatmulPreferenceSetAttribute(made, attribute, &value, sizeof(value)));
  };
  set_preference(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  set_preference(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.a));
  set_preference(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.b));
  set_preference(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p.d));
  set_preference(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.d));
  return preference;
}

/// The calling thread's handles by device, its recipes, and its workspaces by device and stream, as
/// products of two streams may run at the same time.
struct Library {
  LibraryHandles<cublasLtHandle_t, cublasLtCreate, cublasLtDestroy, check_cublaslt> handles;
  std::unordered_map<Key, Recipe, KeyHash> recipes;
  std::map<std::pair<int, void*>, Ref<Storage>> workspaces;

  /// `device` must be the thread's current device.
  cublasLtHandle_t handle(Device device) { return handles.of(device, "cublasLtCreate"); }
  void* workspace(const Stream& stream) {
    Ref<Storage>& memory = workspaces[{stream.device.index, stream.handle}];
    if (!memory) memory = Storage::allocate(kWorkspaceBytes, stream.device);
    return memory->data();
  }
  Recipe& recipe_for(const Problem& problem, Device device);
};

Library& library() {
  static thread_local const auto one = std::make_unique<Library>();
  return *one;
}

Key key_of(const Problem& p, Device device) {
  Key key;
  std::memset(&key, 0, sizeof(key));
  const Stored* const sides[] = {&p.a, &p.b, &p.d};
  key.m = p.m, key.n = p.n, key.k = p.k, key.batch = p.batch;
  for (int i = 0; i < 3; ++i) {
    key.leading[i] = sides[i]->leading;
    key.batch_strides[i] = sides[i]->batch_stride;
    key.alignment[i] = alignment_of(*sides[i]);
    key.dtypes[i] = static_cast<int32_t>(sides[i]->dtype);
  }
  key.alignment[3] = p.bias ? alignment_of(reinterpret_cast<uintptr_t>(p.bias)) : 0;
  key.dtypes[3] = p.bias ? static_cast<int32_t>(p.bias_dtype) : -1;
  key.transposed[0] = p.a.transposed, key.transposed[1] = p.b.transposed;
  key.device = device.index;
  key.beta = p.beta != 0;
  return key;
}

Recipe& Library::recipe_for(const Problem& p, Device device) {
  const auto [found, is_new] = recipes.try_emplace(key_of(p, device));
  Recipe& recipe = found->second;
  if (!is_new) return recipe;
  recipe.description = make_description(p);
  recipe.a = make_layout(p.a, p.batch);
  recipe.b = make_layout(p.b, p.batch);
  recipe.d = make_layout(p.d, p.batch);
  cublasLtMatmulHeuristicResult_t best{};
  int results = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle(device), recipe.description.get(), recipe.a.get(), recipe.b.get(), recipe.d.get(),
      recipe.d.get(), make_preference(p).get(), 1, &best, &results);
  recipe.has_algorithm = status == CUBLAS_STATUS_SUCCESS && results == 1;
  recipe.algorithm = best.algo;
  return recipe;
}

/// Describes `rows` x `columns` of a matrix in column-major order, possibly as its transpose.
/// Returns false when neither its rows nor its columns are dense.
bool store(const Matrix& matrix, int64_t rows, int64_t columns, int64_t batch_stride, Stored& to) {
  const DenseRows layout = dense_rows(matrix, rows, columns);
  const int64_t stride = layout.transposed ? matrix.column : matrix.row;
  if (layout.transposed) std::swap(rows, columns);
  to = {matrix.data,       matrix.dtype, columns, rows, std::max(stride, layout.leading),
        layout.transposed, batch_stride};
  return layout.possible;
}

bool make_problem(const BatchedProduct& batch, const Product& p, Problem& problem) {
  const BatchDim dim = batch.ndim > 0 ? batch.dims[0] : BatchDim{1, 0, 0, 0};
  const DenseRows result = dense_rows(p.c, p.m, p.n);
  if (result.transposed) {
    // The result is stored transposed, so compute the transposed product.
    if (p.bias) return false;
    BatchedProduct turned = batch;
    turned.dims[0] = {dim.size, dim.b, dim.a, dim.c};
    return make_problem(turned, p.transposed(), problem);
  }
  problem.m = p.n, problem.n = p.m, problem.k = p.k, problem.batch = dim.size;
  problem.bias = p.bias, problem.bias_dtype = p.bias_dtype, problem.beta = p.beta;
  return store(p.c, p.m, p.n, dim.c, problem.d) && store(p.b, p.k, p.n, dim.b, problem.a) &&
         store(p.a, p.m, p.k, dim.a, problem.b);
}

bool has_type(const Product& p) {
  if (!is_floating(p.a.dtype) || p.k == 0) return false;
  return !p.bias || p.bias_dtype == p.c.dtype || p.bias_dtype == p.a.dtype;
}

/// Returns false when cuBLASLt rejects the algorithm: nothing is queued, and the recipe is dropped.
bool run(const Problem& p, Recipe& recipe, Device device) {
  if (p.bias) set(recipe.description.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  const float alpha = 1, beta = p.beta;
  const double wide_alpha = 1, wide_beta = static_cast<double>(p.beta);
  const bool wide = p.a.dtype == DType::f64;
  Library& lt = library();
  const Stream stream = current_stream(device);
  const cublasStatus_t status = cublasLtMatmul(
      lt.handle(device), recipe.description.get(),
      wide ? static_cast<const void*>(&wide_alpha) : &alpha, p.a.data, recipe.a.get(), p.b.data,
      recipe.b.get(), wide ? static_cast<const void*>(&wide_beta) : &beta, p.d.data, recipe.d.get(),
      const_cast<void*>(p.d.data), recipe.d.get(), &recipe.algorithm, lt.workspace(stream),
      kWorkspaceBytes, handle_of(stream));
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) {
    return recipe.has_algorithm = false;
  }
  check_cublaslt("cublasLtMatmul", status);
  return true;
}

}  // namespace

bool is_described_by_cublaslt(const BatchedProduct& batch) {
  Problem problem;
  if (!has_type(batch.each) || !make_problem(batch, batch.each, problem)) return false;
  const Description description = make_description(problem);
  const Preference preference = make_preference(problem);
  for (const Stored* side : {&problem.a, &problem.b, &problem.d}) make_layout(*side, problem.batch);
  return true;
}

bool multiply_by_cublaslt(const BatchedProduct& batch, Device device) {
  if (!has_type(batch.each)) return false;
  current_stream(device);  // makes the device current for cuBLASLt
  const int64_t inner = batch.ndim > 0 ? batch.dims[0].size : 1;
  const int64_t outer = batch.count() / inner;
  for (int64_t i = 0; i < outer; ++i) {
    Problem problem;
    if (!make_problem(batch, product_at(batch, i, 1), problem)) return false;
    Recipe& recipe = library().recipe_for(problem, device);
    if (recipe.has_algorithm && run(problem, recipe, device)) continue;
    if (i > 0) throw_runtime_error("cublasLtMatmul: no algorithm within one batch");
    return false;
  }
  return true;
}

}  // namespace weft::cuda
