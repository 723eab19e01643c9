// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/snapshot.h"

#include "weft/error.h"
#include "weft/ops/factories.h"

namespace weft {

Snapshot::Snapshot(const RankFiles& files, int rank, const StateDict& state) {
  for (const RankFiles::Entry& entry : files.entries(rank)) {
    if (entry.bytes == 0) continue;
    const std::string& name = files.manifest().tensors[entry.tensor].name;
    const Tensor local = state.tensors.at(name).local();
    if (!(local.shape() == entry.box->shape)) {
      fail("save: tensor ", in_quotes(name), " has a part ", local.shape(), ", expected ",
           entry.box->shape, ", that of its layout");
    }
    pieces_.push_back({local, entry.bytes});
  }
}

const std::byte* Snapshot::data_of(size_t index) {
  const Tensor& local = pieces_[index].local;
  if (local.block().is_dense() && local.device().kind == DeviceKind::cpu) {
    return static_cast<const std::byte*>(local.block().data);
  }
  if (!copy_ || copied_ != index) {
    const NoGrad no_grad;
    copy_ = {};
    copy_ = empty(local.shape(), {.dtype = local.dtype()});
    weft::copy_(copy_, local);
    copied_ = index;
  }
  return static_cast<const std::byte*>(copy_.block().data);
}

}  // namespace weft
