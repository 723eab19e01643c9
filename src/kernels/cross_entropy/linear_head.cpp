// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/cross_entropy/cross_entropy.h"

#include "src/kernels/copy/copy.h"
#include "src/kernels/matmul/gemm.h"
#include "src/kernels/reduce/reduce.h"
#include "src/kernels/rows/row_kernel.h"
#include "src/kernels/softmax/softmax_rows.h"

namespace weft {
namespace {

/// z of a product of x and weight, and dz / dproduct at z. Loops over classes are compiled for
/// heads with a softcap and for those without, because they would compute tanh for both.
template <class C, bool kIsCapped> struct HeadLogit {
  C multiplier, cap;

  explicit WEFT_FN HeadLogit(const HeadNumbers& numbers)
      : multiplier(static_cast<C>(numbers.multiplier)), cap(static_cast<C>(numbers.softcap)) {}
  WEFT_FN C operator()(C product, C bias) const {
    const C z = multiplier * product + bias;
    if constexpr (kIsCapped) return cap * tanh(z / cap);
    return z;
  }
  WEFT_FN C slope(C z) const {
    return kIsCapped ? multiplier * (1 - z / cap * (z / cap)) : multiplier;
  }
};

template <class C, class Logit> struct ExpOfLogit {
  Logit logit;
  C max;
  WEFT_FN C operator()(C product, C bias) const { return exp(logit(product, bias) - max); }
};

template <class C, class Logit> struct WeightedLogit {
  Logit logit;
  WEFT_FN C operator()(C product, C bias, C weight) const { return weight * logit(product, bias); }
};

/// Adds the classes of a tile to the rows' statistics; `first` is the tile's first class.
struct AddTile {
  Rows products, ids, bias, weights, lse, picked, weighted;
  HeadNumbers numbers;
  int64_t first;

  template <class Walk> WEFT_FN void operator()(const Walk& walk) const {
    using C = typename Walk::C;
    numbers.softcap > 0 ? add(walk, HeadLogit<C, true>(numbers))
                        : add(walk, HeadLogit<C, false>(numbers));
  }

  template <class Walk, class Logit> WEFT_FN void add(const Walk& walk, const Logit& logit) const {
    using C = typename Walk::C;
    auto read = walk.held_reader(products, 0);
    auto biases = walk.vector(bias, C(0));
    auto factors = walk.vector(weights, C(1));
    for (int64_t r = walk.begin(); r < walk.end(); r += walk.step()) {
      const C before = value_of<C>(lse, r);
      const C weighted_before = value_of<C>(weighted, r);
      const int64_t j = value_of<int64_t>(ids, r) - first;
      if (j >= 0 && j < products.size()) {
        const C product = value_of<C>(products, r, j);
        walk.set(picked, r, logit(product, bias.data() ? value_of<C>(bias, 0, j) : C(0)));
      }
      auto in = read(r);
      const C most = walk.template reduce<GreatestOf>(logit, in, biases);
      const C max = finite_or_zero(most > before ? most : before);
      const C sum = walk.template reduce<SumOf>(ExpOfLogit<C, Logit>{logit, max}, in, biases);
      walk.set(lse, r, max + log(sum + exp(before - max)));
      if (numbers.smoothing == 0) continue;
      const C all =
          walk.template reduce<SumOf>(WeightedLogit<C, Logit>{logit}, in, biases, factors);
      walk.set(weighted, r, weighted_before + all);
    }
  }
};

/// The weights of the rows' targets: w[t], and smoothing / C. `total` is the sum of w.
struct HeadTargets {
  Rows ids, weights, total;
  HeadNumbers numbers;
  int64_t classes;

  template <class C> WEFT_FN C weight(int64_t r) const {
    const int64_t id = value_of<int64_t>(ids, r);
    if (id == numbers.ignored) return C(0);
    const C kept = static_cast<C>(1 - numbers.smoothing);
    return weights.data() ? kept * value_of<C>(weights, 0, id) : kept;
  }
  template <class C> WEFT_FN C spread() const {
    return static_cast<C>(numbers.smoothing / static_cast<double>(classes));
  }
  template <class C> WEFT_FN C spread_total() const {
    return numbers.smoothing > 0 ? spread<C>() * value_of<C>(total, 0) : C(0);
  }
};

struct HeadLoss {
  Rows loss, lse, picked, weighted;
  HeadTargets targets;

