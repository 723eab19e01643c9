// SPDX-License-Identifier: Apache-2.0
#include "src/comm/memory/staging_buffer.h"

#include "src/comm/check.h"
#include "src/kernels/copy/bulk_copy.h"

namespace weft {

static size_t whole_lines_of(int64_t elements, DType dtype) {
  return (static_cast<size_t>(elements) * size_of(dtype) + 63) / 64 * 64;
}

StagingBuffer::StagingBuffer(const Collective& call, int ranks, int rank)
    : call_(call), ranks_(ranks), rank_(rank), rounds_(rounds_of(call, ranks)) {
  for (const Piece& piece : call.pieces) {
    half_bytes_ += half_of(piece);
    reduced_bytes_ += reduced_of(piece);
  }
}

size_t StagingBuffer::half_of(const Piece& piece) const {
  if (sizes_of(call_, piece, rank_).send == 0) return 0;
  int64_t elements = 0;
  if (sends_all_parts(call_.kind)) {
    for (int r = 0; r < ranks_; ++r) elements += most_of(part_of(call_, piece, ranks_, r), rounds_);
  } else {
    elements = most_of(part_of(call_, piece, ranks_, rank_), rounds_);
  }
  return whole_lines_of(elements, piece.dtype);
}

size_t StagingBuffer::reduced_of(const Piece& piece) const {
  if (call_.kind != CollectiveKind::all_reduce) return 0;
  return whole_lines_of(most_of(part_of(call_, piece, ranks_, rank_), rounds_), piece.recv_dtype);
}

void StagingBuffer::lead_here(Collective& shown, Piece* pieces) const {
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

void StagingBuffer::fill_piece(const Piece& piece, const Round& round, std::byte* to) const {
  const size_t element = size_of(piece.dtype);
  const auto* from = static_cast<const std::byte*>(piece.send);
  const bool all_parts = sends_all_parts(call_.kind);
  for (int r = all_parts ? 0 : rank_; r < (all_parts ? ranks_ : rank_ + 1); ++r) {
    const int64_t part = part_of(call_, piece, ranks_, r);
    const ElementRange range = range_of(part, round);
    copy_bytes(to, from + static_cast<size_t>(range.begin) * element,
               static_cast<size_t>(range.count) * element);
    to += static_cast<size_t>(most_of(part, rounds_)) * element;
    from += static_cast<size_t>(part) * element;
  }
}

void StagingBuffer::fill(int round) const {
  std::byte* to = memory_ + static_cast<size_t>(round % 2) * half_bytes_;
  for (const Piece& piece : call_.pieces) {
    const size_t bytes = half_of(piece);
    if (bytes > 0) fill_piece(piece, {round, rounds_}, to);
    to += bytes;
  }
}

void StagingBuffer::fill_reduced(int round) const {
  std::byte* to = memory_ + 2 * half_bytes_;
  for (const Piece& piece : call_.pieces) {
    const size_t element = size_of(piece.recv_dtype);
    const ElementRange share = share_of(piece.counts[0], ranks_, rank_);
    const ElementRange range = range_of(share.count, {round, rounds_});
    const auto* from = static_cast<const std::byte*>(piece.recv);
    copy_bytes(to, from + static_cast<size_t>(share.begin + range.begin) * element,
               static_cast<size_t>(range.count) * element);
    to += reduced_of(piece);
  }
}

}  // namespace weft
