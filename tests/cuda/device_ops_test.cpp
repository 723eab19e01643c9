// SPDX-License-Identifier: Apache-2.0
#include <thread>

#include "src/device/cuda/runtime.h"
#include "src/kernels/copy/copy.h"
#include "tests/cuda/device.h"
#include "weft/communicator.h"
#include "weft/error.h"
#include "weft/mesh.h"
#include "weft/ops.h"
#include "weft/ranks.h"
#include "weft/storage.h"
#include "weft/stream.h"
#include "weft/tensor.h"

namespace weft {

class DeviceOps : public OnGpu {};

/// -1.5, -1, ... in row-major order, on a device.
static Tensor numbers(const Shape& shape, Device device, DType dtype = DType::f32) {
  std::vector<double> values;
  for (int64_t i = 0; i < shape.product(); ++i)
    values.push_back(0.5 * static_cast<double>(i % 11) - 1.5);
  return from_values(values, shape, {.dtype = dtype, .device = device});
}

static void expect_alike(const Tensor& there, const Tensor& here, double bound = 1e-5) {
  ASSERT_EQ(there.device(), gpu);
  ASSERT_EQ(there.shape(), here.shape());
  ASSERT_EQ(there.dtype(), here.dtype());
  const auto a = there.to_vector<double>(), b = here.to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], bound * (1 + std::abs(b[i]))) << i;
}

TEST_F(DeviceOps, ElementwiseWithBroadcastAndViews) {
  const auto compute = [](Device device) {
    const Tensor a = numbers({5, 7}, device), b = numbers({7}, device);
    return exp(mul(a, b)) + numbers({7, 5}, device).t() * 2.0;
  };
  expect_alike(compute(gpu), compute(cpu));
}

TEST_F(DeviceOps, HalvesComputeInFloat) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const auto compute = [&](Device device) {
      return numbers({64, 33}, device, dtype) * numbers({64, 33}, device, dtype);
    };
    expect_alike(compute(gpu), compute(cpu), 0);
  }
}

TEST_F(DeviceOps, Reductions) {
  const auto both = [](auto compute) { expect_alike(compute(gpu), compute(cpu)); };
  both([](Device d) { return sum(numbers({70, 33}, d), {0}); });
  both([](Device d) { return sum(numbers({70, 33}, d), {1}, true); });
  both([](Device d) { return sum(numbers({3, 70, 33}, d), {0, 2}); });
  both([](Device d) { return mean(numbers({200, 300}, d), {0, 1}); });
  both([](Device d) { return max(numbers({7, 3, 5}, d), {1}); });
  both([](Device d) { return sum(numbers({0, 5}, d), {0}); });
}

TEST_F(DeviceOps, ManyDims) {
  // Every second dim is moved to the end, so that no two dims can be walked as one.
  const Shape shape = {2, 3, 2, 2, 2, 3, 2, 2, 2, 2, 2, 2};
  const auto moved = [&](Device d) {
    return permute(numbers(shape, d), {0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11});
  };
  const auto both = [](auto compute) { expect_alike(compute(gpu), compute(cpu)); };
  both([&](Device d) { return cast(moved(d), DType::f64); });
  both([&](Device d) { return mul(moved(d), moved(d)); });
  both([&](Device d) { return sum(moved(d), {0, 2, 4, 6, 8, 10}); });
  both([&](Device d) { return sum(moved(d), {1, 3, 5, 7, 9, 11}); });
  both([&](Device d) { return full(shape, 2.5, {.device = d}); });
}

TEST_F(DeviceOps, TrianglesOfAllKindsOfStrides) {
  const auto both = [](auto compute) { expect_alike(compute(gpu), compute(cpu), 0); };
  for (const DType dtype :
       {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i64, DType::u8, DType::boolean}) {
    for (const Shape& shape :
         {Shape{1, 1}, Shape{0, 4}, Shape{5, 7}, Shape{7, 5}, Shape{3, 33, 20}}) {
      const int last = shape.ndim() - 1;
      const auto given = [&](Device d) { return numbers(shape, d).to(dtype); };
      for (const int64_t diagonal : {-40, -2, 0, 3}) {
        SCOPED_TRACE(concat(dtype, " ", shape, " ", diagonal));
        both([&](Device d) { return tril(given(d), diagonal); });
        both([&](Device d) { return triu(given(d).transpose(last, last - 1), diagonal); });
        both([&](Device d) { return tril(slice(given(d), last, 0, shape[last], 2), diagonal); });
      }
    }
  }
}

TEST_F(DeviceOps, ProductsOfAllKindsOfStrides) {
  const auto both = [](auto compute) { expect_alike(compute(gpu), compute(cpu)); };
  both([](Device d) { return matmul(numbers({5, 7}, d), numbers({7, 3}, d)); });
  both([](Device d) { return matmul(numbers({7, 5}, d).t(), numbers({3, 7}, d).t()); });
  both([](Device d) { return matmul(numbers({2, 3, 5, 7}, d), numbers({3, 7, 4}, d)); });
  both([](Device d) { return linear(numbers({2, 5, 7}, d), numbers({4, 7}, d), numbers({4}, d)); });
  both([](Device d) { return matmul(numbers({5, 7}, d, i64), numbers({7, 3}, d, i64)); });
}

TEST_F(DeviceOps, GradientsThroughLinear) {
  const auto both = [](Device device) {
    Tensor x = numbers({4, 6, 5}, device), w = numbers({3, 5}, device);
    x.set_requires_grad(), w.set_requires_grad();
    sum(exp(linear(x, w) * 0.1)).backward();
    return std::pair(x.grad(), w.grad());
  };
  const auto there = both(gpu), here = both(cpu);
  expect_alike(there.first, here.first);
  expect_alike(there.second, here.second);
}

TEST_F(DeviceOps, ShardedOverRanksThatShareTheDevice) {
  const Tensor whole = matmul(numbers({10, 7}, cpu), numbers({7, 9}, cpu));
  run_ranks(4, [&](Communicator world) {
    const DeviceMesh mesh(world, {{"dp", 2}, {"tp", 2}});
    const Tensor x = distribute(numbers({10, 7}, gpu), mesh, {{"dp", Shard(0)}});
    const Tensor w = distribute(numbers({7, 9}, gpu), mesh, {{"tp", Shard(1)}});
    expect_alike(matmul(x, w).full_tensor(), whole);
    const Tensor rows = distribute(numbers({7, 9}, gpu), mesh, {{"tp", Shard(0)}});
    const Tensor columns = distribute(numbers({10, 7}, gpu), mesh, {{"tp", Shard(1)}});
    expect_alike(matmul(columns, rows).redistribute({Shard(1), Shard(0)}).full_tensor(), whole);
  });
}

TEST_F(DeviceOps, AWorkOfThreadsIsCompleteWhenTheGpuIs) {
  run_ranks(2, [](Communicator world) {
    const auto sent = Storage::allocate(64, gpu), received = Storage::allocate(64, gpu);
    const std::vector<int64_t> counts{16};
    const Piece piece{
        .send = sent->data(), .recv = received->data(), .counts = counts, .device = gpu};
    const Stream stream = current_stream(gpu);
    cuda::delay(stream, 50000);
    copy(dense_block(sent->data(), f32, {16}, gpu), dense_block(received->data(), f32, {16}, gpu));
    const Event before = Event::record(stream);
    Work work = world.all_reduce({&piece, 1}, ReduceOp::sum);
    while (!work.test()) std::this_thread::yield();
    EXPECT_TRUE(before.is_reached());
    work.wait();
  });
}

}  // namespace weft
