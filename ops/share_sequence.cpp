// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "mesh/grid.h"
#include "ops/dims.h"
#include "ops/promotion.h"
#include "weft/ops.h"
#include "weft/ops/sequences.h"

namespace weft {

namespace {

/// Consecutive tokens of one document, and the number of keys that they see.
struct DocumentPiece {
  int64_t place, count, before;
  double cost() const {
    const auto n = static_cast<double>(count);
    return n * static_cast<double>(before) + n * (n + 1) / 2;
  }
};

/// The pieces of a row that one rank has so far.
struct Share {
  int64_t room;
  double cost = 0;
  std::vector<DocumentPiece> pieces = {};
};

}  // namespace

/// The most pieces of a document that is as long as the row, for each rank.
static constexpr int64_t kPiecesOfRank = 16;

/// Rank i has parts i and 2n - 1 - i of 2n.
static std::vector<int64_t> zigzag(std::span<const int64_t> sizes) {
  std::vector<int64_t> places;
  std::vector<int64_t> front_begin, back_begin(sizes.size());
  int64_t at = 0;
  for (const int64_t size : sizes) front_begin.push_back(std::exchange(at, at + (size + 1) / 2));
  for (size_t i = sizes.size(); i-- > 0;) back_begin[i] = std::exchange(at, at + sizes[i] / 2);
  for (size_t i = 0; i < sizes.size(); ++i) {
    for (int64_t j = 0; j < (sizes[i] + 1) / 2; ++j) places.push_back(front_begin[i] + j);
    for (int64_t j = 0; j < sizes[i] / 2; ++j) places.push_back(back_begin[i] + j);
  }
  return places;
}

static std::vector<DocumentPiece> pieces_of(std::span<const int64_t> segments, int64_t longest) {
  std::vector<DocumentPiece> pieces;
  const auto tokens = static_cast<int64_t>(segments.size());
  for (int64_t begin = 0, end = 0; begin < tokens; begin = end) {
    const auto same = [&](int64_t i) {
      return segments[static_cast<size_t>(i)] == segments[static_cast<size_t>(begin)];
    };
    while (end < tokens && same(end)) ++end;
    for (int64_t at = begin; at < end; at += longest) {
      pieces.push_back({at, std::min(longest, end - at), at - begin});
    }
  }
  std::ranges::stable_sort(pieces, std::greater(), &DocumentPiece::cost);
  return pieces;
}

/// Gives the pieces to ranks, the costliest first, each to the one that has room and the least
/// work.
static std::vector<int64_t> dealt_out(std::span<const int64_t> segments,
                                      std::span<const int64_t> sizes) {
  std::vector<Share> shares;
  for (const int64_t size : sizes) shares.push_back({size});
  const auto tokens = static_cast<int64_t>(segments.size());
  const int64_t most = kPiecesOfRank * static_cast<int64_t>(sizes.size());
  for (DocumentPiece piece :
       pieces_of(segments, std::max<int64_t>(1, (tokens + most - 1) / most))) {
    while (piece.count > 0) {
      Share* least = nullptr;
      for (Share& share : shares) {
        if (share.room > 0 && (!least || share.cost < least->cost)) least = &share;
      }
      const DocumentPiece taken{piece.place, std::min(piece.count, least->room), piece.before};
      least->pieces.push_back(taken);
      least->room -= taken.count, least->cost += taken.cost();
      piece = {piece.place + taken.count, piece.count - taken.count, piece.before + taken.count};
    }
  }
  std::vector<int64_t> places;
  for (Share& share : shares) {
    std::ranges::sort(share.pieces, {}, &DocumentPiece::place);
    for (const DocumentPiece& piece : share.pieces) {
      for (int64_t i = 0; i < piece.count; ++i) places.push_back(piece.place + i);
    }
  }
  return places;
}

static void check_rows(const char* name, const Tensor& x, const Tensor& ids, int axis) {
  if (!x) return;
  if (x.ndim() != 2 || !is_integer(x.dtype()) || !(x.shape() == ids.shape())) {
    fail("share_sequence: ", name, " are ", x.dtype(), " ", x.shape(), ", expected integers ",
         ids.ndim() == 2 ? concat(ids.shape()) : "[batch, sequence]");
  }
  if (x.is_sharded() != ids.is_sharded() || (x.is_sharded() && !(x.sharding() == ids.sharding()))) {
    fail("share_sequence: ", name, " are laid out otherwise than ids, expected both alike");
  }
  if (!x.is_sharded()) return;
  const Sharding sharding = x.sharding();
  if (sharding[axis].is_replicate() && !sharding.has_partial() &&
      sharding.axes_cutting(1).empty()) {
    return;
  }
  fail("share_sequence: ", name, " are laid out as ", sharding,
       ", expected rows that are whole along the axis");
}

namespace {

/// The order of this rank's rows, and the part of the sequence that it has.
struct LocalOrder {
  std::vector<int64_t> places;
  int64_t rows, tokens, begin, end;

