// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <functional>
#include <memory>

#include "src/comm/transport.h"
#include "tests/comm/backends.h"
#include "tests/support/scratch.h"
#include "weft/error.h"
#include "weft/ranks.h"

namespace weft {

/// Calls a function for each phase.
class ReaderOf final : public ExchangeReader {
 public:
  using Function = std::function<int64_t(int, std::span<const void* const>)>;
  explicit ReaderOf(Function function) : function_(std::move(function)) {}
  int64_t read(int phase, std::span<const void* const> shown) override {
    return function_(phase, shown);
  }

 private:
  Function function_;
};

static MemoryBlock number_block(int64_t& number) { return dense_block(&number, i64, {1}); }

/// The number that a rank publishes in a phase.
static int64_t number_in(const void* shown, int phase) {
  return *static_cast<const MemoryBlock*>(shown)[phase].as<int64_t>();
}

class Exchanges : public OnRanks {};
INSTANTIATE_TEST_SUITE_P(All, Exchanges, on_all_ranks(), case_name);

TEST_P(Exchanges, EachPhaseBeginsWhenAllHaveEndedTheOneBefore) {
  run([&](Communicator world) {
    if (world.size() == 1) return;
    for (int round = 0; round < 100; ++round) {
      // Each phase adds up the values of all ranks in the phase before.
      std::array<int64_t, 4> levels{world.rank() + round, 0, 0, 0};
      std::array<MemoryBlock, 3> blocks;
      for (size_t i = 0; i < 3; ++i) blocks[i] = number_block(levels[i]);
      ReaderOf reader([&](int phase, std::span<const void* const> shown) {
        int64_t sum = 0;
        for (const void* peer : shown) sum += number_in(peer, phase);
        levels.at(static_cast<size_t>(phase) + 1) = sum;
        return int64_t{8};
      });
      world.transport()->exchange({.blocks = blocks, .content = 9}, reader);
      const int64_t n = world.size();
      const int64_t first = n * (n - 1) / 2 + n * round;
      ASSERT_EQ(levels,
                (std::array<int64_t, 4>{world.rank() + round, first, first * n, first * n * n}));
    }
    EXPECT_EQ(world.traffic().bytes, 100 * 3 * 8);
    EXPECT_EQ(world.traffic().collectives, 100);
  });
}

static const std::array<MemoryBlock, 1> kOneBlock;

static std::string failure_of(const std::function<void(Communicator)>& body) {
  return error_of<std::runtime_error>(
      [&] { run_ranks(2, body, {.deadline = std::chrono::seconds(5), .threads_per_rank = 1}); });
}

TEST(Exchanges, OtherContentIsToldInTheCallersWords) {
  const std::string message = failure_of([](Communicator world) {
    ReaderOf reader([](int, std::span<const void* const>) { return int64_t{0}; });
    const bool first = world.rank() == 0;
    world.transport()->exchange({.blocks = kOneBlock,
                                 .content = first ? 1u : 2u,
                                 .words = first ? "redistribute([4], S(0) -> R)" : "fetch([5])"},
                                reader);
  });
  EXPECT_EQ(message,
            "world: collective 1: rank 0 called redistribute([4], S(0) -> R) but rank 1 called "
            "fetch([5])");
}

TEST(Exchanges, WordsAreOptionalAndClipped) {
  const std::string message = failure_of([](Communicator world) {
    ReaderOf reader([](int, std::span<const void* const>) { return int64_t{0}; });
    const std::string words = world.rank() == 0 ? "" : std::string(200, 'x');
    world.transport()->exchange(
        {.blocks = kOneBlock, .content = static_cast<uint64_t>(world.rank()), .words = words},
        reader);
  });
  EXPECT_EQ(message, "world: collective 1: rank 0 called exchange() but rank 1 called " +
                         std::string(79, 'x'));
}

TEST(Exchanges, AReaderThatThrowsEndsTheWorld) {
  const std::string message = failure_of([](Communicator world) {
    ReaderOf reader([&](int, std::span<const void* const>) -> int64_t {
      if (world.rank() == 1) throw std::runtime_error("cannot read");
      return 0;
    });
    world.transport()->exchange({.blocks = kOneBlock}, reader);
  });
  EXPECT_EQ(message, "cannot read");
}

}  // namespace weft
