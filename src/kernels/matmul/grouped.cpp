// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/matmul/grouped.h"

#include "src/kernels/matmul/tasks.h"

namespace weft::host {

void multiply_each(std::span<const Product> products, Device) {
  const auto count = static_cast<int64_t>(products.size());
  const int threads = usable_threads();
  // Runs whole products on each thread, unless so few that threads would be idle.
  if (threads > 1 && count >= 4 * threads) {
    return run_tasks(count, threads,
                     [&](int64_t i, int) { multiply(products[static_cast<size_t>(i)]); });
  }
  for (const Product& product : products) multiply(product);
}

}  // namespace weft::host