  /// Values of whole rows in this order: of this part.
  std::vector<int64_t> ordered(std::span<const int64_t> whole, bool all) const {
    std::vector<int64_t> made;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = all ? 0 : begin; i < (all ? tokens : end); ++i) {
        const int64_t at = row * tokens + places[static_cast<size_t>(row * tokens + i)];
        made.push_back(whole[static_cast<size_t>(at)]);
      }
    }
    return made;
  }
};

}  // namespace

static Tensor tensor_of(const std::vector<int64_t>& values, const Ref<Layout>& layout,
                        Device device) {
  const Tensor local = from_values(values, layout->box.shape, {.dtype = i64});
  return relabeled(local.to(device), layout);
}

/// Positions of tokens in their documents.
static std::vector<int64_t> positions_of(std::span<const int64_t> segments, int64_t tokens) {
  std::vector<int64_t> positions(segments.size());
  for (size_t i = 1; i < segments.size(); ++i) {
    const bool goes_on = static_cast<int64_t>(i) % tokens != 0 && segments[i] == segments[i - 1];
    positions[i] = goes_on ? positions[i - 1] + 1 : 0;
  }
  return positions;
}

static LocalOrder local_order(const std::vector<int64_t>& segments, const Ref<Layout>& cut,
                              std::span<const int64_t> sizes, bool is_packed) {
  LocalOrder order{{},
                   cut->box.shape[0],
                   cut->shape[1],
                   cut->box.offset[1],
                   cut->box.offset[1] + cut->box.shape[1]};
  const std::vector<int64_t> same = is_packed ? std::vector<int64_t>() : zigzag(sizes);
  for (int64_t row = 0; row < order.rows; ++row) {
    const auto of_row = [&] {
      return std::span(segments).subspan(static_cast<size_t>(row * order.tokens),
                                         static_cast<size_t>(order.tokens));
    };
    const std::vector<int64_t> own = is_packed ? dealt_out(of_row(), sizes) : same;
    order.places.insert(order.places.end(), own.begin(), own.end());
  }
  return order;
}

SharedSequence share_sequence(const Tensor& ids, const Tensor& targets, const Tensor& segments,
                              const DeviceMesh& axis) {
  check_tensor("share_sequence", ids);
  if (!axis || axis.ndim() != 1) {
    fail("share_sequence: the mesh is not a view of one axis, expected one such as mesh[\"cp\"]");
  }
  const int number = axis.root_axis(0);
  check_rows("ids", ids, ids, number);
  check_rows("targets", targets, ids, number);
  check_rows("segments", segments, ids, number);
  const Tensor over = ids.is_sharded() ? ids : distribute(ids, axis.root(), {});
  Pattern pattern = over.sharding().pattern();
  const Ref<Layout> whole = layout_of(Sharding::of(axis.root(), pattern), ids.shape(), i64);
  pattern.set(number, Shard(1));
  const Ref<Layout> cut = layout_of(Sharding::of(axis.root(), pattern), ids.shape(), i64);
  const auto made = [&](const std::vector<int64_t>& values, const Ref<Layout>& layout) {
    return tensor_of(values, layout, ids.device());
  };
  if (ids.device().kind == DeviceKind::meta) {
    const Tensor part = new_tensor(cut, meta), all = new_tensor(whole, meta);
    return {part, targets ? part : Tensor(), part, {all, segments ? all : Tensor()}};
  }
  std::vector<int64_t> sizes;
  const MeshGrid& grid = *cut->grid;
  for (const int member : grid.members(Axes{number}, grid.coordinates())) {
    sizes.push_back(cut->box_of(member).shape[1]);
  }
  const auto numbers = [](const Tensor& x) { return x.local().to_vector<int64_t>(); };
  std::vector<int64_t> documents =
      segments ? numbers(segments)
               : std::vector<int64_t>(static_cast<size_t>(whole->box.shape.product()));
  const LocalOrder order = local_order(documents, cut, sizes, bool(segments));
  SharedSequence shared;
  shared.ids = made(order.ordered(numbers(ids), false), cut);
  if (targets) shared.targets = made(order.ordered(numbers(targets), false), cut);
  shared.positions = made(order.ordered(positions_of(documents, ids.size(1)), false), cut);
  shared.order.places = made(order.places, whole);
  if (segments) shared.order.segments = made(order.ordered(documents, true), whole);
  return shared;
}

}  // namespace weft
