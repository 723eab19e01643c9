// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <numeric>

#include "mesh/mesh_move.h"
#include "mesh/steps.h"
#include "src/base/parallel.h"
#include "src/comm/transport.h"
#include "src/kernels/copy/copy.h"
#include "weft/error.h"
#include "weft/extend/hash.h"

namespace weft {

/// The same as `copy` where dtypes are equal, but large parts whose rows are long bypass the
/// caches: the rank that receives them does not read them now.
static void copy_part(const MemoryBlock& out, const MemoryBlock& in) {
  constexpr size_t kLeastRow = 1024, kChunk = size_t{1} << 20;
  const size_t element = size_of(out.dtype);
  const auto all = static_cast<size_t>(out.shape.product()) * element;
  int dim = out.shape.ndim();
  int64_t length = 1;
  // The inner dims that both hold without gaps.
  while (dim > 0 && (out.shape[dim - 1] == 1 ||
                     (out.strides[dim - 1] == length && in.strides[dim - 1] == length))) {
    length *= out.shape[--dim];
  }
  const size_t row = static_cast<size_t>(length) * element;
  const bool is_bulk = out.device.kind == DeviceKind::cpu && in.device.kind == DeviceKind::cpu &&
                       all >= kBulkBytes && row >= kLeastRow && dim <= 1;
  if (!is_bulk) return copy(out, in);
  const auto step = [&](const MemoryBlock& block) {
    return dim == 0 ? 0 : block.strides[0] * static_cast<int64_t>(element);
  };
  const int64_t out_step = step(out), in_step = step(in);
  const auto chunks = static_cast<int64_t>((row + kChunk - 1) / kChunk);
  parallel_for(static_cast<int64_t>(all / row) * chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t line = i / chunks;
      const size_t at = static_cast<size_t>(i % chunks) * kChunk;
      copy_around_caches(out.as<std::byte>() + line * out_step + at,
                         in.as<std::byte>() + line * in_step + at, std::min(kChunk, row - at));
    }
    finish_bulk_writes();
  });
}

namespace {

/// One run of a plan on one rank.
class MeshMoveRun {
 public:
  MeshMoveRun(const MeshMovePlan& plan, const Communicator& ranks, const MovedBlocks& blocks)
      : plan_(plan), ranks_(ranks), blocks_(blocks), rank_(ranks.rank()) {}

  /// Copies the elements that this rank holds itself.
  void keep() const {
    for (size_t i = 0; i < plan_.tensors().size(); ++i) {
      const Box held = plan_.held(i, rank_), wanted = plan_.wanted(i, rank_),
                both = overlap(held, wanted);
      if (both.shape.product() == 0) continue;
      copy_part(blocks_.out[i].part(relative(both, wanted)),
                blocks_.in[i].part(relative(both, held)));
    }
  }

  /// Each rank reads its parts in the senders' memory: one exchange for a few tensors.
  void read() const {
    std::vector<size_t> crossing;
    for (size_t i = 0; i < plan_.tensors().size(); ++i) {
      if (plan_.crosses(i)) crossing.push_back(i);
    }
    constexpr size_t kMost = kMaxPhases;
    for (size_t first = 0; first < crossing.size(); first += kMost) {
      read(std::span(crossing).subspan(first, std::min(kMost, crossing.size() - first)));
    }
  }

  /// Packs the parts of a round, sends them, and unpacks what has come.
  void send() const {
    for (auto begin = plan_.parts().begin(); begin != plan_.parts().end();) {
      const auto end = std::find_if(begin, plan_.parts().end(), [&](const MovedPart& part) {
        return part.round != begin->round;
      });
      send({begin, end});
      begin = end;
    }
  }

