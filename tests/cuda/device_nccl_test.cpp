// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "src/comm/nccl/calls.h"
#include "src/comm/nccl/library.h"
#include "src/comm/transport.h"
#include "src/kernels/copy/copy.h"
#include "tests/comm/nccl_backend.h"
#include "tests/cuda/device.h"
#include "tests/cuda/graph_steps.h"
#include "tests/support/lone_world.h"
#include "tests/support/scratch.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/mesh.h"
#include "weft/ops.h"
#include "weft/storage.h"

namespace weft {

class DeviceNccl : public OnGpu {};

/// A vector on a device.
class Vector {
 public:
  Vector(DType dtype, int64_t size)
      : dtype_(dtype),
        size_(size),
        memory_(Storage::allocate(static_cast<size_t>(size) * size_of(dtype), gpu)) {}
  Vector(DType dtype, const std::vector<float>& values)
      : Vector(dtype, static_cast<int64_t>(values.size())) {
    copy(block(), dense_block(const_cast<float*>(values.data()), f32, {size_}));
  }

  void* data() const { return memory_->data(); }
  MemoryBlock block() const { return dense_block(memory_->data(), dtype_, {size_}, gpu); }
  std::vector<float> values() const {
    std::vector<float> values(static_cast<size_t>(size_));
    copy(dense_block(values.data(), f32, {size_}), block());
    return values;
  }

 private:
  DType dtype_;
  int64_t size_;
  Ref<Storage> memory_;
};

/// Numbers whose sums need rounding, different on each rank.
static std::vector<float> uneven_numbers(int rank, int64_t size) {
  std::vector<float> values(static_cast<size_t>(size));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = std::sin(static_cast<float>(i) * 1.7f + static_cast<float>(rank) * 0.9f) * 3.3f;
  }
  return values;
}

/// Reductions of a rank, one after the other, on `device`.
static std::vector<float> reductions(const Communicator& world, Device device, DType dtype) {
  const std::vector<int64_t> counts{40, 40, 40}, uneven{70, 0, 50};
  const int64_t size = 120;
  const std::vector<float> own = uneven_numbers(world.rank(), size);
  std::vector<float> results;
  for (const auto& parts : {counts, uneven}) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg}) {
      const int64_t part = parts[static_cast<size_t>(world.rank())];
      auto memory = [&](int64_t elements, DType type) {
        return Storage::allocate(static_cast<size_t>(elements) * size_of(type), device);
      };
      const auto sent = memory(size, dtype), whole = memory(size, f32), mine = memory(size, f32);
      auto block = [&](const Ref<Storage>& at, int64_t elements, DType type) {
        return dense_block(at->data(), type, {elements}, device);
      };
      const MemoryBlock host = dense_block(const_cast<float*>(own.data()), f32, {size});
      copy(block(sent, size, dtype), host);
      copy(block(mine, size, f32), host);
      const Piece all{.send = sent->data(),
                      .recv = whole->data(),
                      .dtype = dtype,
                      .counts = {&size, 1},
                      .recv_dtype = f32,
                      .device = device};
      world.all_reduce({&all, 1}, op).wait();
      const Piece scattered{.send = sent->data(),
                            .recv = mine->data(),
                            .dtype = dtype,
                            .counts = parts,
                            .recv_dtype = f32,
                            .accumulate = true,
                            .device = device};
      world.reduce_scatter({&scattered, 1}, op).wait();
      std::vector<float> got(static_cast<size_t>(size + part));
      copy(dense_block(got.data(), f32, {size}), block(whole, size, f32));
      copy(dense_block(got.data() + size, f32, {part}), block(mine, part, f32));
      results.insert(results.end(), got.begin(), got.end());
    }
  }
  return results;
}

/// Sets use_deterministic_algorithms for a scope.
struct InRankOrder {
  InRankOrder() { use_deterministic_algorithms(true); }
  ~InRankOrder() { use_deterministic_algorithms(false); }
};

