// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "src/comm/collective_parts.h"
#include "src/comm/memory/memory_transport.h"
#include "src/device/shared_memory.h"
#include "src/kernels/copy/copy.h"

namespace weft {

/// The bytes that data of that size occupies in a buffer: whole cache lines.
static constexpr size_t padded(size_t bytes) { return (bytes + 63) / 64 * 64; }

static size_t bytes_of_elements(int64_t elements, DType dtype) {
  return static_cast<size_t>(elements) * size_of(dtype);
}

/// The shared memory into which one rank copies what it sends in a collective of several rounds:
/// two halves, which the rounds use alternately, and the elements that it reduces in a round of an
/// all_reduce.
class StagingBuffer {
 public:
  /// `call` lives as long as this.
  StagingBuffer(const Collective& call, int ranks, int rank)
      : call_(call), ranks_(ranks), rank_(rank), rounds_(rounds_of(call, ranks)) {
    for (const Piece& piece : call.pieces) {
      half_bytes_ += half_of(piece);
      reduced_bytes_ += reduced_of(piece);
    }
  }

  /// The bytes that it needs, to be passed to `put_at` first.
  size_t bytes() const { return 2 * half_bytes_ + reduced_bytes_; }
  void put_at(void* memory) { memory_ = static_cast<std::byte*>(memory); }

  /// Makes the published copy of a call point here.
  void lead_here(Collective& shown, Piece* pieces) const {
    shown.rounds = rounds_;
    shown.half_bytes = half_bytes_;
    size_t sent = 0, reduced = 2 * half_bytes_;
    for (size_t i = 0; i < call_.pieces.size(); ++i) {
      pieces[i].send = memory_ + sent;
      pieces[i].recv = memory_ + reduced;
      sent += half_of(call_.pieces[i]);
      reduced += reduced_of(call_.pieces[i]);
    }
  }

  /// Copies what this rank sends in a round. All ranks have read the round before the previous one.
  void fill(int round) const {
    std::byte* to = memory_ + static_cast<size_t>(round % 2) * half_bytes_;
    for (const Piece& piece : call_.pieces) {
      const size_t bytes = half_of(piece);
      if (bytes > 0) fill_piece(piece, {round, rounds_}, to);
      to += bytes;
    }
  }

  /// Copies what this rank has reduced in a round.
  void fill_reduced(int round) const {
    std::byte* to = memory_ + 2 * half_bytes_;
    for (const Piece& piece : call_.pieces) {
      const ElementRange share = share_of(piece.counts[0], ranks_, rank_);
      const ElementRange range = range_of(share.count, {round, rounds_});
      copy_bytes(to, element_at(piece.recv, share.begin + range.begin, piece.recv_dtype),
                 bytes_of_elements(range.count, piece.recv_dtype));
      to += reduced_of(piece);
    }
  }

 private:
  /// The parts of a piece that this rank sends: of all ranks, or only its own.
  int first_part() const { return sends_all_parts(call_.kind) ? 0 : rank_; }
  int parts_end() const { return sends_all_parts(call_.kind) ? ranks_ : rank_ + 1; }
  /// The most elements of that part in any round.
  int64_t most(const Piece& piece, int part) const {
    return most_of(part_of(call_, piece, ranks_, part), rounds_);
  }
  /// Bytes of a piece in one half, and of its reduced elements.
  size_t half_of(const Piece& piece) const {
    if (sizes_of(call_, piece, rank_).send == 0) return 0;
    int64_t elements = 0;
    for (int r = first_part(); r < parts_end(); ++r) elements += most(piece, r);
    return padded(bytes_of_elements(elements, piece.dtype));
  }
  size_t reduced_of(const Piece& piece) const {
    if (call_.kind != CollectiveKind::all_reduce) return 0;
    return padded(bytes_of_elements(most(piece, rank_), piece.recv_dtype));
  }

  void fill_piece(const Piece& piece, const Round& round, std::byte* to) const {
    int64_t before = 0;
    for (int r = first_part(); r < parts_end(); ++r) {
      const int64_t part = part_of(call_, piece, ranks_, r);
      const ElementRange range = range_of(part, round);
      copy_bytes(to, element_at(piece.send, before + range.begin, piece.dtype),
                 bytes_of_elements(range.count, piece.dtype));
      to += bytes_of_elements(most(piece, r), piece.dtype);
      before += part;
    }
  }

