// SPDX-License-Identifier: Apache-2.0
#include "pipeline/messages.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "weft/context.h"
#include "weft/error.h"
#include "weft/messages.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"

namespace weft {

/// Numbers of a header: the number of tensors, then for each its dtype, dims, shape and placements.
static constexpr size_t kHeader = 96;
static constexpr int64_t kEmpty = -1;

/// The tensor with chunks of equal size, or whole, along each axis: what a header can state.
static Tensor plain(const Tensor& tensor) {
  if (!tensor.is_sharded()) return tensor;
  const Sharding from = tensor.sharding();
  std::vector<Placement> placements(from.placements().begin(), from.placements().end());
  for (Placement& placement : placements) {
    const bool is_plain = !placement.has_sizes() && placement.outer() == 1;
    if (placement.is_partial() || !is_plain) placement = Replicate();
  }
  Sharding in_order(from.mesh(), Placements(std::span<const Placement>(placements)));
  return in_order == from ? tensor : redistributed(tensor, in_order);
}

static void add(std::vector<int64_t>& header, const Tensor& tensor, int axes) {
  if (!tensor) return header.push_back(kEmpty);
  header.push_back(static_cast<int64_t>(tensor.dtype()));
  header.push_back(tensor.ndim());
  for (const int64_t size : tensor.shape()) header.push_back(size);
  header.push_back(tensor.is_sharded() ? axes : 0);
  if (!tensor.is_sharded()) return;
  for (const Placement& placement : tensor.sharding().placements()) {
    header.push_back(placement.dim());
  }
}

/// Checks that a header can state the layout: it does so over the mesh of the stages.
static void check_mesh(const Tensor& tensor, const DeviceMesh& mesh) {
  if (!tensor || !tensor.is_sharded() || tensor.sharding().mesh() == mesh) return;
  fail("pipeline: mesh of a tensor between stages is ", tensor.sharding().mesh(), ", expected ",
       mesh, ", that of the stages");
}

static Piece piece_of(const Tensor& local, const int64_t& count) {
  void* data = local.block().data;
  return {.send = data,
          .recv = data,
          .dtype = local.dtype(),
          .counts = {&count, 1},
          .device = local.device()};
}

void StageMessages::send(const Tensors& tensors, int to, int number) {
  const NoGrad no_grad;
  for (const Tensor& tensor : tensors) check_mesh(tensor, mesh_);
  Sent& sent = sent_.emplace_back();
  sent.header.push_back(static_cast<int64_t>(tensors.size()));
  for (const Tensor& tensor : tensors) {
    const Tensor moved = tensor ? plain(tensor.detach()) : tensor;
    add(sent.header, moved, mesh_.ndim());
    if (!moved) continue;
    const Tensor local = moved.local();
    sent.locals.push_back(local.block().is_dense() ? local : clone(local));
  }
  if (sent.header.size() > kHeader) {
    fail("pipeline: number of tensors between stages is ", tensors.size(),
         ", expected fewer, with fewer dims; they do not fit the header of a message");
  }
  sent.header.resize(kHeader, 0);
  sent.works.push_back(line_.send(sent.header.data(), kHeader, DType::i64, to, 2 * number));
  for (const Tensor& local : sent.locals) {
    const int64_t count = local.numel();
    if (count == 0) continue;
    sent.works.push_back(weft::send(line_, piece_of(local, count), to, 2 * number + 1));
  }
}

void StageMessages::expect(int from, int number) {
  Expected& expected = expected_.emplace_back(from, number, Header(kHeader), Work());
  expected.header_work = line_.recv(expected.header.data(), kHeader, DType::i64, from, 2 * number);
  // A GPU's sends and receives between two ranks run in the order in which they are queued: the
  // checked one of the program, not that in which headers come.
  if (device_.kind == DeviceKind::cuda) begin(expected);
}

/// The header has come: makes the tensors, and begins to receive their elements.
void StageMessages::begin(Expected& expected) {
  const NoGrad no_grad;
  expected.header_work.wait();
  expected.is_begun = true;
  auto next = expected.header.begin();
  for (int64_t left = *next++; left > 0; --left) {
    Tensor& tensor = expected.tensors.emplace_back();
    if (*next == kEmpty) {
      ++next;
      continue;
    }
    const auto dtype = static_cast<DType>(*next++);
    Shape shape;
    for (int64_t dims = *next++; dims > 0; --dims) shape.push_back(*next++);
    std::vector<Placement> placements;
    const bool is_sharded = *next > 0;
    for (int64_t axes = *next++; axes > 0; --axes) {
      const auto dim = static_cast<int>(*next++);
      placements.push_back(dim < 0 ? Placement(Replicate()) : Placement(Shard(dim)));
    }
    Sharding sharding;
    if (is_sharded) sharding = Sharding(mesh_, Placements(std::span<const Placement>(placements)));
    tensor = empty(shape, {.dtype = dtype, .device = device_, .sharding = sharding});
    const Tensor local = tensor.local();
    const int64_t count = local.numel();
    if (count == 0) continue;
    expected.works.push_back(
        receive(line_, piece_of(local, count), expected.from, 2 * expected.number + 1));
  }
}

Tensors StageMessages::take(int from, int number) {
  const auto found = std::ranges::find_if(expected_, [&](const Expected& expected) {
    return expected.from == from && expected.number == number;
  });
  // Elements arrive in the order in which they are sent.
  for (auto earlier = expected_.begin(); earlier != found; ++earlier) {
    if (earlier->from == from && !earlier->is_begun) begin(*earlier);
  }
  if (!found->is_begun) begin(*found);
  for (Work& work : found->works) work.wait();
  Tensors tensors = std::move(found->tensors);
  expected_.erase(found);
  return tensors;
}

void StageMessages::progress() {
  std::vector<int> held_up;
  for (Expected& expected : expected_) {
    if (expected.is_begun || std::ranges::find(held_up, expected.from) != held_up.end()) continue;
    expected.header_work.test() ? begin(expected) : held_up.push_back(expected.from);
  }
  std::erase_if(sent_, [](Sent& sent) {
    return std::ranges::all_of(sent.works, [](Work& work) { return work.test(); });
  });
}

void StageMessages::finish() {
  for (Sent& sent : sent_) {
    for (Work& work : sent.works) work.wait();
  }
  sent_.clear();
}

}  // namespace weft
