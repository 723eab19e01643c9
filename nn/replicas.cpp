// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/disk_tensor.h"
#include "weft/extend/hash.h"
#include "weft/extend/module_sharder.h"
#include "weft/mesh.h"
#include "weft/module.h"
#include "weft/ops/factories.h"

namespace weft {

/// XXH3 of this rank's elements.
static int64_t hash_of_local(const Tensor& value) {
  const NoGrad no_grad;
  Tensor local = in_memory(value).local().to(cpu);
  if (!local.block().is_dense()) {
    const Tensor dense = empty(local.shape(), {.dtype = local.dtype()});
    copy_(dense, local);
    local = dense;
  }
  const auto bytes = static_cast<size_t>(local.numel()) * size_of(local.dtype());
  return std::bit_cast<int64_t>(
      xxh3_of({static_cast<const std::byte*>(local.block().data), bytes}));
}

/// Along `axis` of `mesh`, whose ranks each give the hashes of the same parameters: what is wrong,
/// or "".
static std::string difference_along(const DeviceMesh& mesh, int axis,
                                    const std::vector<NamedParameter>& parameters,
                                    const std::vector<int64_t>& hashes) {
  // max(~h) is ~min(h): one all-reduce gives both ends.
  std::vector<int64_t> ends = hashes;
  for (const int64_t hash : hashes) ends.push_back(~hash);
  const Communicator group = mesh[mesh.axis_name(axis)].communicator();
  group.all_reduce_numbers(ends, ReduceOp::max);
  size_t at = 0;
  while (at < hashes.size() && ends[at] == ~ends[at + hashes.size()]) ++at;
  if (at == hashes.size()) return "";

  const std::vector<int64_t> all = group.all_gather_numbers({&hashes[at], 1});
  const auto other = std::ranges::find_if(all, [&](int64_t hash) { return hash != all[0]; });
  int stride = 1;
  for (int inner = axis + 1; inner < mesh.ndim(); ++inner) stride *= mesh.axis_size(inner);
  const int first = mesh.rank() - mesh.coordinate(axis) * stride;
  return concat("check_replicas: parameter ", in_quotes(parameters[at].name()), " on rank ",
                first + static_cast<int>(other - all.begin()) * stride,
                " differs from that on rank ", first, ", expected equal replicas along axis ",
                mesh.axis_name(axis));
}

/// Compares the parameters that are laid out over one root mesh.
static void check_replicas_over(const DeviceMesh& mesh,
                                const std::vector<NamedParameter>& parameters) {
  std::vector<int64_t> hashes(parameters.size());
  std::vector<bool> hashed(parameters.size());
  std::string mistake;
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    if (mesh.axis_size(axis) == 1) continue;
    std::vector<NamedParameter> replicated;
    std::vector<int64_t> own;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Tensor& value = parameters[i].parameter->value();
      if (value.sharding()[axis].is_shard()) continue;
      if (!hashed[i]) hashes[i] = hash_of_local(value);
      hashed[i] = true;
      replicated.push_back(parameters[i]);
      own.push_back(hashes[i]);
    }
    if (own.empty()) continue;
    const std::string difference = difference_along(mesh, axis, replicated, own);
    if (mistake.empty()) mistake = difference;
  }
  fail_on_all_ranks(mesh.communicator(), mistake);
}

void check_replicas(const Module& module) {
  std::vector<std::pair<DeviceMesh, std::vector<NamedParameter>>> meshes;
  for (const NamedParameter& named : module.named_parameters()) {
    if (!named.parameter->is_materialized()) {
      fail("check_replicas: parameter ", in_quotes(named.name()),
           " has no memory, expected some; call materialize first");
    }
    ModuleSharder::lazy_init(*named.parameter);
    const Sharding sharding = named.parameter->value().sharding();
    if (!sharding || sharding.mesh().size() == 1) continue;
    auto found = std::ranges::find_if(
        meshes, [&](const auto& entry) { return entry.first == sharding.mesh(); });
    if (found == meshes.end()) {
      meshes.emplace_back(sharding.mesh(), std::vector<NamedParameter>());
      found = meshes.end() - 1;
    }
    found->second.push_back(named);
  }
  for (const auto& [mesh, parameters] : meshes) check_replicas_over(mesh, parameters);
}

}  // namespace weft