  const Collective& call_;
  const int ranks_;
  const int rank_;
  const int rounds_;
  size_t half_bytes_ = 0;
  size_t reduced_bytes_ = 0;
  std::byte* memory_ = nullptr;
};

void* Publication::hold(size_t bytes) {
  // The allocator keeps the memory for the next call; fresh pages cost more than the copy.
  Ref<Storage> memory = Storage::allocate(bytes);
  if (!group_.heap->contains(memory->data())) {
    SharedHeap* heap = group_.heap;
    void* data = heap->allocate(bytes);
    memory = Storage::wrap(data, bytes, cpu, [=] { heap->free(data, bytes); });
  }
  held_.push_back(std::move(memory));
  return held_.back()->data();
}

void* Publication::allocate(size_t bytes) {
  const size_t end = used_ + padded(bytes);
  if (end > MemoryGroup::kEagerBytes) return hold(bytes);
  void* memory = group_.eager_buffer(rank_, sequence_) + used_;
  used_ = end;
  return memory;
}

bool Publication::is_seen(const void* data) const {
  return !is_eager_ && group_.heap->contains(data);
}

const void* Publication::shared_bytes(const void* data, size_t bytes) {
  if (bytes == 0 || is_seen(data)) return data;
  void* copied = sequence_ > 0 ? allocate(bytes) : hold(bytes);
  std::memcpy(copied, data, bytes);
  return copied;
}

/// Copies an array to memory that the others see.
template <class T> static std::span<const T> stored(std::span<const T> values, void* memory) {
  std::uninitialized_copy(values.begin(), values.end(), static_cast<T*>(memory));
  return {static_cast<const T*>(memory), values.size()};
}

bool Publication::fits_eager_buffer(const Collective& call) const {
  // The readers compare counts: a rank that sent other counts than expected must learn of it in
  // this call.
  if (call.kind == CollectiveKind::all_to_all) return false;
  size_t bytes = padded(sizeof(Collective)) + padded(call.pieces.size_bytes());
  for (const Piece& piece : call.pieces) {
    if (piece.device != cpu || bytes > MemoryGroup::kEagerBytes) return false;
    const int64_t sent = sizes_of(call, piece, rank_).send;
    bytes += padded(bytes_of_elements(sent, piece.dtype)) + padded(piece.counts.size_bytes());
    if (call.kind == CollectiveKind::all_reduce) {
      bytes += padded(bytes_of_elements(sent, piece.recv_dtype));
    }
  }
  return bytes <= MemoryGroup::kEagerBytes;
}

bool Publication::fits_eager_buffer(const Exchange& call) const {
  size_t bytes = padded(call.blocks.size_bytes());
  for (const MemoryBlock& block : call.blocks) {
    if (block.device != cpu) return false;
    bytes += padded(bytes_of_elements(block.numel(), block.dtype));
  }
  return bytes <= MemoryGroup::kEagerBytes;
}

/// The rank's own share of an all_reduce, which is reduced in the first phase and read in the
/// second.
const void* Publication::late_part(const Piece& piece) {
  const ElementRange share = share_of(piece.counts[0], group_.size(), rank_);
  if (share.count == 0 || is_seen(piece.recv)) return piece.recv;
  const size_t before = bytes_of_elements(share.begin, piece.recv_dtype);
  void* made = static_cast<std::byte*>(piece.recv) + before;
  void* shown = allocate(bytes_of_elements(share.count, piece.recv_dtype));
  late_.push_back({1, dense_block(made, piece.recv_dtype, {share.count}),
                   dense_block(shown, piece.recv_dtype, {share.count})});
  // The other ranks address the share by its position in the whole.
  return reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(shown) - before);
}

Piece Publication::shared_piece(const Collective& call, const Piece& piece) {
  Piece shown = piece;
  const int64_t sent = sizes_of(call, piece, rank_).send;
  shown.send = shared_bytes(piece.send, bytes_of_elements(sent, piece.dtype));
  if (call.kind == CollectiveKind::all_reduce) shown.recv = const_cast<void*>(late_part(piece));
  return shown;
}

bool Publication::needs_rounds(const Collective& call) const {
  if (is_eager_ || rounds_of(call, group_.size()) == 1) return false;
  for (const Piece& piece : call.pieces) {
    if (sizes_of(call, piece, rank_).send > 0 && !is_seen(piece.send)) return true;
    if (call.kind == CollectiveKind::all_reduce && !is_seen(piece.recv)) return true;
  }
  return false;
}

const void* Publication::shared(const Collective& call) {
  auto* shown = new (allocate(sizeof(Collective))) Collective(call);
  auto* pieces = static_cast<Piece*>(allocate(call.pieces.size_bytes()));
  const bool in_rounds = needs_rounds(call);
  for (size_t i = 0; i < call.pieces.size(); ++i) {
    const Piece& piece = call.pieces[i];
    new (pieces + i) Piece(in_rounds ? piece : shared_piece(call, piece));
    pieces[i].counts = stored(piece.counts, allocate(piece.counts.size_bytes()));
  }
  if (in_rounds) {
    staging_ = std::make_shared<StagingBuffer>(call, group_.size(), rank_);
    staging_->put_at(hold(staging_->bytes()));
    staging_->fill(0);
    staging_->lead_here(*shown, pieces);
    phases_ = phases_of(call.kind);
  }
  shown->pieces = {pieces, call.pieces.size()};
  shown->recv_counts = {};
  return shown;
}

MemoryBlock Publication::shared_block(const MemoryBlock& block, int phase) {
  const int64_t elements = block.numel();
  if (elements == 0 || !block.data || is_seen(block.data)) return block;
  void* copied = allocate(bytes_of_elements(elements, block.dtype));
  MemoryBlock shown = dense_block(copied, block.dtype, block.shape, block.device);
  if (phase == 0) {
    copy(shown, block);
  } else {
    late_.push_back({phase, block, shown});
  }
  return shown;
}

const void* Publication::shared(const Exchange& call) {
  auto* blocks = static_cast<MemoryBlock*>(allocate(call.blocks.size_bytes()));
  for (size_t i = 0; i < call.blocks.size(); ++i) {
    new (blocks + i) MemoryBlock(shared_block(call.blocks[i], static_cast<int>(i)));
  }
  return blocks;
}

void Publication::update(int phase) {
  for (const Late& late : late_) {
    if (late.phase == phase) copy(late.to, late.from);
  }
  if (!staging_) return;
  if (phase % phases_ == 0) {
    staging_->fill(phase / phases_);
  } else {
    staging_->fill_reduced(phase / phases_);
  }
}

}  // namespace weft