TEST_F(DeviceNccl, InRankOrderBitsAreThoseOfThreads) {
  const InRankOrder scope;
  run_without_peers(3, [](Communicator world) {
    for (const DType dtype : {f32, bf16, f16, f64}) {
      EXPECT_EQ(reductions(world, gpu, dtype), reductions(world, cpu, dtype)) << dtype;
    }
  });
}

TEST_F(DeviceNccl, OtherwiseTheyAreNear) {
  run_without_peers(3, [](Communicator world) {
    const auto there = reductions(world, gpu, f32), here = reductions(world, cpu, f32);
    ASSERT_EQ(there.size(), here.size());
    bool differ = false;
    for (size_t i = 0; i < here.size(); ++i) {
      EXPECT_NEAR(there[i], here[i], 1e-6 * 10);
      differ = differ || there[i] != here[i];
    }
    EXPECT_TRUE(differ) << "the emulated order is that of ranks, which shows nothing";
  });
}

static const std::vector<int64_t> kFourEach{4, 4, 4};

/// Gathers the numbers of all ranks, four of each.
static Work all_gather(const Communicator& world, const Vector& part, const Vector& whole) {
  const Piece piece{.send = part.data(),
                    .recv = whole.data(),
                    .counts = {kFourEach.data(), static_cast<size_t>(world.size())},
                    .device = gpu};
  return world.all_gather({&piece, 1});
}

TEST_F(DeviceNccl, AWorkIsInTheOrderOfStreams) {
  run_without_peers(3, [](Communicator world) {
    const auto rank = static_cast<float>(world.rank());
    const Vector part(f32, {rank, rank, rank, rank}), whole(f32, 12), later(f32, 12);
    const Vector over(f32, {9, 9, 9, 9});
    const Stream compute = current_stream(gpu), gather = stream_for(gpu, StreamRole::gather);
    Event::record(compute).wait(gather);
    Work work;
    {
      const StreamScope scope(gather);
      work = all_gather(world, part, whole);
    }
    work.wait();
    // Later work on the compute stream reads the result and may overwrite the source.
    copy(later.block(), whole.block());
    copy(part.block(), over.block());
    EXPECT_EQ(later.values(), (std::vector<float>{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2}));
  });
}

TEST_F(DeviceNccl, CountsWhatTheOtherTransportsCount) {
  run_without_peers(3, [](Communicator world) {
    reductions(world, cpu, bf16);
    const CommunicatorTraffic host = world.traffic();
    reductions(world, gpu, bf16);
    EXPECT_EQ(world.traffic().bytes, 2 * host.bytes);
    EXPECT_EQ(world.traffic().collectives, 2 * host.collectives);
  });
}

TEST_F(DeviceNccl, MessagesOfPairs) {
  run_without_peers(3, [](Communicator world) {
    const int rank = world.rank();
    if (rank == 1) return;  // a rank that is neither sender nor receiver need not call
    const Vector numbers(f32, rank == 0 ? std::vector<float>{1, 2, 3} : std::vector<float>(3));
    const int64_t count = 3;
    const Piece piece{
        .send = numbers.data(), .recv = numbers.data(), .counts = {&count, 1}, .device = gpu};
    for (int time = 0; time < 2; ++time) {
      const bool sends = (rank == 0) == (time == 0);
      const CollectiveKind kind = sends ? CollectiveKind::send : CollectiveKind::recv;
      world.transport()->run({.kind = kind, .root = 2 - rank, .pieces = {&piece, 1}});
    }
    EXPECT_EQ(numbers.values(), (std::vector<float>{1, 2, 3}));
    EXPECT_EQ(world.traffic().bytes, 12);
  });
}

static std::vector<float> values_of(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.numel()));
  copy(dense_block(values.data(), f32, tensor.shape()), tensor.block());
  return values;
}

