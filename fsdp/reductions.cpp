// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "fsdp/gradients.h"
#include "weft/context.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"

namespace weft::fsdp {

/// A sum of all replicas counts on one of them.
bool Gradients::counts_here(const Part& part) const { return !part.reduced || replicas_.rank == 0; }

/// Where the final sums are made.
char* Gradients::sums() const {
  return on_host_ ? static_cast<char*>(buffer_->data()) + landing_
                  : static_cast<char*>(final_->data());
}

Tensor Gradients::sum_of(const Part& part) const {
  const int64_t elements = part.slot->slice_elements();
  const DType dtype = part.slot->types.accumulate;
  return on_host_ ? local_in(buffer_, landing_ + part.offset, {elements}, dtype)
                  : local_in(final_, part.offset, {elements}, dtype);
}

/// From the host, what is added to.
void Gradients::fetch_sums(int bucket) {
  if (!on_host_ || landed_[static_cast<size_t>(bucket)]) return;
  landed_[static_cast<size_t>(bucket)] = true;
  const NoGrad no_grad;
  for (const Part& part : parts_) {
    if (part.bucket != bucket || !part.final) continue;
    const int64_t elements = part.slot->slice_elements();
    transfer_(sum_of(part), local_in(final_, part.offset, {elements}, part.slot->types.accumulate));
  }
}

void Gradients::bring_home(int bucket) {
  if (!landed_[static_cast<size_t>(bucket)]) return;
  landed_[static_cast<size_t>(bucket)] = false;
  const NoGrad no_grad;
  for (const Part& part : parts_) {
    if (part.bucket != bucket) continue;
    const int64_t elements = part.slot->slice_elements();
    transfer_(local_in(final_, part.offset, {elements}, part.slot->types.accumulate), sum_of(part));
  }
}

/// A scatter's piece: from the buffer or the middle to the middle or the final memory.
Piece Gradients::scattered(Part& part, size_t step) {
  const Region& from = step == 0 ? part.whole : part.middle;
  const Ref<Storage>& memory = step == 0 ? buffer_ : middle_;
  if (from.packs) pack(from, memory);
  Piece piece;
  piece.device = device_;
  piece.send = static_cast<char*>(memory->data()) + from.start();
  piece.dtype = from.wire;
  piece.counts = from.counts;
  piece.recv_dtype = part.slot->types.accumulate;
  if (step == 0 && scatters_twice()) {
    piece.recv = static_cast<char*>(middle_->data()) + part.middle.offset;
    piece.accumulate = std::exchange(part.partial, true);
    return piece;
  }
  piece.recv = sums() + part.offset;
  piece.accumulate = part.final && counts_here(part);
  part.final = true;
  part.reduced = part.held = part.partial = false;
  return piece;
}

/// Whole gradients of another dtype than that in which they rest. A sum there is does not go over
/// the wire again, which would round it.
void Gradients::reduce_buffer(int bucket, std::vector<Piece>& pieces) {
  for (Part& part : parts_) {
    if (part.bucket != bucket) continue;
    const DType dtype = part.slot->types.accumulate;
    counts_.push_back(part.whole.elements());
    Piece piece;
    piece.device = device_;
    piece.send = static_cast<char*>(buffer_->data()) + part.whole.offset;
    piece.dtype = part.whole.dtype;
    piece.recv = sums() + part.offset;
    if (part.final) {
      PurposeScope purpose(Purpose::gradients);
      const auto bytes = static_cast<size_t>(part.whole.elements()) * size_of(dtype);
      auto& additions = additions_[static_cast<size_t>(bucket)];
      additions.push_back({&part, Storage::allocate(bytes, device_)});
      piece.recv = additions.back().sum->data();
    }
    piece.recv_dtype = dtype;
    piece.counts = {&counts_.back(), 1};
    pieces.push_back(piece);
    part.held = false;
    part.final = part.reduced = true;
  }
}

/// Final sums, adjacent ones together.
void Gradients::reduce_in_place(int bucket, std::vector<Piece>& pieces) {
  for (Part& part : parts_) {
    if (part.bucket != bucket) continue;
    part.reduced = true;
    const DType dtype = part.slot->types.accumulate;
    char* data = sums() + part.offset;
    const int64_t count = part.slot->slice_elements();
    const bool joins = !pieces.empty() && pieces.back().dtype == dtype &&
                       static_cast<char*>(pieces.back().recv) +
                               counts_.back() * static_cast<int64_t>(size_of(dtype)) ==
                           data;
    if (joins) {
      counts_.back() += count;
      continue;
    }
    counts_.push_back(count);
    Piece piece;
    piece.device = device_;
    piece.send = piece.recv = data;
    piece.dtype = piece.recv_dtype = dtype;
    piece.counts = {&counts_.back(), 1};
    pieces.push_back(piece);
  }
}

void Gradients::start(int bucket, size_t step) {
  if (device_.kind == DeviceKind::meta) return;
  const Reduction& reduction = reductions_[step];
  if (!(scatters_twice() && step == 0)) fetch_sums(bucket);
  std::vector<Piece> pieces;
  counts_.clear();
  counts_.reserve(parts_.size());
  Work& work = works_[static_cast<size_t>(bucket)];
  under_way_[static_cast<size_t>(bucket)] = true;
  if (reduction.scatters) {
    for (Part& part : parts_) pieces.push_back(scattered(part, step));
    work = reduction.group.ranks.reduce_scatter(pieces, ReduceOp::sum);
    return;
  }
  step == 0 && !direct_ ? reduce_buffer(bucket, pieces) : reduce_in_place(bucket, pieces);
  work = reduction.group.ranks.all_reduce(pieces, ReduceOp::sum);
}

void Gradients::wait(int bucket, bool last) {
  under_way_[static_cast<size_t>(bucket)] = false;
  works_[static_cast<size_t>(bucket)].wait();
  const NoGrad no_grad;
  for (const auto& [part, sum] : std::exchange(additions_[static_cast<size_t>(bucket)], {})) {
    const Tensor total = sum_of(*part);
    copy_(total, total + local_in(sum, 0, total.shape(), total.dtype()));
  }
  if (last) bring_home(bucket);
}

}  // namespace weft::fsdp
