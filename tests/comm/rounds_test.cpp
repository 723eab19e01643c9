// SPDX-License-Identifier: Apache-2.0
#include "src/comm/collective_parts.h"

#include <cstring>

#include "tests/comm/backends.h"
#include "weft/storage.h"

namespace weft {

/// Calls so large that processes publish their private memory in rounds.
class Rounds : public OnRanks {
 protected:
  /// Runs `body`, which gets whether the rank's memory is shared: of none, of all but the last, or
  /// of all (then there is one round).
  void run_mixes(const std::function<void(const Communicator& world, bool shared)>& body) {
    run([&](Communicator world) {
      const bool is_last = world.rank() + 1 == world.size();
      for (const bool shared : {false, !is_last, true}) body(world, shared);
    });
  }
};
INSTANTIATE_TEST_SUITE_P(All, Rounds,
                         testing::Combine(testing::ValuesIn(backends_of_the_host()),
                                          testing::Values(2, 3)),
                         case_name);

namespace {

/// Numbers in memory that other processes can, or cannot, access.
class Memory {
 public:
  Memory(int64_t count, bool is_shared) : own_(is_shared ? 0 : static_cast<size_t>(count)) {
    if (is_shared) shared_ = Storage::allocate(static_cast<size_t>(count) * sizeof(float));
    std::memset(data(), 0xee, static_cast<size_t>(count) * sizeof(float));
  }
  float* data() { return shared_ ? static_cast<float*>(shared_->data()) : own_.data(); }

