// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/choose.h"

#include "mesh/grid.h"
#include "mesh/plan.h"
#include "mesh/rows.h"
#include "ops/engine/engine.h"
#include "src/device/cuda/runtime.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/take/take.h"
#include "weft/error.h"
#include "weft/extend/pattern.h"

namespace weft {

/// The axes over which the rows of a call are read, or sent: not those that leave addends.
static Axes axes_over(const ByIndex& given, int dim, const Layout& used, const Layout& result) {
  Axes axes;
  for (const int axis : axes_cutting(used, dim)) {
    if (given.into < 0 || !result.sharding[axis].is_partial()) axes.push_back(axis);
  }
  return axes;
}

/// The share of a dim that a rank with that box has not.
static double share_elsewhere(const Layout& layout, const Box& box, int dim) {
  const auto size = static_cast<double>(std::max<int64_t>(1, layout.shape[dim]));
  return 1 - static_cast<double>(box.shape[dim]) / size;
}

/// Bytes that a rank receives if indices name all rows alike.
static double expected_bytes(const ByIndex& given, int dim, const Layout& used,
                             const Layout& result, int rank) {
  if (axes_over(given, dim, used, result).empty()) return 0;
  const Box from = used.box_of(rank);
  Box made = result.box_of(rank);
  // Each named row moves once.
  if (given.into < 0 && !given.elements)
    made.shape[dim] = std::min(made.shape[dim], used.shape[dim]);
  const double bytes = share_elsewhere(used, from, dim) * static_cast<double>(size_of(used.dtype));
  if (given.into < 0) return bytes * static_cast<double>(made.shape.product());
  Shape sent = from.shape;
  sent[dim] = used.shape[dim];
  return bytes * static_cast<double>(sent.product()) * (1 - share_elsewhere(result, made, dim));
}

double predicted_rows_seconds(const ByIndex& given, int dim, const Layout& used,
                              const Layout& result) {
  double most = 0;
  const DeviceMesh mesh = used.sharding.mesh();
  for (int rank = 0; rank < mesh.size(); ++rank) {
    most = std::max(most, expected_bytes(given, dim, used, result, rank));
  }
  return most == 0 ? 0 : predicted_exchange_seconds(mesh, static_cast<int64_t>(most));
}

std::unique_ptr<const IndexRoute> index_route(const ByIndex& given, const Binding& binding,
                                              const Route& route) {
  const auto rows = static_cast<size_t>(given.rows);
  const Layout &used = *route.operands[rows].used, &result = *route.results[0];
  if (!used.grid) return {};
  auto made = std::make_unique<IndexRoute>();
  made->given = given;
  made->dim = fetched_dim(binding, rows);
  made->over = axes_over(given, made->dim, used, result);
  const bool keeps_part = given.into >= 0 && !axes_cutting(result, made->dim).empty();
  if (made->over.empty() && !keeps_part) return {};
  made->expected_bytes = static_cast<int64_t>(
      expected_bytes(given, made->dim, used, result, used.sharding.mesh().rank()));
  return made;
}

static_assert(static_cast<int>(WriteMode::min) == static_cast<int>(ByIndex::Written::min));

namespace {

/// One move of rows for a call.
class RowsMove {
 public:
  RowsMove(const OpBody& op, const Route& route, CallBody& call)
      : op_(op), how_(*route.by_index), route_(route), call_(call) {}

  MovedRows move() {
    how_.given.into < 0 ? read() : write();
    return std::move(moved_);
  }

 private:
  const Ref<Layout>& used() const { return route_.operand(how_.given.rows).used; }
  MemoryBlock& rows() { return call_.ins[how_.given.rows]; }
  MemoryBlock& indices() { return call_.ins[how_.given.indices]; }

  std::vector<int64_t> keys(const RowDim& dim, std::string& mistake) {
    std::vector<int64_t> keys = keys_of(dim, indices(), mistake, how_.given.from_end);
    if (!mistake.empty()) mistake = op_.spec.name + ": " + mistake;
    return keys;
  }

  MemoryBlock new_block(const Shape& shape, DType dtype) {
    const DenseMemory made(shape, dtype, rows().device);
    moved_.memory.push_back(made.memory);
    return made.block;
  }

  void give_indices(std::vector<int64_t> places, const Shape& shape) {
    const MemoryBlock block = new_block(shape, DType::i64);
    if (!places.empty()) copy(block, dense_block(places.data(), DType::i64, shape));
    indices() = block;
  }

