// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/cuda.h"

#include <cublasLt.h>

#include <cmath>

#include "weft/error.h"
#include "weft/ops.h"
#include "weft/storage.h"
#include "weft/stream.h"

#ifdef WEFT_WITH_CUDNN
#include <cudnn.h>

#include "src/kernels/attention/cudnn_graphs.h"
#endif

namespace weft::bench {

static void check(const char* call, cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) fail_call(call, cublasLtGetStatusName(status));
}

static cudaStream_t stream_of(const Tensor& tensor) {
  return static_cast<cudaStream_t>(current_stream(tensor.device()).handle);
}

namespace {

/// A prepared product. cuBLASLt matrices are column-major, so it computes c^T = b^T a^T.
class LtProduct {
 public:
  LtProduct(Tensor a, Tensor b, Tensor c)
      : a_(std::move(a)),
        b_(std::move(b)),
        c_(std::move(c)),
        workspace_(Storage::allocate(kWorkspaceBytes, c_.device())) {
    check("cublasLtCreate", cublasLtCreate(&handle_));
    check("cublasLtMatmulDescCreate",
          cublasLtMatmulDescCreate(&description_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t first = operation(b_), second = operation(a_);
    set(CUBLASLT_MATMUL_DESC_TRANSA, first);
    set(CUBLASLT_MATMUL_DESC_TRANSB, second);
    b_layout_ = layout_of(b_), a_layout_ = layout_of(a_), c_layout_ = layout_of(c_);
    choose();
  }
  ~LtProduct() {
    for (cublasLtMatrixLayout_t layout : {a_layout_, b_layout_, c_layout_}) {
      cublasLtMatrixLayoutDestroy(layout);
    }
    cublasLtMatmulDescDestroy(description_);
    cublasLtDestroy(handle_);
  }
  LtProduct(const LtProduct&) = delete;
  LtProduct& operator=(const LtProduct&) = delete;

  void run() const {
    const float alpha = 1, beta = 0;
    void* c = c_.block().data;
    check("cublasLtMatmul",
          cublasLtMatmul(handle_, description_, &alpha, b_.block().data, b_layout_, a_.block().data,
                         a_layout_, &beta, c, c_layout_, c, c_layout_, &algorithm_,
                         workspace_->data(), kWorkspaceBytes, stream_of(c_)));
  }

 private:
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;

  static bool is_by_column(const Tensor& x) { return x.block().strides[1] != 1; }
  static cublasOperation_t operation(const Tensor& x) {
    return is_by_column(x) ? CUBLAS_OP_T : CUBLAS_OP_N;
  }
  static cublasLtMatrixLayout_t layout_of(const Tensor& x) {
    const bool turned = is_by_column(x);
    cublasLtMatrixLayout_t layout = nullptr;
    check("cublasLtMatrixLayoutCreate",
          cublasLtMatrixLayoutCreate(
              &layout, CUDA_R_16BF, static_cast<uint64_t>(x.size(turned ? 0 : 1)),
              static_cast<uint64_t>(x.size(turned ? 1 : 0)), x.block().strides[turned ? 1 : 0]));
    return layout;
  }
  void set(cublasLtMatmulDescAttributes_t attribute, const cublasOperation_t& value) {
    check("cublasLtMatmulDescSetAttribute",
          cublasLtMatmulDescSetAttribute(description_, attribute, &value, sizeof(value)));
  }
  void choose() {
    cublasLtMatmulPreference_t preference = nullptr;
    check("cublasLtMatmulPreferenceCreate", cublasLtMatmulPreferenceCreate(&preference));
    check("cublasLtMatmulPreferenceSetAttribute",
          cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &kWorkspaceBytes, sizeof(kWorkspaceBytes)));
    cublasLtMatmulHeuristicResult_t best{};
    int results = 0;
    check("cublasLtMatmulAlgoGetHeuristic",
          cublasLtMatmulAlgoGetHeuristic(handle_, description_, b_layout_, a_layout_, c_layout_,
                                         c_layout_, preference, 1, &best, &results));
    cublasLtMatmulPreferenceDestroy(preference);
    if (results == 0) throw_runtime_error("cublasLtMatmulAlgoGetHeuristic: no algorithm");
    algorithm_ = best.algo;
  }

  const Tensor a_, b_, c_;
  const Ref<Storage> workspace_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t description_ = nullptr;
  cublasLtMatrixLayout_t a_layout_ = nullptr, b_layout_ = nullptr, c_layout_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
};

}  // namespace

VendorCall cublaslt_product(const Tensor& a, const Tensor& b, const Tensor& c) {
  const auto product = std::make_shared<LtProduct>(a, b, c);
  return [product] { product->run(); };
}

#ifdef WEFT_WITH_CUDNN

namespace {

/// Prepared attention, with memory for its results.
class CudnnAttention {
 public:
  CudnnAttention(const Tensor& q, const Tensor& k, const Tensor& v, bool backward)
      : q_(q),
        k_(k),
        v_(v),
        out_(empty_like(q)),
        dout_(empty_like(q)),
        dq_(empty_like(q)),
        dk_(empty_like(k)),
        dv_(empty_like(v)),
        statistics_(empty({q.size(0), q.size(2), q.size(1), 1},
                          {.dtype = DType::f32, .device = q.device()})) {
    if (cudnnCreate(&handle_) != CUDNN_STATUS_SUCCESS) fail_call("cudnnCreate", "failed");
    cuda::AttentionGraphSpec spec = described();
    add(spec);
    spec.backward = true;
    if (backward) add(spec);
  }
  ~CudnnAttention() { cudnnDestroy(handle_); }
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  bool has_engines() const {
    bool all = true;
    for (const cuda::AttentionGraph& graph : graphs_) all = all && graph.has_engine();
    return all;
  }
  void run() {
    cudnnSetStream(handle_, stream_of(q_));
    for (size_t i = 0; i < graphs_.size(); ++i) {
      graphs_[i].run(handle_, memory(i > 0), workspaces_[i]->data());
    }
  }