TEST_F(DeviceNccl, TensorsAreRedistributedByCollectives) {
  run_without_peers(4, [](Communicator world) {
    const DeviceMesh mesh(world, {{"a", 2}, {"b", 2}});
    const Tensor whole = arange(5 * 7, {.dtype = f32}).reshape({5, 7});
    const std::vector<Placements> all{{Shard{0}, Replicate()},
                                      {Shard{1}, Shard{0}},
                                      {Replicate(), Shard{1}},
                                      {Replicate(), Replicate()}};
    for (const Placements& from : all) {
      for (const Placements& to : all) {
        const Tensor host = distribute(whole, mesh, from);
        const Tensor there = host.to(gpu);
        // The host's plan for these layouts is used first; the device needs a different one.
        EXPECT_EQ(values_of(host.redistribute(to).full_tensor()), values_of(whole));
        EXPECT_EQ(values_of(there.redistribute(to).full_tensor()), values_of(whole));
        EXPECT_EQ(explain(there, to).find("exchange"), std::string::npos);
      }
    }
  });
}

/// The errors that three ranks saw, and the one that the run threw.
struct Outcome {
  std::string thrown;
  std::string seen[3];
};

static Outcome outcome_of(const std::function<void(Communicator)>& body, int deadline_ms) {
  Outcome outcome;
  try {
    run_without_peers(3,
                      [&](Communicator world) {
                        try {
                          body(world);
                        } catch (const std::exception& error) {
                          outcome.seen[world.rank()] = error.what();
                          throw;
                        }
                      },
                      {.deadline = std::chrono::milliseconds(deadline_ms), .threads_per_rank = 1});
  } catch (const std::exception& error) {
    outcome.thrown = error.what();
  }
  return outcome;
}

static void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST_F(DeviceNccl, NamesARankThatNeverComes) {
  const Outcome outcome = outcome_of(
      [](Communicator world) {
        if (world.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(900));
        const Vector part(f32, 4), whole(f32, 12);
        all_gather(world, part, whole).wait();
      },
      300);
  expect_contains(outcome.thrown, "rank 2");
  expect_contains(outcome.thrown, "within 300 ms");
}

TEST_F(DeviceNccl, NamesACallThatOneRankDoesNotMake) {
  const Outcome outcome = outcome_of(
      [](Communicator world) {
        const Vector part(f32, 4), whole(f32, 12);
        all_gather(world, part, whole).wait();
        if (world.rank() != 2) all_gather(world, part, whole).wait();
      },
      300);
  expect_contains(outcome.thrown,
                  "world: nccl all_gather(f32, [4, 4, 4]) on cuda number 2: not done");
  expect_contains(outcome.thrown, "within 300 ms; rank 2 ended");
}

TEST_F(DeviceNccl, TheWatchdogEndsACallThatHangs) {
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = outcome_of(
      [](Communicator world) {
        const Vector part(f32, {1, 2, 3, 4}), whole(f32, 12);
        all_gather(world, part, whole).wait();
        whole.values();
        world.barrier();
        if (world.rank() == 0) nccl::emulated::hang_next();
        world.barrier();
        all_gather(world, part, whole).wait();
        whole.values();  // waits for the stream
        all_gather(world, part, whole).wait();
        ADD_FAILURE() << "the call after a hang went well";
      },
      300);
  expect_contains(
      outcome.thrown,
      "world: nccl all_gather(f32, [4, 4, 4]) on cuda number 2: not done within 300 ms");
  for (const std::string& seen : outcome.seen) expect_contains(seen, "number 2: not done within");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
}

/// A host's transport whose ranks on GPUs are in another world, which says that a rank has died.
class InWorld final : public Transport {
 public:
  InWorld(std::shared_ptr<Transport> host, std::shared_ptr<World> world)
      : Transport(host->rank(), in(std::move(world), *host->members())), host_(std::move(host)) {}
  bool in_memory(DeviceKind kind) const override { return host_->in_memory(kind); }
  Work start(const Collective& call) override { return host_->start(call); }
  std::shared_ptr<Transport> subgroup(std::span<const int> ranks, std::string name) override {
    return host_->subgroup(ranks, std::move(name));
  }

