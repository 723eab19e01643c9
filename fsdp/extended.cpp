// SPDX-License-Identifier: Apache-2.0
#include "fsdp/extended.h"

#include <range/v3/numeric/accumulate.hpp>
#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/take.hpp>

#include "weft/context.h"
#include "weft/error.h"
#include "weft/ops/factories.h"
#include "weft/ops/shapes.h"

namespace weft::fsdp {

namespace views = ranges::views;

int64_t Extended::Wire::elements_before(int rank) const {
  return ranges::accumulate(counts | views::take(rank), int64_t{0});
}

static Shape shape_of_part(const Region& region, size_t rank) {
  Shape shape = region.shape;
  if (shape.ndim() > 0) shape[region.dim] = region.lengths[rank];
  return shape;
}

Extended extended_of(const Region& region, DType slice,
                     std::shared_ptr<AllGatherExtension> extension, size_t& end) {
  const NoGrad no_grad;
  Extended extended;
  extended.extension = std::move(extension);
  const size_t ranks = region.counts.size();
  for (size_t rank = 0; rank < ranks; ++rank) {
    if (region.counts[rank] == 0) continue;
    const Tensors sent = extended.extension->fsdp_pre_all_gather(
        zeros(shape_of_part(region, rank), {.dtype = slice}));
    if (extended.wires.empty()) extended.wires.resize(sent.size());
    if (sent.size() != extended.wires.size()) {
      fail("fsdp_pre_all_gather: number of tensors is ", sent.size(), " for rank ", rank,
           ", expected ", extended.wires.size(), " as for other ranks");
    }
    for (const auto& [i, tensor] : views::enumerate(sent)) {
      Extended::Wire& wire = extended.wires[i];
      wire.shapes.resize(ranks);
      wire.counts.resize(ranks);
      wire.dtype = tensor.dtype();
      wire.shapes[rank] = tensor.shape();
      wire.counts[rank] = tensor.shape().product();
    }
  }
  for (Extended::Wire& wire : extended.wires) {
    wire.offset = end;
    end += padded(static_cast<size_t>(wire.elements()) * size_of(wire.dtype));
  }
  return extended;
}

Tensors sent_of(const Extended& extended, const Tensor& part, int rank) {
  Tensors sent = extended.extension->fsdp_pre_all_gather(part);
  if (sent.size() != extended.wires.size()) {
    fail("fsdp_pre_all_gather: number of tensors is ", sent.size(), ", expected ",
         extended.wires.size(), " as for zeros");
  }
  for (size_t i = 0; i < sent.size(); ++i) {
    const Extended::Wire& wire = extended.wires[i];
    const Shape& shape = wire.shapes[static_cast<size_t>(rank)];
    if (!(sent[i].shape() == shape) || sent[i].dtype() != wire.dtype) {
      fail("fsdp_pre_all_gather: tensor ", i, " is ", sent[i].shape(), " of ", sent[i].dtype(),
           ", expected ", shape, " of ", wire.dtype, " as for zeros");
    }
    if (sent[i].block().is_dense()) continue;
    const Tensor dense = empty(shape, {.dtype = wire.dtype, .device = sent[i].device()});
    copy_(dense, sent[i]);
    sent[i] = dense;
  }
  return sent;
}

Tensor part_of(const Region& region, const Tensor& whole, int rank) {
  if (region.lengths.size() == 1) return whole;
  const auto lengths = region.lengths | views::take(rank);
  const int64_t from = ranges::accumulate(lengths, int64_t{0});
  return slice(whole, region.dim, from, from + region.lengths[static_cast<size_t>(rank)]);
}

}  // namespace weft::fsdp