 private:
  static Tensor empty_like(const Tensor& x) {
    return empty(x.shape(), {.dtype = x.dtype(), .device = x.device()});
  }
  /// The dims in cuDNN's order: batch, heads, sequence, width.
  static cuda::GraphTensor described(const Tensor& x) {
    const MemoryBlock& block = x.block();
    cuda::GraphTensor tensor;
    const std::array<int, 4> order{0, 2, 1, 3};
    for (size_t d = 0; d < 4; ++d) {
      tensor.sizes[d] = block.shape[order[d]];
      tensor.strides[d] = block.strides[order[d]];
    }
    return tensor;
  }
  std::vector<std::pair<cuda::AttentionTensor, const Tensor*>> tensors() const {
    return {{cuda::kQ, &q_},       {cuda::kK, &k_},   {cuda::kV, &v_},   {cuda::kOut, &out_},
            {cuda::kDout, &dout_}, {cuda::kDq, &dq_}, {cuda::kDk, &dk_}, {cuda::kDv, &dv_}};
  }
  cuda::AttentionGraphSpec described() const {
    cuda::AttentionGraphSpec spec{};
    spec.dtype = q_.dtype();
    for (const auto& [name, tensor] : tensors()) spec.tensors[name] = described(*tensor);
    spec.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(q_.size(3))));
    spec.causal = true;
    spec.architecture = architecture();
    return spec;
  }
  int architecture() const {
    int major = 0, minor = 0;
    const int device = q_.device().index;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    return major * 10 + minor;
  }
  void add(const cuda::AttentionGraphSpec& spec) {
    graphs_.emplace_back(spec, handle_);
    workspaces_.push_back(Storage::allocate(graphs_.back().workspace_bytes(), q_.device()));
  }
  cuda::AttentionMemory memory(bool backward) const {
    cuda::AttentionMemory memory{{cuda::kStatistics, statistics_.block().data}};
    for (const auto& [name, tensor] : tensors()) {
      if (backward || name <= cuda::kOut) memory.emplace(name, tensor->block().data);
    }
    return memory;
  }

  const Tensor q_, k_, v_, out_, dout_, dq_, dk_, dv_, statistics_;
  cudnnHandle_t handle_ = nullptr;
  std::vector<cuda::AttentionGraph> graphs_;
  std::vector<Ref<Storage>> workspaces_;
};

}  // namespace

VendorCall cudnn_attention(const Tensor& q, const Tensor& k, const Tensor& v, bool backward) {
  const auto attention = std::make_shared<CudnnAttention>(q, k, v, backward);
  if (!attention->has_engines()) return {};
  return [attention] { attention->run(); };
}

#else

VendorCall cudnn_attention(const Tensor&, const Tensor&, const Tensor&, bool) { return {}; }

#endif

}  // namespace weft::bench
