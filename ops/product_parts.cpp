// SPDX-License-Identifier: Apache-2.0
#include "ops/product_parts.h"

#include <utility>

namespace weft {

static thread_local ProductParts* current_parts = nullptr;

ProductParts::ProductParts(const RowParts& rows, Before before, After after)
    : rows_(rows),
      before_(std::move(before)),
      after_(std::move(after)),
      outer_(std::exchange(current_parts, this)) {}

ProductParts::~ProductParts() { current_parts = outer_; }

ProductParts* ProductParts::current() { return current_parts; }

void ProductParts::compute(
    const MemoryBlock& a, const MemoryBlock& out,
    const std::function<void(const MemoryBlock&, const MemoryBlock&)>& product) {
  for (int part = 0; part < rows_.count(); ++part) {
    if (before_) before_(part);
    rows_.for_blocks(part, a, out, product);
    if (after_) after_(part, out);
  }
}

}  // namespace weft
