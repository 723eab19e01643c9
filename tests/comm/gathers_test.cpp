// SPDX-License-Identifier: Apache-2.0
#include "tests/comm/backends.h"

namespace weft {

class Gathers : public OnRanks {};
INSTANTIATE_TEST_SUITE_P(All, Gathers, on_all_ranks(), case_name);

/// All ranks' parts concatenated; part r contains rank r's first numbers.
static Numbers whole_of(DType dtype, const std::vector<int64_t>& counts) {
  Numbers whole(dtype, total_of(counts));
  int64_t at = 0;
  for (size_t r = 0; r < counts.size(); ++r) {
    for (int64_t i = 0; i < counts[r]; ++i) {
      whole.set(at++, value_of(dtype, static_cast<int>(r), i));
    }
  }
  return whole;
}

static int64_t bytes_from_others(const std::vector<int64_t>& counts, int rank, DType dtype) {
  return (total_of(counts) - count_of(counts, rank)) * static_cast<int64_t>(size_of(dtype));
}

TEST_P(Gathers, BroadcastGivesAllTheRootsNumbers) {
  run([&](Communicator world) {
    for (const DType dtype : kAllDTypes) {
      for (const int64_t size : {0, 1, 5, 3000}) {
        for (int root = 0; root < world.size(); ++root) {
          Numbers sent = numbers_of(dtype, world.rank(), size);
          Numbers got(dtype, size);
          const Piece piece{
              .send = sent.data(), .recv = got.data(), .dtype = dtype, .counts = {&size, 1}};
          world.broadcast({&piece, 1}, root).wait();
          ASSERT_EQ(got, numbers_of(dtype, root, size));
        }
      }
    }
  });
}

TEST_P(Gathers, BroadcastInPlaceNeedsNoSecondMemory) {
  run([&](Communicator world) {
    const int root = world.size() - 1;
    Numbers numbers = numbers_of(f32, world.rank(), 7);
    const int64_t size = 7;
    const bool is_root = world.rank() == root;
    const Piece piece{.send = is_root ? numbers.data() : nullptr,
                      .recv = is_root ? nullptr : numbers.data(),
                      .counts = {&size, 1}};
    world.broadcast({&piece, 1}, root).wait();
    EXPECT_EQ(numbers, numbers_of(f32, root, 7));
    EXPECT_EQ(world.traffic().bytes, is_root ? 0 : 28);
  });
}

TEST_P(Gathers, AllGatherLaysPartsInRankOrder) {
  run([&](Communicator world) {
    for (const DType dtype : kAllDTypes) {
      for (const auto& counts : count_patterns(world.size())) {
        Numbers part = numbers_of(dtype, world.rank(), count_of(counts, world.rank()));
        Numbers whole(dtype, total_of(counts));
        const int64_t before = world.traffic().bytes;
        const Piece piece{
            .send = part.data(), .recv = whole.data(), .dtype = dtype, .counts = counts};
        world.all_gather({&piece, 1}).wait();
        ASSERT_EQ(whole, whole_of(dtype, counts));
        ASSERT_EQ(world.traffic().bytes - before, bytes_from_others(counts, world.rank(), dtype));
      }
    }
  });
}

TEST_P(Gathers, AllGatherInPlace) {
  run([&](Communicator world) {
    for (const auto& counts : count_patterns(world.size())) {
      Numbers whole(f32, total_of(counts));
      const int64_t offset = sum_of_first(counts, world.rank());
      for (int64_t i = 0; i < count_of(counts, world.rank()); ++i) {
        whole.set(offset + i, value_of(f32, world.rank(), i));
      }
      const Piece piece{.send = whole.at(offset), .recv = whole.data(), .counts = counts};
      world.all_gather({&piece, 1}).wait();
      ASSERT_EQ(whole, whole_of(f32, counts));
    }
  });
}

TEST_P(Gathers, GroupedPiecesOfSeveralDTypes) {
  run([&](Communicator world) {
    const auto patterns = count_patterns(world.size());
    std::vector<Numbers> parts;
    std::vector<Numbers> wholes;
    std::vector<Piece> pieces;
    for (size_t i = 0; i < patterns.size(); ++i) {
      parts.push_back(numbers_of(kAllDTypes[i], world.rank(), count_of(patterns[i], world.rank())));
      wholes.emplace_back(kAllDTypes[i], total_of(patterns[i]));
    }
    for (size_t i = 0; i < patterns.size(); ++i) {
      pieces.push_back({.send = parts[i].data(),
                        .recv = wholes[i].data(),
                        .dtype = kAllDTypes[i],
                        .counts = patterns[i]});
    }
    world.all_gather(pieces).wait();
    for (size_t i = 0; i < patterns.size(); ++i) {
      EXPECT_EQ(wholes[i], whole_of(kAllDTypes[i], patterns[i]));
    }
    EXPECT_EQ(world.traffic().collectives, world.size() > 1 ? 1 : 0);
  });
}

TEST_P(Gathers, NoPieces) {
  run([&](Communicator world) { world.all_gather({}).wait(); });
}

TEST_P(Gathers, GatherReachesTheRootOnly) {
  run([&](Communicator world) {
    for (const DType dtype : kAllDTypes) {
      for (const auto& counts : count_patterns(world.size())) {
        const int root = world.size() / 2;
        const bool is_root = world.rank() == root;
        Numbers part = numbers_of(dtype, world.rank(), count_of(counts, world.rank()));
        Numbers whole(dtype, total_of(counts), 1);
        const int64_t before = world.traffic().bytes;
        const Piece piece{.send = part.data(),
                          .recv = is_root ? whole.data() : nullptr,
                          .dtype = dtype,
                          .counts = counts};
        world.gather({&piece, 1}, root).wait();
        ASSERT_EQ(whole, is_root ? whole_of(dtype, counts) : Numbers(dtype, total_of(counts), 1));
        ASSERT_EQ(world.traffic().bytes - before,
                  is_root ? bytes_from_others(counts, root, dtype) : 0);
      }
    }
  });
}

TEST_P(Gathers, ScatterCutsWhatTheRootHolds) {
  run([&](Communicator world) {
    for (const DType dtype : kAllDTypes) {
      for (const auto& counts : count_patterns(world.size())) {
        const int root = world.size() - 1;
        const int64_t own = count_of(counts, world.rank());
        Numbers whole = whole_of(dtype, counts);
        Numbers part(dtype, own);
        const Piece piece{.send = world.rank() == root ? whole.data() : nullptr,
                          .recv = part.data(),
                          .dtype = dtype,
                          .counts = counts};
        world.scatter({&piece, 1}, root).wait();
        ASSERT_EQ(part, numbers_of(dtype, world.rank(), own));
      }
    }
  });
}

/// Elements that rank `from` sends to rank `to`: zero for some pairs.
static int64_t sent_between(int from, int to) { return (from * 3 + to * 5) % 4; }

TEST_P(Gathers, AllToAllWithACountForEachPair) {
  run([&](Communicator world) {
    std::vector<int64_t> send_counts;
    std::vector<int64_t> recv_counts;
    for (int r = 0; r < world.size(); ++r) {
      send_counts.push_back(sent_between(world.rank(), r));
      recv_counts.push_back(sent_between(r, world.rank()));
    }
    for (const DType dtype : kAllDTypes) {
      Numbers sent = numbers_of(dtype, world.rank(), total_of(send_counts));
      Numbers got(dtype, total_of(recv_counts));
      const Piece piece{
          .send = sent.data(), .recv = got.data(), .dtype = dtype, .counts = send_counts};
      world.all_to_all(piece, recv_counts).wait();
      int64_t at = 0;
      for (int from = 0; from < world.size(); ++from) {
        int64_t offset = 0;
        for (int to = 0; to < world.rank(); ++to) offset += sent_between(from, to);
        for (int64_t i = 0; i < sent_between(from, world.rank()); ++i) {
          ASSERT_EQ(got.get(at++), value_of(dtype, from, offset + i));
        }
      }
    }
  });
}

}  // namespace weft
