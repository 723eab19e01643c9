// SPDX-License-Identifier: Apache-2.0
#include <range/v3/view/zip.hpp>

#include "mesh/program.h"
#include "mesh/row_ranks.h"
#include "src/kernels/copy/copy.h"
#include "weft/error.h"
#include "weft/extend/hash.h"

namespace weft {

static uint64_t content_of(const Layout& from, std::span<const Box> wishes) {
  uint64_t content = from.hash;
  for (const Box& wish : wishes) {
    for (int64_t offset : wish.offset) content = mixed(content, static_cast<uint64_t>(offset));
    for (int64_t size : wish.shape) content = mixed(content, static_cast<uint64_t>(size));
  }
  return content;
}

/// Fetches by all_to_all, for ranks that cannot read each other's memory.
static void fetch_by_sending(const Communicator& group, const std::vector<int>& members,
                             const Layout& from, const MemoryBlock& in, std::span<const Box> wishes,
                             const Box& wanted, const MemoryBlock& out) {
  PackedBoxes send, recv;
  for (const auto& [member, wish] : ranges::views::zip(members, wishes)) {
    send.add(relative(overlap(from.box, wish), from.box));
    recv.add(relative(overlap(from.box_of(member), wanted), wanted));
  }
  const DenseMemory sent({send.total}, from.dtype, in.device);
  const DenseMemory received({recv.total}, from.dtype, in.device);
  pack(in, send, sent.block.data);
  send_all(group, sent.block.data, send.counts, received.block.data, recv.counts, from.dtype,
           in.device);
  unpack(received.block.data, recv, out);
}

static void fetch_here(const Layout& from, const MemoryBlock& in, const Box& wanted,
                       const MemoryBlock& out) {
  Box both = overlap(from.box, wanted);
  if (both.shape.product() == 0) return;
  copy(out.part(relative(both, wanted)), in.part(relative(both, from.box)));
}

void fetch(const Ref<Layout>& from, const MemoryBlock& in,
           const std::function<Box(int rank)>& wanted_of, const MemoryBlock& out) {
  if (out.device.kind == DeviceKind::meta) return;
  if (!from->grid) return fetch_here(*from, in, wanted_of(0), out);
  MeshGrid& grid = *from->grid;
  Axes axes = axes_cutting(*from);
  Box wanted = wanted_of(grid.rank());
  if (out.shape != wanted.shape || in.shape != from->box.shape) {
    fail("fetch: block and result are ", in.shape, " of ", *from, " and ", out.shape, ", expected ",
         from->box.shape, " and ", wanted.shape);
  }
  if (axes.empty()) return fetch_here(*from, in, wanted, out);
  std::vector<int> members = grid.members(axes, grid.coordinates());
  std::vector<Box> wishes;
  for (int rank : members) wishes.push_back(wanted_of(rank));
  Communicator group = grid.group(axes);
  if (!grid.in_memory(in.device.kind)) {
    return fetch_by_sending(group, members, *from, in, wishes, wanted, out);
  }
  ReadProgram program = reads_of(grid, *from, axes, wanted);
  const PhaseReader::Phase phase{program, ReduceOp::sum, out};
  PhaseReader reader({&phase, 1});
  Exchange call{.blocks = {&in, 1}, .content = content_of(*from, wishes), .words = "fetch"};
  group.transport()->exchange(call, reader);
}

}  // namespace weft
