// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/work_log.h"

#include <algorithm>

#include "ops/engine/engine.h"
#include "weft/error.h"

namespace weft {

WorkLog::WorkLog() {
  WorkLog*& log = Engine::current().work;
  if (log) fail("work log: the rank has one already");
  log = this;
}

WorkLog::~WorkLog() { Engine::current().work = nullptr; }

/// Reduces the sizes of factors to those that this part shows.
static void see_factors(std::span<const Binding::BoundDim> dims, const Shape& local,
                        std::vector<int64_t>& sizes) {
  for (size_t d = 0; d < dims.size(); ++d) {
    // Only the first factor of merged dims can be cut; the others are whole.
    if (dims[d].empty()) continue;
    int64_t& size = sizes[static_cast<size_t>(dims[d][0])];
    int64_t inner = 1;
    for (size_t f = 1; f < dims[d].size(); ++f) inner *= sizes[static_cast<size_t>(dims[d][f])];
    size = std::min(size, local[static_cast<int>(d)] / std::max<int64_t>(1, inner));
  }
}

double factor_combinations(const Binding& binding, std::span<const Ref<Layout>> operands,
                           std::span<const Ref<Layout>> results) {
  std::vector<int64_t> sizes;
  for (const auto& factor : binding.factors) sizes.push_back(factor.size);
  for (size_t i = 0; i < operands.size(); ++i) {
    see_factors(binding.operands[i], operands[i]->box.shape, sizes);
  }
  for (size_t i = 0; i < results.size(); ++i) {
    see_factors(binding.results[i], results[i]->box.shape, sizes);
  }
  double product = 1;
  for (int64_t size : sizes) product *= static_cast<double>(std::max<int64_t>(0, size));
  return product;
}

static int64_t bytes_of(std::span<const Block> blocks) {
  int64_t bytes = 0;
  for (const Block& block : blocks) {
    bytes += block.numel() * static_cast<int64_t>(size_of(block.dtype));
  }
  return bytes;
}

void log_work(WorkLog& log, const OpBody& op, const Route& route, const CallBody& call) {
  const DType dtype = call.ins.size() > 0 ? call.ins[0].dtype : call.outs[0].dtype;
  auto found = std::find_if(log.ops.begin(), log.ops.end(), [&](const OpWork& work) {
    return work.dtype == dtype && work.op == op.spec.name;
  });
  if (found == log.ops.end()) found = log.ops.insert(found, {op.spec.name, dtype});
  ++found->calls;
  found->bytes += bytes_of(call.ins.all()) + bytes_of(call.outs.all());
  if (op.spec.products) {
    found->operations += 2 * op.spec.products(call.attributes) * route.combinations;
  }
}

}  // namespace weft