 private:
  std::vector<float> own_;
  Ref<Storage> shared_;
};

/// Sums of eight such numbers are exact in f32.
float number(int rank, int piece, int64_t i) {
  return static_cast<float>((i * 7 + i / 1000 + rank * 131 + piece * 17) % 4099);
}

/// Uneven parts, of 2 to 3 MiB for few ranks; the second rank's is empty.
std::vector<int64_t> uneven_counts(int ranks, int piece) {
  std::vector<int64_t> counts;
  for (int r = 0; r < ranks; ++r) {
    counts.push_back(r == 1 ? 0 : (700'001 + 3'333 * r + 100 * piece) * 2 / (ranks + 1));
  }
  return counts;
}

int64_t before(const std::vector<int64_t>& counts, int rank) { return part_offset(counts, rank); }

constexpr int kPieces = 2;

/// The pieces of a call, and their memory.
struct Call {
  std::vector<std::vector<int64_t>> counts;
  std::vector<Memory> send, recv;
  std::vector<Piece> pieces;
};

/// Sends the numbers of this rank's pieces from `first` on.
Call call_of(const Communicator& world, bool shared,
             const std::vector<std::vector<int64_t>>& counts, const std::vector<int64_t>& sent,
             const std::vector<int64_t>& received, int first = 0) {
  Call call{.counts = counts, .send = {}, .recv = {}, .pieces = {}};
  for (size_t i = 0; i < counts.size(); ++i) {
    float* values = call.send.emplace_back(sent[i], shared).data();
    const int piece = first + static_cast<int>(i);
    for (int64_t j = 0; j < sent[i]; ++j) values[j] = number(world.rank(), piece, j);
    call.recv.emplace_back(received[i], shared);
  }
  for (size_t i = 0; i < counts.size(); ++i) {
    call.pieces.push_back(
        {.send = call.send[i].data(), .recv = call.recv[i].data(), .counts = call.counts[i]});
  }
  return call;
}

void expect_equal(const float* values, int64_t count,
                  const std::function<float(int64_t)>& expected) {
  int64_t wrong = 0, first = -1;
  for (int64_t i = 0; i < count; ++i) {
    if (values[i] == expected(i)) continue;
    if (wrong++ == 0) first = i;
  }
  ASSERT_EQ(wrong, 0) << "of " << count << ", the first one " << first;
}

/// Lists for each piece the counts of all ranks, that of this rank, and their sum.
struct Counts {
  std::vector<std::vector<int64_t>> of_ranks;
  std::vector<int64_t> own, all;
};

Counts uneven_pieces(const Communicator& world) {
  Counts counts;
  for (int piece = 0; piece < kPieces; ++piece) {
    counts.of_ranks.push_back(uneven_counts(world.size(), piece));
    counts.own.push_back(count_of(counts.of_ranks.back(), world.rank()));
    counts.all.push_back(total_of(counts.of_ranks.back()));
  }
  return counts;
}

}  // namespace

TEST_P(Rounds, GathersOfUnevenPartsInOneCall) {
  run_mixes([](const Communicator& world, bool shared) {
    const auto [counts, own, all] = uneven_pieces(world);
    Call call = call_of(world, shared, counts, own, all);
    const int64_t traffic = world.traffic().bytes;
    world.all_gather(call.pieces).wait();
    int64_t received = 0;
    for (int piece = 0; piece < kPieces; ++piece) {
      const auto p = static_cast<size_t>(piece);
      received += (all[p] - own[p]) * 4;
      for (int r = 0; r < world.size(); ++r) {
        expect_equal(call.recv[p].data() + before(counts[p], r), count_of(counts[p], r),
                     [&](int64_t i) { return number(r, piece, i); });
      }
    }
    EXPECT_EQ(world.traffic().bytes - traffic, received);
  });
}

TEST_P(Rounds, ReductionsOfUnevenParts) {
  run_mixes([](const Communicator& world, bool shared) {
    const auto [counts, own, all] = uneven_pieces(world);
    Call call = call_of(world, shared, counts, all, own);
    world.reduce_scatter(call.pieces, ReduceOp::sum).wait();
    for (int piece = 0; piece < kPieces; ++piece) {
      const auto p = static_cast<size_t>(piece);
      expect_equal(call.recv[p].data(), own[p], [&](int64_t i) {
        float sum = 0;
        for (int r = 0; r < world.size(); ++r) {
          sum += number(r, piece, before(counts[p], world.rank()) + i);
        }
        return sum;
      });
    }
  });
}

/// The results of all ranks: into other memory, in place, and with two calls in progress.
TEST_P(Rounds, AllReducesUnderWayTogether) {
  run_mixes([](const Communicator& world, bool shared) {
    const int64_t first_count = 900'017, second_count = 1'300'003;
    Call first = call_of(world, shared, {{first_count}}, {first_count}, {first_count});
    Call second = call_of(world, shared, {{second_count}}, {second_count}, {0}, 1);
    second.pieces[0].recv = second.send[0].data();
    const auto sum = [&](int piece, int64_t i) {
      float total = 0;
      for (int r = 0; r < world.size(); ++r) total += number(r, piece, i);
      return total;
    };
    Work one = world.all_reduce(first.pieces, ReduceOp::sum);
    Work two = world.all_reduce(second.pieces, ReduceOp::sum);
    // Waits in a different order on some ranks.
    if (world.rank() % 2 == 0) two.wait();
    one.wait();
    two.wait();
    expect_equal(first.recv[0].data(), first_count, [&](int64_t i) { return sum(0, i); });
    expect_equal(second.send[0].data(), second_count, [&](int64_t i) { return sum(1, i); });
  });
}

TEST_P(Rounds, FromAndToARoot) {
  run_mixes([](const Communicator& world, bool shared) {
    const int root = world.size() - 1;
    const bool is_root = world.rank() == root;
    const std::vector<int64_t> counts = uneven_counts(world.size(), 0);
    const int64_t own = count_of(counts, world.rank()), all = total_of(counts);
    Call call = call_of(world, shared, {counts}, {all}, {all});
    float* recv = call.recv[0].data();

    world.scatter(call.pieces, root).wait();
    expect_equal(recv, own,
                 [&](int64_t i) { return number(root, 0, before(counts, world.rank()) + i); });
    world.gather(call.pieces, root).wait();
    for (int r = 0; is_root && r < world.size(); ++r) {
      expect_equal(recv + before(counts, r), count_of(counts, r),
                   [&](int64_t i) { return number(r, 0, i); });
    }
    call.pieces[0].counts = {&all, 1};
    world.broadcast(call.pieces, root).wait();
    expect_equal(recv, all, [&](int64_t i) { return number(root, 0, i); });
  });
}

TEST_P(Rounds, CoverEachElementOnce) {
  for (const int64_t part : {0, 1, 63, 64, 65, 1000, 4096, 1'000'003}) {
    for (const int rounds : {1, 2, 3, 7, 100}) {
      int64_t next = 0;
      for (int round = 0; round < rounds; ++round) {
        const ElementRange range = range_of(part, {round, rounds});
        ASSERT_GE(range.count, 0);
        ASSERT_LE(range.count, most_of(part, rounds));
        if (range.count > 0) {
          ASSERT_EQ(range.begin, next);
        }
        next += range.count;
      }
      EXPECT_EQ(next, part);
    }
  }
}

TEST_P(Rounds, FewBytesAreOneRound) {
  const int64_t counts[] = {1000, 0, 3000};
  const Piece piece{.counts = counts};
  EXPECT_EQ(rounds_of({.kind = CollectiveKind::all_gather, .pieces = {&piece, 1}}, 3), 1);
  const int64_t many[] = {int64_t{1} << 20, 0, int64_t{1} << 21};
  const Piece large{.counts = many};
  EXPECT_EQ(rounds_of({.kind = CollectiveKind::all_gather, .pieces = {&large, 1}}, 3), 16);
  EXPECT_EQ(rounds_of({.kind = CollectiveKind::reduce_scatter, .pieces = {&large, 1}}, 3), 24);
  EXPECT_EQ(rounds_of({.kind = CollectiveKind::all_to_all, .pieces = {&large, 1}}, 3), 1);
}

}  // namespace weft
