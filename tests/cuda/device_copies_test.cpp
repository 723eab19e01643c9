// SPDX-License-Identifier: Apache-2.0
#include "src/device/cuda/runtime.h"
#include "src/kernels/copy/copy.h"
#include "tests/cuda/device.h"
#include "tests/support/scratch.h"
#include "weft/error.h"
#include "weft/ops/factories.h"
#include "weft/storage.h"
#include "weft/tensor.h"

namespace weft {

class DeviceCopies : public OnGpu {};

/// A block with its own memory.
struct Held {
  Ref<Storage> memory;
  MemoryBlock block;
};

static Held held(const Shape& shape, DType dtype, Device device) {
  Ref<Storage> memory =
      Storage::allocate(static_cast<size_t>(shape.product()) * size_of(dtype), device);
  return {memory, dense_block(memory->data(), dtype, shape, device)};
}

static std::vector<double> counted(int64_t n) {
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<double>(i % 100) - 20);
  return values;
}

TEST_F(DeviceCopies, ThereAndBackInEveryDtype) {
  const std::vector<double> values = counted(105);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32, DType::i64,
                            DType::u8, DType::boolean}) {
    const Tensor there = from_values(values, {3, 5, 7}, {.dtype = dtype, .device = gpu});
    const Tensor here = from_values(values, {3, 5, 7}, {.dtype = dtype});
    EXPECT_EQ(there.device(), gpu);
    EXPECT_EQ(there.to_vector<double>(), here.to_vector<double>()) << name_of(dtype);
  }
}

TEST_F(DeviceCopies, StridedBlocksOfOneDevice) {
  const Held from = held({4, 6}, DType::f32, gpu), to = held({6, 4}, DType::f64, gpu);
  fill_range(from.block, 5);
  MemoryBlock transposed = from.block;
  transposed.shape = {6, 4};
  transposed.strides = {1, 6};
  copy(to.block, transposed);
  const Held back = held({6, 4}, DType::f32, cpu);
  copy(back.block, to.block);
  for (int i = 0; i < 24; ++i) EXPECT_EQ(back.block.as<float>()[i], 5 + i % 4 * 6 + i / 4) << i;
}

TEST_F(DeviceCopies, FillsAPart) {
  const Held whole = held({5, 5}, DType::i64, gpu);
  fill(whole.block, 7);
  fill(whole.block.part({{1, 2}, {3, 2}}), -3);
  const Held back = held({5, 5}, DType::i64, cpu);
  copy(back.block, whole.block);
  for (int i = 0; i < 25; ++i) {
    const bool inside = i / 5 >= 1 && i / 5 < 4 && i % 5 >= 2 && i % 5 < 4;
    EXPECT_EQ(back.block.as<int64_t>()[i], inside ? -3 : 7) << i;
  }
}

TEST_F(DeviceCopies, BroadcastsFromTheHost) {
  const Held to = held({3, 4}, DType::f32, gpu), row = held({4}, DType::i32, cpu);
  for (int i = 0; i < 4; ++i) row.block.as<int32_t>()[i] = i * i;
  copy(to.block, row.block);
  const Held back = held({3, 4}, DType::f32, cpu);
  copy(back.block, to.block);
  for (int i = 0; i < 12; ++i) EXPECT_EQ(back.block.as<float>()[i], (i % 4) * (i % 4)) << i;
}

TEST_F(DeviceCopies, BetweenDevices) {
  if (cuda::device_count() < 2) GTEST_SKIP() << "there is one device";
  const Device other{DeviceKind::cuda, 1};
  const Held a = held({7, 3}, DType::f32, gpu), b = held({7, 3}, DType::bf16, other);
  fill_range(a.block, 0);
  copy(b.block, a.block);
  const Held back = held({7, 3}, DType::f32, cpu);
  copy(back.block, b.block);
  for (int i = 0; i < 21; ++i) EXPECT_EQ(back.block.as<float>()[i], i) << i;
}

TEST_F(DeviceCopies, MemoryIsKeptAndCounted) {
  const int64_t before = memory_statistics(DeviceKind::cuda).total.current;
  const int64_t fresh = memory_statistics(DeviceKind::cuda).fresh_allocations;
  const void* first = nullptr;
  {
    const PurposeScope purpose(Purpose::activations);
    const Ref<Storage> memory = Storage::allocate(1 << 20, gpu);
    first = memory->data();
    const MemoryStatistics statistics = memory_statistics(DeviceKind::cuda);
    EXPECT_EQ(statistics.total.current - before, 1 << 20);
    EXPECT_EQ(statistics.fresh_allocations - fresh, 1);
  }
  EXPECT_EQ(memory_statistics(DeviceKind::cuda).total.current, before);
  EXPECT_GE(memory_statistics(DeviceKind::cuda).cached, 1 << 20);
  EXPECT_EQ(Storage::allocate(1 << 20, gpu)->data(), first);
  release_cached_memory();
  EXPECT_EQ(memory_statistics(DeviceKind::cuda).cached, 0);
}

TEST_F(DeviceCopies, NoMemoryLeftSaysWhoHasIt) {
  const PurposeScope purpose(Purpose::optimizer);
  const Ref<Storage> some = Storage::allocate(4096, gpu);
  const std::string error =
      error_of<std::runtime_error>([&] { Storage::allocate(size_t{1} << 42, gpu); });
  EXPECT_TRUE(has(error, "cuda:0 has no 4398046511104 bytes left"));
  EXPECT_TRUE(has(error, "optimizer 4096"));
}

TEST_F(DeviceCopies, EventsOrderStreams) {
  const Stream compute = stream_for(gpu, StreamRole::compute);
  const Stream other = stream_for(gpu, StreamRole::copy);
  const Held device = held({1000}, DType::f32, gpu), copied = held({1000}, DType::f32, gpu);
  fill(device.block, 3);
  Event::record(compute).wait(other);
  cuda::copy_on_devices(copied.block.data, device.block.data, 4000, other);
  Event::record(other).wait(compute);
  const Held back = held({1000}, DType::f32, cpu);
  copy(back.block, copied.block);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(back.block.as<float>()[i], 3);
}

}  // namespace weft