  template <class Walk> WEFT_FN void operator()(const Walk& walk) const {
    using C = typename Walk::C;
    const C all = targets.template spread_total<C>(), spread = targets.template spread<C>();
    for (int64_t r = walk.begin(); r < walk.end(); r += walk.step()) {
      const C of_row = finite_or_nan(value_of<C>(lse, r));
      C value = targets.template weight<C>(r) * (of_row - value_of<C>(picked, r)) +
                static_cast<C>(targets.numbers.z_loss) * of_row * of_row;
      if (targets.numbers.smoothing > 0) {
        value += all * of_row - spread * value_of<C>(weighted, r);
      }
      const int64_t id = value_of<int64_t>(targets.ids, r);
      walk.set(loss, r, id == targets.numbers.ignored ? C(0) : value);
    }
  }
};

/// The gradient of a product, except the target's term.
template <class C, class Logit> struct ProductGradient {
  Logit logit;
  C lse, factor, spread;
  WEFT_FN C operator()(C product, C bias, C weight) const {
    const C z = logit(product, bias);
    return (factor * exp(z - lse) - spread * weight) * logit.slope(z);
  }
};

/// Replaces the products of a tile by their gradients.
struct TileGradient {
  Rows products, bias, weights, lse, dloss;
  HeadTargets targets;

  template <class Walk> WEFT_FN void operator()(const Walk& walk) const {
    using C = typename Walk::C;
    targets.numbers.softcap > 0 ? set(walk, HeadLogit<C, true>(targets.numbers))
                                : set(walk, HeadLogit<C, false>(targets.numbers));
  }

  template <class Walk, class Logit> WEFT_FN void set(const Walk& walk, const Logit& logit) const {
    using C = typename Walk::C;
    auto read = walk.reader(products);
    auto&& out = walk.writer(products);
    auto biases = walk.vector(bias, C(0));
    auto factors = walk.vector(weights, C(1));
    const C all = targets.template spread_total<C>();
    for (int64_t r = walk.begin(); r < walk.end(); r += walk.step()) {
      if (value_of<int64_t>(targets.ids, r) == targets.numbers.ignored) {
        walk.clear(out, r);
        continue;
      }
      auto in = read(r);
      const C of_row = finite_or_nan(value_of<C>(lse, r));
      const C dloss_of_row = value_of<C>(dloss, r);
      const C factor =
          targets.template weight<C>(r) + all + 2 * static_cast<C>(targets.numbers.z_loss) * of_row;
      walk.map(ProductGradient<C, Logit>{logit, of_row, dloss_of_row * factor,
                                         dloss_of_row * targets.template spread<C>()},
               out, r, in, biases, factors);
    }
  }
};

/// Adds the targets' terms to the gradients of a tile's products.
struct TargetGradient {
  Rows gradients, picked, dloss;
  HeadTargets targets;
  int64_t first, size;