 private:
  void read(std::span<const size_t> tensors) const {
    std::vector<MemoryBlock> shown;
    for (const size_t i : tensors) {
      shown.push_back(blocks_.in.empty()
                          ? dense_block(nullptr, plan_.tensors()[i].dtype, {0}, blocks_.device)
                          : blocks_.in[i]);
    }
    exchange(ranks_,
             {.blocks = shown, .content = mixed(plan_.hash(), tensors[0]), .words = "to_mesh"},
             [&](int phase, std::span<const void* const> blocks) {
               return read_parts(tensors[static_cast<size_t>(phase)], phase, blocks);
             });
  }

  int64_t read_parts(size_t tensor, int phase, std::span<const void* const> shown) const {
    int64_t bytes = 0;
    for (const MovedPart& part : plan_.parts()) {
      if (part.tensor != tensor || part.to != rank_) continue;
      bytes += plan_.bytes_of(part);
      const void* blocks = shown[static_cast<size_t>(part.from)];
      if (!blocks) continue;
      copy_part(place_of(part), static_cast<const MemoryBlock*>(blocks)[phase].part(
                                    relative(part.box, plan_.held(tensor, part.from))));
    }
    return bytes;
  }

  /// Returns the place of a part that this rank receives.
  MemoryBlock place_of(const MovedPart& part) const {
    const Box wanted = plan_.wanted(part.tensor, rank_);
    return blocks_.out[part.tensor].part(relative(part.box, wanted));
  }

  void send(std::span<const MovedPart> parts) const {
    std::vector<int64_t> sent(static_cast<size_t>(ranks_.size())), received(sent.size());
    for (const MovedPart& part : parts) {
      const int64_t elements = part.box.shape.product();
      if (part.from == rank_) sent[static_cast<size_t>(part.to)] += elements;
      if (part.to == rank_) received[static_cast<size_t>(part.from)] += elements;
    }
    const DType dtype = plan_.tensors()[parts[0].tensor].dtype;
    const Device device = blocks_.device;
    const DenseMemory from({std::reduce(sent.begin(), sent.end())}, dtype, device),
        to({std::reduce(received.begin(), received.end())}, dtype, device);
    pack(parts, from.block, sent, true);
    const Piece piece{.send = from.block.data,
                      .recv = to.block.data,
                      .dtype = dtype,
                      .counts = sent,
                      .device = device};
    ranks_.all_to_all(piece, received).wait();
    pack(parts, to.block, received, false);
  }

  /// Copies the parts that this rank sends into `packed`, in the order of their receivers, or the
  /// parts that it receives out of it.
  void pack(std::span<const MovedPart> parts, const MemoryBlock& packed,
            const std::vector<int64_t>& counts, bool sends) const {
    std::vector<int64_t> next(counts.size());
    std::exclusive_scan(counts.begin(), counts.end(), next.begin(), int64_t{0});
    for (const MovedPart& part : parts) {
      if ((sends ? part.from : part.to) != rank_) continue;
      int64_t& at = next[static_cast<size_t>(sends ? part.to : part.from)];
      char* data = packed.as<char>() + at * static_cast<int64_t>(size_of(packed.dtype));
      at += part.box.shape.product();
      const MemoryBlock dense = dense_block(data, packed.dtype, part.box.shape, packed.device);
      if (sends) {
        const Box held = plan_.held(part.tensor, rank_);
        copy(dense, blocks_.in[part.tensor].part(relative(part.box, held)));
      } else {
        copy(place_of(part), dense);
      }
    }
  }

  const MeshMovePlan& plan_;
  const Communicator& ranks_;
  const MovedBlocks& blocks_;
  const int rank_;
};

}  // namespace

void run(const MeshMovePlan& plan, const Communicator& ranks, const MovedBlocks& blocks) {
  const MeshMoveRun move(plan, ranks, blocks);
  if (blocks.device.kind == DeviceKind::meta) return;
  move.keep();
  if (plan.parts().empty()) return;
  ranks.transport()->in_memory(blocks.device.kind) ? move.read() : move.send();
}

}  // namespace weft
