// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/snapshot.h"

#include "weft/error.h"
#include "weft/extend/disk_tensor.h"
#include "weft/ops/factories.h"

namespace weft {

Snapshot::Snapshot(const RankFiles& files, int rank, const StateDict& state) {
  for (const RankFiles::Entry& entry : files.entries(rank)) {
    if (entry.bytes == 0) continue;
    const std::string& name = files.manifest().tensors[entry.tensor].name;
    const Tensor local = state.tensors.at(name).local();
    if (!(local.shape() == entry.box->shape)) {
      fail("save: tensor ", in_quotes(name), " has a part ", local.shape(), ", expected ",
           entry.box->shape, ", that of its layout");
    }
    pieces_.push_back({local, entry.bytes, rests_on_disk(local)});
  }
}

int64_t Snapshot::end_on_disk() const {
  int64_t at = 0, end = 0;
  for (const Piece& piece : pieces_) {
    at += piece.bytes;
    if (piece.on_disk) end = at;
  }
  return end;
}

/// Reads blocks that hold bytes from `begin` on, at most up to `end`.
std::span<const std::byte> Snapshot::read_at(size_t index, int64_t begin, int64_t end) {
  constexpr int64_t kMost = 4 * DiskMemory::kBlock;
  const Piece& piece = pieces_[index];
  if (!read_.storage()) read_ = DiskBuffer(kMost);
  const int64_t from = begin / DiskMemory::kBlock * DiskMemory::kBlock;
  const int64_t size = std::min(kMost, piece.bytes - from);
  const DiskPlace place = disk_place(piece.local);
  place.memory->read(place.offset + from, size, read_.data(), true).wait();
  return std::span<const std::byte>(read_.data() + (begin - from),
                                    static_cast<size_t>(std::min(end, from + size) - begin));
}

const std::byte* Snapshot::data_of(size_t index) {
  const Tensor& local = pieces_[index].local;
  if (local.block().is_dense() && local.device().kind == DeviceKind::cpu) {
    return static_cast<const std::byte*>(local.block().data);
  }
  if (!copy_ || copied_ != index) {
    const NoGrad no_grad;
    copy_ = {};
    copy_ = empty(local.shape(), {.dtype = local.dtype()});
    weft::copy_(copy_, local);
    copied_ = index;
  }
  return static_cast<const std::byte*>(copy_.block().data);
}

}  // namespace weft
