// SPDX-License-Identifier: Apache-2.0
#include "ops/ring.h"

#include <algorithm>
#include <utility>

#include "mesh/grid.h"
#include "mesh/mesh_body.h"
#include "ops/dims.h"
#include "ops/engine/engine.h"
#include "weft/ops.h"

namespace weft {

Ring::Ring(Ref<Layout> kv, int axis, const HostOrder& order, std::vector<RowRuns> queries,
           const PairOptions& options)
    : kv_(std::move(kv)),
      communicator_(kv_->grid->group(Axes{axis})),
      rank_(communicator_.rank()),
      ranks_(communicator_.size()),
      order_(order),
      queries_(std::move(queries)),
      options_(options) {
  const MeshGrid& grid = *kv_->grid;
  for (const int member : grid.members(Axes{axis}, grid.coordinates())) {
    const Box box = kv_->box_of(member);
    boxes_.push_back({box.offset[1], box.offset[1] + box.shape[1]});
  }
}

Ring::Range Ring::part(int rank, int64_t index) const {
  const auto [begin, end] = boxes_[static_cast<size_t>(rank)];
  const int64_t count = end - begin;
  return {begin + count * index / kRingParts, begin + count * (index + 1) / kRingParts};
}

Tensor Ring::packed(const Tensor& k, const Tensor& v, const Range& range) const {
  PurposeScope purpose(Purpose::gathered);
  const int64_t begin = range.begin - boxes_[static_cast<size_t>(rank_)].begin;
  const auto here = [&](const Tensor& x) {
    return unsqueeze(slice(x, 1, begin, begin + range.count()), 0);
  };
  return cat({here(k), here(v)}, 0);
}

Tensor Ring::exchanged(const Tensor& x, int to, int from, const Shape& shape) const {
  PurposeScope purpose(Purpose::gathered);
  Tensor received = empty(shape, {.dtype = x.dtype(), .device = x.device()});
  std::vector<int64_t> sent(static_cast<size_t>(ranks_)), expected(sent.size());
  sent[static_cast<size_t>(to)] = x.numel();
  expected[static_cast<size_t>(from)] = received.numel();
  const Piece piece{.send = x.block().data,
                    .recv = received.block().data,
                    .dtype = x.dtype(),
                    .counts = sent,
                    .recv_dtype = x.dtype(),
                    .device = x.device()};
  communicator_.all_to_all(piece, expected).wait();
  return received;
}

/// Counts what this rank receives: the keys and values of all others and, in backward, what they
/// add to the gradients of its keys and values.
void Ring::log(bool backward, DType sums) const {
  const int64_t own = kv_->box.shape.product();
  const int64_t token = own / std::max<int64_t>(1, kv_->box.shape[1]);
  int64_t bytes = 2 * (kv_->shape[1] * token - own) * static_cast<int64_t>(size_of(kv_->dtype));
  if (backward) bytes += 2 * (ranks_ - 1) * own * static_cast<int64_t>(size_of(sums));
  Engine::current().exchanged("ordered_attention, ring", *kv_, bytes);
}

void Ring::forward(const Tensor& q, const Tensor& k, const Tensor& v, PairResults& results) const {
  check_policy("ordered_attention", true, true);
  log(false, f32);
  results.add(q, k, v, pairs(boxes_[static_cast<size_t>(rank_)]), options_);
  for (int step = 1; step < ranks_; ++step) {
    for (int64_t i = 0; i < kRingParts; ++i) {
      const Range own = part(rank_, i), other = part(from(step), i);
      Shape shape = k.shape();
      shape[1] = other.count();
      shape.insert(0, 2);
      const Tensor both = exchanged(packed(k, v, own), to(step), from(step), shape);
      if (other.count() == 0) continue;
      results.add(q, both[0], both[1], pairs(other), options_);
    }
  }
}

void Ring::backward(const PairGradients& gradients, const Tensor& k, const Tensor& v,
                    const Tensor& dq, const Tensor& dk, const Tensor& dv) const {
  check_policy("ordered_attention", true, true);
  log(true, dk.dtype());
  gradients.add(k, v, pairs(boxes_[static_cast<size_t>(rank_)]), dq, dk, dv);
  const int64_t begin = boxes_[static_cast<size_t>(rank_)].begin;
  for (int step = 1; step < ranks_; ++step) {
    for (int64_t i = 0; i < kRingParts; ++i) {
      const Range own = part(rank_, i), other = part(from(step), i);
      Shape shape = k.shape();
      shape[1] = other.count();
      shape.insert(0, 2);
      Tensor both = exchanged(packed(k, v, own), to(step), from(step), shape);
      const Tensor sums = zeros(shape, {.dtype = dk.dtype(), .device = k.device()});
      if (other.count() > 0) gradients.add(both[0], both[1], pairs(other), dq, sums[0], sums[1]);
      both = {};
      shape[2] = own.count();
      const Tensor returned = exchanged(sums, from(step), to(step), shape);
      if (own.count() == 0) continue;
      const auto here = [&](const Tensor& x) {
        return slice(x, 1, own.begin - begin, own.end - begin);
      };
      add_(here(dk), returned[0]);
      add_(here(dv), returned[1]);
    }
  }
}

void Ring::count(const Tensor& q, const Tensor& k, bool backward) const {
  log(backward, q.dtype() == f64 ? f64 : f32);
  for (int step = 0; step < ranks_; ++step) count_pairs(q, k, options_, backward);
}

}  // namespace weft