 private:
  static std::shared_ptr<const Members> in(std::shared_ptr<World> world, Members members) {
    members.world = std::move(world);
    return std::make_shared<Members>(std::move(members));
  }

  const std::shared_ptr<Transport> host_;
};

TEST_F(DeviceNccl, NamesARankThatHasDiedLongBeforeTheDeadline) {
  const auto lanes = std::make_shared<LoneWorld>(3, std::chrono::seconds(60));
  const auto begin = std::chrono::steady_clock::now();
  run_ranks(
      3,
      [&](Communicator host) {
        const Communicator world(with_nccl(std::make_shared<InWorld>(host.transport(), lanes)));
        const Vector part(f32, 4), whole(f32, 12);
        all_gather(world, part, whole).wait();
        whole.values();
        host.barrier();
        if (host.rank() == 2) {
          lanes->gone = 2;
        } else {
          const std::string error = error_of<CommError>([&] {
            all_gather(world, part, whole).wait();
            whole.values();
          });
          expect_contains(error, "on cuda number 2: rank 2 is gone and did not finish it");
        }
        host.barrier();
      },
      {.deadline = std::chrono::seconds(30), .threads_per_rank = 1});
  EXPECT_EQ(lanes->failure().rank, 2);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST_F(DeviceNccl, AllToAllsAreComparedBeforeTheirCounts) {
  const Outcome outcome = outcome_of(
      [](Communicator world) {
        const Vector part(f32, 12), whole(f32, 12);
        for (int call = 1; call <= 3; ++call) {
          const Piece piece{.send = part.data(),
                            .recv = whole.data(),
                            .dtype = call == 2 && world.rank() == 1 ? i32 : f32,
                            .counts = kFourEach,
                            .device = gpu};
          world.all_to_all(piece, kFourEach).wait();
        }
      },
      2000);
  EXPECT_EQ(outcome.thrown,
            "world: nccl call number 2: rank 0 called all_to_all(f32) on cuda but rank 1 called "
            "all_to_all(i32) on cuda");
}

TEST_F(DeviceNccl, NamesABrokenLink) {
  const Outcome outcome = outcome_of(
      [](Communicator world) {
        const Vector part(f32, 4), whole(f32, 12);
        if (world.rank() == 1) nccl::emulated::fail_next();
        all_gather(world, part, whole).wait();
      },
      2000);
  expect_contains(outcome.thrown,
                  "world: nccl all_gather(f32, [4, 4, 4]) on cuda number 1: unhandled");
}

static void all_reduce(const Communicator& world, int64_t count) {
  const Vector numbers(f32, count);
  const Piece piece{
      .send = numbers.data(), .recv = numbers.data(), .counts = {&count, 1}, .device = gpu};
  world.all_reduce({&piece, 1}, ReduceOp::sum).wait();
}

TEST_F(DeviceNccl, NamesTheFirstCallThatDiffers) {
  const Outcome outcome =
      outcome_of([](Communicator world) { all_reduce(world, world.rank() == 1 ? 8 : 7); }, 5000);
  EXPECT_EQ(outcome.thrown,
            "world: nccl call number 1: rank 0 called all_reduce(sum, f32, [7]) on cuda but rank 1 "
            "called "
            "all_reduce(sum, f32, [8]) on cuda");
}

TEST_F(DeviceNccl, NamesALaterCallThatDiffers) {
  const Outcome outcome = outcome_of(
      [](Communicator world) {
        for (int call = 1; call <= 70; ++call) {
          all_reduce(world, call == 5 && world.rank() == 2 ? 8 : 7);
        }
      },
      2000);
  expect_contains(outcome.thrown, "number 5: ");
  // Streams that run at random may hang before the ranks compare their calls.
  if (std::getenv("WEFT_EMULATED_SEED")) return;
  EXPECT_EQ(outcome.thrown,
            "world: nccl call number 5: rank 0 called all_reduce(sum, f32, [7]) on cuda but rank 2 "
            "called all_reduce(sum, f32, [8]) on cuda");
}

/// Sends `count` numbers from rank 1 to rank 2 of a group.
static void send_numbers(const Communicator& group, int64_t count) {
  const Vector numbers(f32, count);
  const Piece piece{
      .send = numbers.data(), .recv = numbers.data(), .counts = {&count, 1}, .device = gpu};
  const bool sends = group.rank() == 1;
  group.transport()->run({.kind = sends ? CollectiveKind::send : CollectiveKind::recv,
                          .root = sends ? 2 : 1,
                          .pieces = {&piece, 1}});
}

TEST_F(DeviceNccl, NamesTheRanksOfAMessageAsItsCallersDo) {
  const Outcome outcome = outcome_of(
      [](Communicator world) {
        if (world.rank() > 0) send_numbers(world, world.rank() == 1 ? 3 : 4);
      },
      5000);
  EXPECT_EQ(outcome.thrown,
            "world/1-2: nccl call number 1: rank 1 called send(f32, [3], to rank 2, tag 0) on cuda "
            "but rank 2 called recv(f32, [4], from rank 1, tag 0) on cuda");
}

TEST_F(DeviceNccl, NamesAReceiverThatEndsAsItsSenderDoes) {
  const Outcome outcome = outcome_of(
      [](Communicator world) {
        if (world.rank() > 0) send_numbers(world, 3);
        if (world.rank() == 1) send_numbers(world, 3);
      },
      300);
  expect_contains(outcome.thrown,
                  "world/1-2: nccl send(f32, [3], to rank 2, tag 0) on cuda number 2: not done "
                  "within 300 ms");
  expect_contains(outcome.thrown, "; rank 2 ended");
}

TEST_F(DeviceNccl, RefusesPiecesOnTwoDevices) {
  EXPECT_THROW(run_without_peers(2,
                                 [](Communicator world) {
                                   const int64_t one = 1;
                                   const Vector number(f32, 1);
                                   Piece first{.send = number.data(),
                                               .recv = number.data(),
                                               .counts = {&one, 1},
                                               .device = gpu};
                                   Piece second = first;
                                   second.device.index = 1;
                                   const Piece both[] = {first, second};
                                   world.all_reduce(both, ReduceOp::sum).wait();
                                 }),
               std::invalid_argument);
}

/// The recipe with ranks that cannot access each other's devices.
static Recipe without_peers(Recipe recipe) {
  recipe.run = [](int ranks, const std::function<void(Communicator)>& body) {
    run_without_peers(ranks, body);
  };
  return recipe;
}

/// Compares losses there with those on the host.
static void expect_equal_losses(const Recipe& recipe) {
  expect_equal(losses_of(without_peers(recipe), gpu), losses_of(recipe, cpu));
}

TEST_F(DeviceNccl, TrainsFullySharded) { expect_equal_losses({.axes = {{"dp", 3}}}); }
TEST_F(DeviceNccl, TrainsFullyShardedOverTensorParallel) {
  expect_equal_losses({.axes = {{"dp", 2}, {"tp", 2}}, .tensor_parallel = true});
  expect_equal_losses({.axes = {{"dp", 2}, {"tp", 2}}, .tensor_parallel = true, .parts = 3});
}
TEST_F(DeviceNccl, TrainsHybrid) {
  FullyShardOptions options;
  options.strategy = Strategy::named("hsdp");
  expect_equal_losses({.axes = {{"replicate", 2}, {"shard", 2}}, .options = options});
}

/// Compares steps there with a graph and without.
static void expect_equal_steps(const Recipe& recipe) {
  const Recipe there = without_peers(recipe);
  EXPECT_EQ(numbers_of_steps(true, there), numbers_of_steps(false, there));
}

TEST_F(DeviceNccl, PlaysStepsFullySharded) { expect_equal_steps({.axes = {{"dp", 3}}}); }
TEST_F(DeviceNccl, PlaysStepsFullyShardedOverTensorParallel) {
  expect_equal_steps({.axes = {{"dp", 2}, {"tp", 2}}, .tensor_parallel = true});
}
TEST_F(DeviceNccl, PlaysStepsOfHybrid) {
  FullyShardOptions options;
  options.strategy = Strategy::named("hsdp");
  options.precision = {.compute = bf16, .gather = bf16, .reduce = f32};
  expect_equal_steps({.axes = {{"replicate", 2}, {"shard", 2}}, .options = options});
}

TEST_F(DeviceNccl, NamesACallOfAGraphThatOneRankDoesNotPlay) {
  const Outcome outcome = outcome_of(
      [](Communicator world) {
        const Vector part(f32, {1, 2, 3, 4}), whole(f32, 12);
        Graph graph(gpu);
        for (int i = 0; i < (world.rank() == 2 ? 4 : 5); ++i) {
          graph.run([&] {
            all_gather(world, part, whole).wait();
            all_gather(world, part, whole).wait();
          });
          EXPECT_EQ(whole.values()[11], 4);
        }
      },
      300);
  expect_contains(outcome.thrown,
                  "world: nccl all_gather(f32, [4, 4, 4]) on cuda number 9, or one up to number 10 "
                  "of the same graph: not done");
}

TEST_F(DeviceNccl, APlayThatIsRefusedBeginsNothing) {
  const Outcome outcome = outcome_of(
      [](Communicator world) {
        const Vector part(f32, {1, 2, 3, 4}), whole(f32, 12);
        bool refuses = false;
        Graph graph(gpu);
        const auto work = [&] {
          all_gather(world, part, whole).wait();
          if (Graph* recording = Graph::recording()) {
            recording->before_each_play([&] {
              if (refuses) throw std::invalid_argument("not now");
            });
          }
        };
        for (int i = 0; i < 3; ++i) graph.run(work);
        const int64_t calls = world.traffic().collectives;
        refuses = true;
        EXPECT_THROW(graph.run(work), std::invalid_argument);
        EXPECT_EQ(world.traffic().collectives, calls);
        refuses = false;
        std::this_thread::sleep_for(std::chrono::milliseconds(900));
        graph.run(work);
        EXPECT_EQ(whole.values()[11], 4);
      },
      300);
  EXPECT_EQ(outcome.thrown, "");
}

TEST_F(DeviceNccl, ALaneThatDidNotStartIsNotRecorded) {
  std::atomic<int> gathered = 0;
  const Outcome outcome = outcome_of(
      [&](Communicator world) {
        const Vector part(f32, 4), whole(f32, 12);
        all_gather(world, part, whole).wait();
        whole.values();
        ++gathered;
        if (world.rank() == 2) {
          while (gathered < 3) std::this_thread::yield();
          throw std::runtime_error("boom");
        }
        const auto gather = [&] {
          const StreamScope scope(stream_for(gpu, StreamRole::gather));
          all_gather(world, part, whole).wait();
        };
        EXPECT_THROW(gather(), CommError);
        int runs = 0;
        Graph graph(gpu);
        const auto work = [&] {
          if (++runs == 3) gather();
        };
        for (int i = 0; i < 2; ++i) graph.run(work);
        EXPECT_THROW(graph.run(work), std::invalid_argument);
      },
      20000);
  EXPECT_EQ(outcome.seen[0], "");
  EXPECT_EQ(outcome.thrown, "boom");
}

TEST_F(DeviceNccl, RecordsOnlyWaysThatItKnows) {
  const Outcome outcome = outcome_of(
      [](Communicator world) {
        const Vector part(f32, 4), whole(f32, 12);
        int runs = 0;
        Graph graph(gpu);
        const auto work = [&] {
          if (++runs == 3) all_gather(world, part, whole).wait();
        };
        for (int i = 0; i < 2; ++i) graph.run(work);
        EXPECT_THROW(graph.run(work), std::invalid_argument);
        // The failed recording leaves no trace.
        all_gather(world, part, whole).wait();
      },
      2000);
  EXPECT_EQ(outcome.thrown, "");
}

}  // namespace weft