  void read() {
    const RowDim dim{used(), how_.dim, how_.given.elements};
    std::string mistake;
    DistinctKeys named = distinct(keys(dim, mistake));
    const MemoryBlock fetched =
        new_block(dim.shape_of(static_cast<int64_t>(named.keys.size())), rows().dtype);
    fetch_distinct_rows(dim, rows(), named.keys, fetched, mistake);
    rows() = fetched;
    const Shape flat = {indices().numel()};
    give_indices(std::move(named.places), how_.given.elements ? flat : indices().shape);
  }

  void write() {
    const RowDim to{route_.results[0], how_.dim, how_.given.elements};
    const auto mode = static_cast<WriteMode>(how_.given.written);
    std::string mistake;
    const std::vector<int64_t> named = keys(to, mistake);
    KeyedRows own;
    if (mistake.empty()) {
      own = combined_rows(to, named, rows(), mode);
    } else {
      own.rows = new_block(to.shape_of(0), rows().dtype);
    }
    KeyedRows received = send_distinct_rows(to, *used(), how_.over, own.keys, own.rows, mistake);
    rows() = received.rows;
    moved_.memory.push_back(std::move(received.memory));
    give_indices(received.places_in(to), {static_cast<int64_t>(received.keys.size())});
  }

  const OpBody& op_;
  const IndexRoute& how_;
  const Route& route_;
  CallBody& call_;
  MovedRows moved_;
};

}  // namespace

/// Says which index of this rank's part is outside the dim; "" for none.
static std::string mistake_in(const OpBody& op, const Route& route, const Tensor& indices,
                              int dim) {
  if (indices.device().kind == DeviceKind::meta) return "";
  if (cuda::kWithCuda && cuda::is_capturing()) return "";
  const ByIndex& given = *op.spec.by_index;
  const Layout& rows = given.into < 0 ? *route.operand(given.rows).used : *route.results[0];
  const int64_t size = rows.shape[dim];
  const auto outside = find_index_outside(DenseBlock::of(indices.block()), size);
  if (!outside) return "";
  return concat(op.spec.name, ": index is ", *outside, ", expected one of the ", size,
                " elements of dim ", dim);
}

void check_sliced_indices(const OpBody& op, const Route& route, const Tensor& indices) {
  const std::string mistake = mistake_in(op, route, indices, route.sliced_dim);
  if (!mistake.empty()) fail(mistake);
}

void check_cut_indices(const OpBody& op, const Route& route, std::span<const Tensor> operands) {
  const Tensor& indices = operands[static_cast<size_t>(op.spec.by_index->indices)];
  if (indices.device().kind == DeviceKind::meta) return;
  if (cuda::kWithCuda && cuda::is_capturing()) return;
  fail_together(layout_of(indices)->grid->group(route.cut_indices),
                mistake_in(op, route, indices, route.indexed_dim));
}

MovedRows move_rows(const OpBody& op, const Route& route, CallBody& call) {
  const IndexRoute& how = *route.by_index;
  const Layout& used = *route.operand(how.given.rows).used;
  MovedRows moved;
  if (call.ins[how.given.rows].device.kind == DeviceKind::meta) {
    moved.bytes = how.expected_bytes;
  } else {
    if (cuda::kWithCuda && cuda::is_capturing()) {
      fail(op.spec.name, ": rows move between ranks by index in a recorded graph, expected a call ",
           "outside of it: the host reads the indices");
    }
    const int64_t before = used.grid->traffic().bytes;
    moved = RowsMove(op, route, call).move();
    moved.bytes = used.grid->traffic().bytes - before;
  }
  if (!how.over.empty()) Engine::current().exchanged(op.spec.name, used, moved.bytes);
  return moved;
}

std::vector<Box> needed_boxes(const Layout& operand, const Layout& result, const Needs& needs) {
  Box whole{Dims::filled(operand.shape.ndim(), 0), operand.shape};
  std::vector<Box> boxes;
  const int ranks = operand.grid ? operand.grid->ranks().size() : 1;
  for (int rank = 0; rank < ranks; ++rank) {
    Box box = needs(result.box_of(rank));
    const Box own = operand.box_of(rank);
    for (int d = 0; d < box.shape.ndim(); ++d) {
      if (box.shape[d] != kOwnPart) continue;
      box.offset[d] = own.offset[d];
      box.shape[d] = own.shape[d];
    }
    boxes.push_back(overlap(whole, box));
  }
  return boxes;
}

int64_t most_missing(const Layout& operand, const std::vector<Box>& needed) {
  int64_t most = 0;
  for (size_t rank = 0; rank < needed.size(); ++rank) {
    const Box own = overlap(needed[rank], operand.box_of(static_cast<int>(rank)));
    most = std::max(most, needed[rank].shape.product() - own.shape.product());
  }
  return most;
}

}  // namespace weft
