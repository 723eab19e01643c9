// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <fstream>
#include <memory>

#include "tests/comm/backends.h"

namespace weft {

class LargeMessages : public OnRanks {};
INSTANTIATE_TEST_SUITE_P(All, LargeMessages,
                         testing::Combine(testing::ValuesIn(backends_of_the_host()),
                                          testing::Values(2)),
                         case_name);

/// More bytes than an int can count.
static constexpr int64_t kLargeBytes = (int64_t{1} << 31) + 4096;

static int64_t available_gigabytes() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  int64_t kilobytes = 0;
  while (file >> name >> kilobytes) {
    if (name == "MemAvailable:") return kilobytes >> 20;
    file.ignore(100, '\n');
  }
  return 0;
}

/// Memory that has not been touched, so that the system has not allocated its pages.
static std::unique_ptr<std::byte[]> untouched(int64_t bytes) {
  return std::unique_ptr<std::byte[]>(new std::byte[static_cast<size_t>(bytes)]);
}

/// Numbers whose period is not a power of two; their sum over two ranks is exact.
static float large_value(int rank, int64_t i) { return static_cast<float>((i + rank * 5) % 1021); }

static void fill(float* values, int64_t count, int rank) {
  constexpr int64_t period = 1021 * 256;
  for (int64_t i = 0; i < period; ++i) values[i] = large_value(rank, i);
  for (int64_t i = period; i < count; i += period) {
    std::copy_n(values, std::min(period, count - i), values + i);
  }
}

/// Checks every 61st value and the last.
template <class Expected>
static void expect_values(const float* values, int64_t count, Expected&& expected) {
  int64_t wrong = values[count - 1] != expected(count - 1);
  for (int64_t i = 0; i < count; i += 61) wrong += values[i] != expected(i);
  EXPECT_EQ(wrong, 0);
}

TEST_P(LargeMessages, BroadcastMessageAndReduction) {
  if (available_gigabytes() < 8) GTEST_SKIP() << "8 GiB of memory are not available";
  run([&](Communicator world) {
    const auto memory = untouched(kLargeBytes);
    auto* values = reinterpret_cast<float*>(memory.get());
    const int64_t count = kLargeBytes / 4;
    const int rank = world.rank();
    if (rank == 0) fill(values, count, 0);
    const Piece bytes{.send = values, .recv = values, .dtype = u8, .counts = {&kLargeBytes, 1}};
    world.broadcast({&bytes, 1}, 0).wait();
    expect_values(values, count, [](int64_t i) { return large_value(0, i); });

    if (rank == 1) fill(values, count, 1);
    if (rank == 1) world.send(values, count, f32, 0).wait();
    if (rank == 0) world.recv(values, count, f32, 1).wait();
    expect_values(values, count, [](int64_t i) { return large_value(1, i); });

    if (rank == 0) fill(values, count, 0);
    const Piece piece{.send = values, .recv = values, .counts = {&count, 1}};
    world.all_reduce({&piece, 1}, ReduceOp::sum).wait();
    expect_values(values, count, [](int64_t i) { return large_value(0, i) + large_value(1, i); });
  });
}

}  // namespace weft
