// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/snapshot.h"

#include "weft/error.h"
#include "weft/ops/factories.h"

namespace weft {

Snapshot::Snapshot(const RankFiles& files, int rank, const StateDict& state) {
  const NoGrad no_grad;
  for (const RankFiles::Entry& entry : files.entries(rank)) {
    if (entry.bytes == 0) continue;
    const std::string& name = files.manifest().tensors[entry.tensor].name;
    Tensor local = state.tensors.at(name).local();
    if (!(local.shape() == entry.box->shape)) {
      fail("save: tensor ", in_quotes(name), " has ", local.shape(), " here but ", entry.box->shape,
           " by its layout");
    }
    if (!local.block().is_dense() || local.device().kind != DeviceKind::cpu) {
      const Tensor dense = empty(local.shape(), {.dtype = local.dtype()});
      copy_(dense, local);
      copies_.push_back(dense);
      local = dense;
    }
    pieces_.emplace_back(static_cast<const std::byte*>(local.block().data),
                         static_cast<size_t>(entry.bytes));
  }
}

}  // namespace weft
