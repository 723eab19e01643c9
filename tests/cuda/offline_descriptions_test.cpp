// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#ifdef WEFT_WITH_CUDNN
#include <cudnn_frontend.h>
#endif

#include "src/kernels/matmul/product.h"
#include "weft/error.h"

#ifdef WEFT_WITH_CUDNN
#include "src/kernels/attention/cudnn_graphs.h"
#endif

namespace weft {

// Checks of NVIDIA's libraries that need no GPU: they support the shapes of the Llama.

/// A Llama of 1.2 billion parameters, and the tokens of a step.
static constexpr int64_t kDim = 2048, kKvDim = 512, kFfn = 8192, kVocabulary = 32000,
                         kTokens = 4096;

static constexpr int64_t kLinears[][2] = {
    {kDim, kDim}, {kKvDim, kDim}, {kFfn, kDim}, {kDim, kFfn}, {kVocabulary, kDim}};

/// Memory that is described but never read.
static void* somewhere() { return reinterpret_cast<void*>(uintptr_t{1} << 20); }

static Matrix row_major(DType dtype, int64_t columns) { return {somewhere(), dtype, columns, 1}; }

static bool described(int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b,
                      const Matrix& c, float beta = 0) {
  BatchedProduct batch;
  batch.each = {m, n, k, a, b, c, beta};
  return cuda::is_described_by_cublaslt(batch);
}

TEST(OfflineDescriptions, LinearsAndTheirGradients) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const auto& [out, in] : kLinears) {
      const Matrix x = row_major(dtype, in), w = row_major(dtype, in), y = row_major(dtype, out);
      EXPECT_TRUE(described(kTokens, out, in, x, w.transposed(), y)) << out << " of " << in;
      EXPECT_TRUE(described(kTokens, in, out, y, w, x)) << "input gradient " << in;
      const Matrix gradient = row_major(DType::f32, in);
      EXPECT_TRUE(described(out, in, kTokens, y.transposed(), x, gradient, 1))
          << "weight gradient " << out;
    }
  }
}

/// Both operands are dense along the dim that is summed.
TEST(OfflineDescriptions, LinearsInEightBits) {
  for (const DType left : {DType::f8_e4m3, DType::f8_e5m2}) {
    for (const auto& [out, in] : kLinears) {
      const Matrix x = row_major(left, in), w = row_major(DType::f8_e4m3, in);
      EXPECT_TRUE(described(kTokens, out, in, x, w.transposed(), row_major(DType::f32, out)));
    }
  }
}

TEST(OfflineDescriptions, IntegersAndStridesOfNeitherKindAreNot) {
  EXPECT_FALSE(described(4, 4, 4, row_major(DType::i64, 4), row_major(DType::i64, 4),
                         row_major(DType::i64, 4)));
  const Matrix spread{somewhere(), DType::f32, 16, 2};
  EXPECT_FALSE(described(4, 4, 4, spread, row_major(DType::f32, 4), row_major(DType::f32, 4)));
}

#ifdef WEFT_WITH_CUDNN

/// An H100 in cuDNN's JSON description of devices.
static constexpr const char* kHopper =
    R"({"deviceName":"NVIDIA H100 80GB HBM3","cudaDeviceId":0,"deviceVer":900,"driverVer":13000,)"
    R"("isTccDriver":0,"l2CacheSize":52428800,"maxCtasPerSM":32,"maxRegistersPerSM":65536,)"
    R"("maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,)"
    R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"memClockRateKHz":2619000,)"
    R"("multiProcessorCount":132,"pciDeviceId":0,"regsPerBlock":65536,)"
    R"("reservedSharedMemoryPerBlock":1024,"smClockRateKHz":1980000,"supportCoopLaunch":1,)"
    R"("totalGlobalMem":84942979072,"warpSize":32,"maxGridSize":[2147483647,65535,65535],)"
    R"("maxBlockSize":[1024,1024,64]})";

/// A view of [batch, sequence, heads, width], the layout in the layers.
static cuda::GraphTensor by_heads(int64_t heads) {
  constexpr int64_t batch = 2, sequence = 2048, width = 64;
  return {{batch, heads, sequence, width}, {sequence * heads * width, width, heads * width, 1}};
}

/// Without the driver's library no engine can be built; cuDNN's error then names the candidates.
static int64_t engines_named_in(const std::string& text) {
  int64_t count = 0;
  for (size_t at = text.find("engineId"); at != std::string::npos;
       at = text.find("engineId", at + 1)) {
    ++count;
  }
  return count;
}

static void check_graph(const char* call, cudnn_frontend::error_t error) {
  if (error.is_bad()) fail_call(call, error.get_message());
}

/// Returns how many engines cuDNN names for the graph on a device with those properties (cuDNN's
/// JSON). std::runtime_error with cuDNN's reason when there are none.
static int64_t engines_for(const cuda::AttentionGraphSpec& spec,
                           const std::string& device_properties) {
  cuda::load_cudnn();
  const cuda::GraphHandle graph = cuda::attention_graph(spec);
  auto properties = std::make_shared<cudnn_frontend::DeviceProperties>();
  check_graph("cudnn device properties",
              properties->deserialize({device_properties.begin(), device_properties.end()}));
  graph->set_device_properties(properties);
  check_graph("cudnn graph", graph->validate());
  check_graph("cudnn operation graph", graph->build_operation_graph());
  auto plans = graph->create_execution_plans({cudnn_frontend::HeurMode_t::A});
  if (plans.is_good()) return graph->get_execution_plan_count();
  const int64_t named = engines_named_in(plans.get_message());
  if (named == 0) fail_call("cudnn plans", plans.get_message());
  return named;
}

TEST(OfflineDescriptions, AttentionHasAnEngineOnHopper) {
  const cuda::GraphTensor q = by_heads(32), kv = by_heads(8);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const bool backward : {false, true}) {
      const cuda::AttentionGraphSpec spec{
          dtype, {{{}, q, kv, kv, q, {}, q, q, kv, kv}}, 0.125f, true, backward, backward, 90};
      ASSERT_TRUE(cuda::suits_cudnn(spec));
      const int64_t engines = engines_for(spec, kHopper);
      EXPECT_GT(engines, 0);
      std::printf("cudnn: %lld engines for %s of %s\n", static_cast<long long>(engines),
                  backward ? "the gradients" : "attention", std::string(name_of(dtype)).c_str());
    }
  }
}

#endif

}  // namespace weft
