// SPDX-License-Identifier: Apache-2.0

// One rank of a job of processes, each with a GPU or all sharing one: compares collectives over
// NCCL with those of host memory. Started by `weft run`.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/device/cuda/runtime.h"
#include "tests/comm/backends.h"
#include "tests/comm/nccl_backend.h"
#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/mesh.h"
#include "weft/ops.h"
#include "weft/ranks.h"

namespace weft {

/// ctest's exit code for a skipped test.
static constexpr int kSkipped = 77;

/// NCCL accepts two ranks on one GPU only when it believes that they are on different hosts.
static void let_ranks_share_a_gpu(int rank) {
  setenv("NCCL_HOSTID", ("weft-" + std::to_string(rank)).c_str(), 0);
  setenv("NCCL_NET", "Socket", 0);
  setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  setenv("NCCL_P2P_DISABLE", "1", 0);
  setenv("NCCL_SHM_DISABLE", "1", 0);
  setenv("NCCL_MAX_CTAS", "1", 0);
}

/// One collective: reads the sent numbers of a rank and writes the received ones.
using Call = std::function<void(const Communicator&, Numbers& sent, Numbers& got)>;

static void expect_alike(const Communicator& world, const char* what, const Call& call, DType dtype,
                         DType into, int64_t sent, int64_t got) {
  const Communicator there = by_way_of_gpus(world);
  Numbers source = numbers_of(dtype, world.rank(), sent);
  Numbers here(into, got, 3), by_gpus(into, got, 3);
  call(world, source, here);
  call(there, source, by_gpus);
  if (here == by_gpus) return;
  std::ostringstream text;
  text << what << " of " << sent << " elements of " << dtype << " on rank " << world.rank()
       << " gives over NCCL " << by_gpus << ", expected " << here;
  throw std::runtime_error(text.str());
}

static void compare_reductions(const Communicator& world, DType dtype) {
  const int n = world.size();
  for (const auto& counts : count_patterns(n)) {
    const int64_t total = total_of(counts), own = count_of(counts, world.rank());
    expect_alike(
        world, "reduce_scatter",
        [&](const Communicator& group, Numbers& sent, Numbers& got) {
          const Piece piece{.send = sent.data(),
                            .recv = got.data(),
                            .dtype = dtype,
                            .counts = counts,
                            .recv_dtype = got.dtype(),
                            .accumulate = true};
          group.reduce_scatter({&piece, 1}, ReduceOp::sum).wait();
        },
        dtype, is_floating(dtype) ? f32 : dtype, total, own);
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
      expect_alike(
          world, "all_reduce",
          [&](const Communicator& group, Numbers& sent, Numbers& got) {
            const Piece piece{
                .send = sent.data(), .recv = got.data(), .dtype = dtype, .counts = {&total, 1}};
            group.all_reduce({&piece, 1}, op).wait();
          },
          dtype, dtype, total, total);
    }
  }
}

static void compare_copies(const Communicator& world, DType dtype) {
  const int n = world.size(), last = n - 1;
  for (const auto& counts : count_patterns(n)) {
    const int64_t total = total_of(counts), own = count_of(counts, world.rank());
    const auto copies = [&](const char* name, int64_t sends, int64_t gets, const auto& call) {
      expect_alike(
          world, name,
          [&](const Communicator& group, Numbers& sent, Numbers& got) {
            Piece piece{.send = sent.data(), .recv = got.data(), .dtype = dtype, .counts = counts};
            call(group, piece).wait();
          },
          dtype, dtype, sends, gets);
    };
    copies("all_gather", own, total, [](const auto& group, Piece& piece) {
      return group.all_gather({&piece, 1});
    });
    copies("gather", own, total, [&](const auto& group, Piece& piece) {
      return group.gather({&piece, 1}, last);
    });
    copies("scatter", total, own, [&](const auto& group, Piece& piece) {
      return group.scatter({&piece, 1}, last);
    });
    // Each rank sends every other rank as many elements as it has itself.
    const std::vector<int64_t> mine(static_cast<size_t>(n), own);
    copies("all_to_all", own * n, total, [&](const auto& group, Piece& piece) {
      piece.counts = mine;
      return group.all_to_all(piece, counts);
    });
    copies("broadcast", total, total, [&](const auto& group, Piece& piece) {
      piece.counts = {&total, 1};
      return group.broadcast({&piece, 1}, last);
    });
  }
}

static void compare_redistributions(const Communicator& world) {
  const DeviceMesh mesh(world, {{"a", world.size()}});
  const int index = launched_local_rank().rank % cuda::device_count();
  const Device gpu{DeviceKind::cuda, static_cast<int8_t>(index)};
  const Tensor whole = arange(7 * 5, {.dtype = f32}).reshape({7, 5});
  const std::vector<Placements> all{{Shard{0}}, {Shard{1}}, {Replicate()}};
  for (const Placements& from : all) {
    for (const Placements& to : all) {
      const Tensor moved = distribute(whole, mesh, from).to(gpu).redistribute(to);
      const double wrong = sum(abs(moved.full_tensor().to(cpu) - whole)).item();
      if (wrong != 0) throw std::runtime_error("a redistribution gives other numbers over NCCL");
    }
  }
}

static void run_rank(const Communicator& world) {
  if (cuda::device_count() < world.size()) let_ranks_share_a_gpu(world.rank());
  for (const bool in_rank_order : {false, true}) {
    use_deterministic_algorithms(in_rank_order);
    for (const DType dtype : kAllDTypes) {
      const bool has_16_bits = dtype == DType::i16 || dtype == DType::u16;
      if (!has_16_bits) compare_reductions(world, dtype);  // NCCL has none of these
    }
  }
  for (const DType dtype : kAllDTypes) compare_copies(world, dtype);
  compare_redistributions(world);
  world.barrier();
}

}  // namespace weft

/// Processes cannot share the emulated device.
#ifdef WEFT_CUDA_EMULATED
static constexpr bool kIsReal = false;
#else
static constexpr bool kIsReal = true;
#endif

int main() {
  if (!kIsReal || weft::cuda::device_count() == 0) {
    std::printf("skipped: %s\n", kIsReal ? weft::cuda::why_no_device().c_str()
                                         : "processes do not share the emulated device");
    return weft::kSkipped;
  }
  weft::run_world(0, weft::run_rank, {.deadline = std::chrono::seconds(60)});
  std::printf("collectives over NCCL give the numbers of those over the host\n");
  return 0;
}