  template <class Walk> WEFT_FN void operator()(const Walk& walk) const {
    using C = typename Walk::C;
    for (int64_t r = walk.begin(); r < walk.end(); r += walk.step()) {
      const int64_t id = value_of<int64_t>(targets.ids, r), j = id - first;
      if (id == targets.numbers.ignored || j < 0 || j >= size) continue;
      const C z = value_of<C>(picked, r);
      const C slope = targets.numbers.softcap > 0 ? HeadLogit<C, true>(targets.numbers).slope(z)
                                                  : HeadLogit<C, false>(targets.numbers).slope(z);
      const C term = value_of<C>(dloss, r) * targets.template weight<C>(r) * slope;
      const int64_t at = r * size + j;  // a tile is dense
      walk.set(gradients, at, value_of<C>(gradients, at) - term);
    }
  }
};

constexpr int64_t kTileClasses = 8192;
/// Elements of a tile: as many as stay in the caches of a CPU, or keep a GPU busy.
int64_t most_tile_elements(const LinearHead& head) {
  return int64_t{1} << (head.x.device.kind == DeviceKind::cuda ? 25 : 22);
}

MemoryBlock rows_of(const MemoryBlock& block, int64_t first, int64_t count) {
  Box box{Dims::filled(block.shape.ndim(), 0), block.shape};
  box.offset[0] = first, box.shape[0] = count;
  return block.data ? block.part(box) : block;
}

/// Rows of a vector that is read along with each row of a tile; none without data.
Rows vector_rows(const MemoryBlock& vector) { return vector.data ? Rows(vector, 0) : Rows(); }

/// Calls f(first class, classes, first row, rows) for each tile, class by class.
template <class F> void for_tiles(const LinearHead& head, const F& f) {
  const int64_t rows = head.x.shape[0], classes = head.weight.shape[0];
  if (rows == 0) return;
  for (int64_t c = 0; c < classes; c += kTileClasses) {
    const int64_t of_tile = std::min(kTileClasses, classes - c);
    const int64_t at_once =
        std::min(rows, std::max<int64_t>(most_tile_elements(head) / of_tile, 64));
    for (int64_t r = 0; r < rows; r += at_once) f(c, of_tile, r, std::min(at_once, rows - r));
  }
}

int64_t tile_elements(const LinearHead& head) {
  int64_t most = 0;
  for_tiles(head, [&](int64_t, int64_t classes, int64_t, int64_t rows) {
    most = std::max(most, classes * rows);
  });
  return most;
}

MemoryBlock tile_of(const DenseMemory& memory, int64_t rows, int64_t classes) {
  return dense_block(memory.block.data, memory.block.dtype, {rows, classes}, memory.block.device);
}

/// The sum of the class weights in one element; the number of classes without weights.
DenseMemory total_weight(const LinearHead& head) {
  DenseMemory total({1}, compute_dtype(head.x.dtype), head.x.device);
  if (head.class_weights.data) {
    reduce(Reduction::sum, total.block, head.class_weights, {0});
  } else {
    fill(total.block, static_cast<double>(head.classes));
  }
  return total;
}

HeadTargets targets_of(const LinearHead& head, const MemoryBlock& ids, const Rows& rows,
                       const DenseMemory& total) {
  return {Rows::values("linear_cross_entropy", ids, rows), vector_rows(head.class_weights),
          Rows(total.block, 0), head.numbers, head.classes};
}

}  // namespace

static constexpr const char* kHead = "linear_cross_entropy";

void linear_head_statistics(const LinearHead& head, const HeadStatistics& rows) {
  fill(rows.lse, -std::numeric_limits<double>::infinity());
  fill(rows.picked, 0);
  fill(rows.weighted, 0);
  const DenseMemory memory({tile_elements(head)}, compute_dtype(head.x.dtype), head.x.device);
  for_tiles(head, [&](int64_t c, int64_t classes, int64_t r, int64_t count) {
    const MemoryBlock tile = tile_of(memory, count, classes);
    gemm(rows_of(head.x, r, count), transposed(rows_of(head.weight, c, classes)), tile);
    const Rows products(tile, 1);
    const auto values = [&](const MemoryBlock& all) {
      return Rows::values(kHead, rows_of(all, r, count), products);
    };
    const AddTile kernel{products,
                         values(head.targets),
                         vector_rows(rows_of(head.bias, c, classes)),
                         vector_rows(rows_of(head.class_weights, head.first + c, classes)),
                         values(rows.lse),
                         values(rows.picked),
                         values(rows.weighted),
                         head.numbers,
                         head.first + c};
    run_rows(kHead, tile.device, kernel,
             {.rows = {&kernel.products}, .vectors = {&kernel.bias, &kernel.weights}, .held = 1});
  });
}

void linear_head_loss(const MemoryBlock& loss, const LinearHead& head, const HeadStatistics& rows) {
  const Rows of_loss(loss, loss.shape.ndim());
  const DenseMemory total = total_weight(head);
  const auto values = [&](const MemoryBlock& all) { return Rows::values(kHead, all, of_loss); };
  run_row_values(kHead, loss.device,
                 HeadLoss{of_loss, values(rows.lse), values(rows.picked), values(rows.weighted),
                          targets_of(head, head.targets, of_loss, total)},
                 of_loss);
}

/// Replaces a tile's products by their gradients.
static void differentiate_tile(const LinearHead& head, const MemoryBlock& tile, int64_t c,
                               int64_t r, const MemoryBlock& lse, const MemoryBlock& picked,
                               const MemoryBlock& dloss, const DenseMemory& total) {
  const int64_t count = tile.shape[0], classes = tile.shape[1];
  const Rows products(tile, 1);
  const auto values = [&](const MemoryBlock& all) {
    return Rows::values(kHead, rows_of(all, r, count), products);
  };
  const HeadTargets targets = targets_of(head, rows_of(head.targets, r, count), products, total);
  const TileGradient kernel{products,
                            vector_rows(rows_of(head.bias, c, classes)),
                            vector_rows(rows_of(head.class_weights, head.first + c, classes)),
                            values(lse),
                            values(dloss),
                            targets};
  run_rows(kHead, tile.device, kernel,
           {.rows = {&kernel.products}, .vectors = {&kernel.bias, &kernel.weights}});
  run_row_values(kHead, tile.device,
                 TargetGradient{Rows(tile, 2), values(picked), values(dloss), targets,
                                head.first + c, classes},
                 products);
}

void linear_head_backward(const LinearHead& head, const MemoryBlock& lse, const MemoryBlock& picked,
                          const MemoryBlock& dloss, const MemoryBlock& dx,
                          const MemoryBlock& dweight, const MemoryBlock& dbias, bool accumulate) {
  const DType dtype = head.x.dtype, computed = compute_dtype(dtype);
  const Device device = head.x.device;
  const bool is_half = dtype != computed;
  const int64_t width = head.x.shape[1];
  fill(dx, 0);
  if (dbias.data) fill(dbias, 0);
  if (!accumulate) fill(dweight, 0);
  const DenseMemory total = total_weight(head);
  const DenseMemory memory({tile_elements(head)}, computed, device);
  const DenseMemory halves({is_half ? tile_elements(head) : 0}, dtype, device);
  const DenseMemory dx_sum({is_half ? head.x.shape[0] : 0, width}, computed, device);
  const int64_t most = std::min(kTileClasses, head.weight.shape[0]);
  const DenseMemory dweight_sum({is_half ? most : 0, width}, computed, device);
  if (is_half) fill(dx_sum.block, 0);
  const MemoryBlock& dx_to = is_half ? dx_sum.block : dx;
  for_tiles(head, [&](int64_t c, int64_t classes, int64_t r, int64_t count) {
    const MemoryBlock tile = tile_of(memory, count, classes), of_x = rows_of(head.x, r, count);
    const MemoryBlock of_weight = rows_of(head.weight, c, classes);
    gemm(of_x, transposed(of_weight), tile);
    differentiate_tile(head, tile, c, r, lse, picked, dloss, total);
    MemoryBlock gradients = tile;
    if (is_half) copy(gradients = tile_of(halves, count, classes), tile);
    const MemoryBlock of_dweight = rows_of(dweight, c, classes);
    const MemoryBlock sum = is_half ? rows_of(dweight_sum.block, 0, classes) : of_dweight;
    if (is_half && r == 0) copy(sum, of_dweight);
    gemm(gradients, of_weight, rows_of(dx_to, r, count), 1);
    gemm(transposed(gradients), of_x, sum, 1);
    if (is_half && r + count == head.x.shape[0]) copy(of_dweight, sum);
    if (!dbias.data) return;
    const DenseMemory of_bias({classes}, computed, device);
    reduce(Reduction::sum, of_bias.block, tile, {0});
    const MemoryBlock of_dbias = rows_of(dbias, c, classes);
    weft::accumulate(of_dbias, of_bias.block, 1 / head.numbers.multiplier);
  });
  if (is_half) copy(dx, dx_sum.block);
}

}  // namespace weft
