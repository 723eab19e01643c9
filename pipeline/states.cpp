// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <sstream>
#include <utility>

#include "pipeline/ties.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"
#include "weft/ops/in_place.h"
#include "weft/optimizers.h"
#include "weft/pipeline.h"

namespace weft {

void Pipeline::tie(PipelineTie tie) {
  const int first = rank_of(tie.first_stage), last = rank_of(tie.last_stage);
  if (tie.first_stage == tie.last_stage) {
    fail("pipeline: stages of the tie ", tie.first, " are both ", tie.first_stage,
         ", expected two; a stage ties its parameters itself");
  }
  std::vector<int> ranks{first};
  if (last != first) ranks.push_back(last);
  Communicator pair;
  if (position() == first || position() == last) pair = line_.subgroup(ranks, "tie");
  ties_.push_back(std::move(tie));
  pairs_.push_back(pair);
}

Tensors Pipeline::set_ties_aside() const {
  const NoGrad no_grad;
  Tensors earlier(2 * ties_.size());
  for (size_t i = 0; i < earlier.size(); ++i) {
    const ParameterPtr parameter = tied(i / 2, i % 2 == 1);
    if (!parameter || !parameter->grad()) continue;
    earlier[i] = clone(parameter->grad().local());
    parameter->clear_grad();
  }
  return earlier;
}

/// Sums a tensor's elements over ranks, in place.
static void sum_over(const Communicator& ranks, const Tensor& local) {
  const int64_t count = local.numel();
  void* data = local.block().data;
  const Piece piece{.send = data,
                    .recv = data,
                    .dtype = local.dtype(),
                    .counts = {&count, 1},
                    .recv_dtype = local.dtype(),
                    .device = local.device()};
  ranks.all_reduce({&piece, 1}, ReduceOp::sum).wait();
}

void Pipeline::sum_ties(const Tensors& earlier) const {
  const NoGrad no_grad;
  for (size_t i = 0; i < ties_.size(); ++i) {
    if (!pairs_[i]) continue;
    const std::string& name = ties_[i].first;
    Tensors locals;
    // Each rank knows its gradients alone.
    std::vector<int64_t> own;
    for (const bool is_last : {false, true}) {
      const ParameterPtr parameter = tied(i, is_last);
      if (!parameter) continue;
      const Tensor grad = parameter->grad();
      locals.push_back(grad ? grad.local() : Tensor());
      own.push_back(grad ? grad.local().numel() : -1);
      own.push_back(grad ? static_cast<int64_t>(grad.dtype()) : -1);
    }
    const std::vector<int64_t> both = pairs_[i].all_gather_numbers(own);
    if (both[0] != both[2] || both[1] != both[3]) {
      const auto size = [](int64_t count) { return count < 0 ? "none" : concat(count); };
      fail("pipeline: size of the gradient of ", name, " is ", size(both[2]), " in stage ",
           ties_[i].last_stage, ", expected ", size(both[0]), " of the same dtype, as in stage ",
           ties_[i].first_stage);
    }
    if (!locals[0]) continue;
    for (const Tensor& local : locals) {
      if (local.block().is_dense()) continue;
      fail("pipeline: gradient of ", name, " is not dense, expected a dense one");
    }
    if (is_local(ties_[i])) {
      copy_(locals[0], weft::add(locals[0], locals[1]));
      copy_(locals[1], locals[0]);
    } else {
      sum_over(pairs_[i], locals[0]);
    }
    for (const bool is_last : {false, true}) {
      const Tensor& before = earlier[2 * i + (is_last ? 1 : 0)];
      if (!before) continue;
      Tensor& local = is_last ? locals.back() : locals.front();
      copy_(local, weft::add(local, before));
    }
  }
}

const PipelineTie* Pipeline::tie_of_last(const std::string& key) const {
  const auto found = std::ranges::find_if(ties_, [&](const PipelineTie& tie) {
    return holds(tie.last_stage) && belongs_to(key, tie.last);
  });
  return found == ties_.end() ? nullptr : &*found;
}

Tensor Pipeline::gradient_norm(const std::vector<ParameterPtr>& parameters) const {
  std::vector<const Parameter*> copies;
  for (size_t i = 0; i < ties_.size(); ++i) {
    if (holds(ties_[i].last_stage)) copies.push_back(tied(i, true).get());
  }
  const NoGrad no_grad;
  Tensors own;
  for (const ParameterPtr& parameter : parameters) {
    if (!parameter->grad() || std::ranges::find(copies, parameter.get()) != copies.end()) continue;
    own.push_back(parameter->grad());
  }
  // All ranks sum on one kind of device, also those of which all parameters are frozen.
  const Device device = parameters.empty() ? cpu : parameters[0]->device();
  Tensor square =
      own.empty() ? zeros({1}, {.device = device}) : total_norm(own).to(f32).reshape({1});
  square = mul(square, square);
  sum_over(line_, square);
  return sqrt(square).reshape({});
}

namespace {

/// A tensor of some stage, as ranks tell each other of it: its place along the pipeline's axis, its
/// dtype and shape, and for each other axis the dim that it cuts (-1: none) and its place among the
/// cuts of the dim.
struct StageTensor {
  std::string name;
  int position = 0;
  DType dtype = f32;
  Shape shape;
  std::vector<int> dims, orders;
};

}  // namespace

static std::string in_line(const std::string& name, const Tensor& tensor) {
  if (tensor.ndim() == 0) {
    fail("pipeline: tensor ", name, " has no dims, expected at least one, which the stages share");
  }
  std::ostringstream out;
  out << name << ' ' << static_cast<int>(tensor.dtype()) << ' ' << tensor.ndim();
  for (const int64_t size : tensor.shape()) out << ' ' << size;
  if (!tensor.is_sharded()) {
    out << " 0\n";
    return out.str();
  }
  const Sharding sharding = tensor.sharding();
  out << ' ' << sharding.axes();
  for (int axis = 0; axis < sharding.axes(); ++axis) {
    const Placement& placement = sharding[axis];
    if (placement.is_partial() || placement.has_sizes() || sharding.has_inner()) {
      fail("pipeline: tensor ", name, " is laid out as ", sharding,
           ", expected whole tensors and chunks");
    }
    int order = 0;
    if (placement.is_shard()) {
      for (const int cut : sharding.axes_cutting(placement.dim())) {
        if (cut == axis) break;
        ++order;
      }
    }
    out << ' ' << placement.dim() << ' ' << order;
  }
  out << '\n';
  return out.str();
}

static StageTensor from_line(const std::string& line, int position) {
  std::istringstream in(line);
  StageTensor made;
  made.position = position;
  int dtype = 0, ndim = 0, axes = 0;
  in >> made.name >> dtype >> ndim;
  made.dtype = static_cast<DType>(dtype);
  for (int64_t size = 0; ndim > 0 && in >> size; --ndim) made.shape.push_back(size);
  in >> axes;
  for (int dim = 0, order = 0; axes > 0 && in >> dim >> order; --axes) {
    made.dims.push_back(dim);
    made.orders.push_back(order);
  }
  return made;
}

/// The sharding over the whole mesh: the pipeline's axis cuts dim 0 first, into all and nothing.
static Sharding over(const DeviceMesh& mesh, const std::string& axis, const StageTensor& tensor) {
  const int along = mesh.axis(axis), ranks = mesh.axis_size(along);
  std::vector<NamedPlacement> placements;
  std::vector<int64_t> sizes(static_cast<size_t>(ranks), 0);
  sizes[static_cast<size_t>(tensor.position)] = tensor.shape[0];
  placements.push_back({axis, Shard(0, sizes)});
  std::vector<std::vector<std::string>> orders(static_cast<size_t>(tensor.shape.ndim()));
  orders[0].push_back(axis);
  for (int order = 0; order < mesh.ndim(); ++order) {
    for (size_t i = 0, other = 0; i < static_cast<size_t>(mesh.ndim()); ++i) {
      if (static_cast<int>(i) == along) continue;
      const size_t at = other++;
      if (at >= tensor.dims.size() || tensor.dims[at] < 0 || tensor.orders[at] != order) continue;
      const std::string& name = mesh.axis_name(static_cast<int>(i));
      placements.push_back({name, Shard(tensor.dims[at])});
      orders[static_cast<size_t>(tensor.dims[at])].push_back(name);
    }
  }
  Placements all{std::span<const NamedPlacement>(placements)};
  for (size_t dim = 0; dim < orders.size(); ++dim) {
    if (orders[dim].size() > 1) all = all.cut_in_order(static_cast<int>(dim), orders[dim]);
  }
  return Sharding(mesh, all);
}

/// Elements before those of a tensor in its memory.
static int64_t offset_of(const Tensor& tensor) {
  const auto* begin = static_cast<const char*>(tensor.storage()->data());
  const auto* own = static_cast<const char*>(tensor.local().block().data);
  return (own - begin) / static_cast<int64_t>(size_of(tensor.dtype()));
}

Pipeline::State Pipeline::of_all_stages(const State& own) const {
  std::string text;
  for (const auto& [key, tensor] : own.tensors) {
    if (!tie_of_last(key)) text += in_line(key, tensor);
  }
  std::string numbers;
  for (const auto& [key, number] : own.numbers) {
    if (!tie_of_last(key)) numbers += concat(key, ' ', number, '\n');
  }
  State all;
  for (int position = 0; position < program_.ranks(); ++position) {
    std::istringstream lines(line_.broadcast(text, position));
    for (std::string line; std::getline(lines, line);) {
      const StageTensor tensor = from_line(line, position);
      const Sharding sharding = over(mesh_, axis_, tensor);
      Tensor& made = all.tensors[tensor.name];
      if (position == this->position()) {
        const Tensor& mine = own.tensors.at(tensor.name);
        made = tensor_in(mine.storage(), offset_of(mine), mine.shape(), mine.dtype(), sharding);
      } else if (!made) {
        made = empty(tensor.shape, {.dtype = tensor.dtype, .sharding = sharding});
      }
    }
    std::istringstream pairs(line_.broadcast(numbers, position));
    int64_t number = 0;
    for (std::string key; pairs >> key >> number;) all.numbers.emplace(key, number);
  }
  return all;
}

/// Copies a tensor of the first rank of `ranks` to the others.
static void copy_from_first(const Communicator& ranks, const Tensor& tensor) {
  const NoGrad no_grad;
  const Tensor local = tensor.detach().local(), sent = clone(local);
  const int64_t count = sent.numel();
  void* data = sent.block().data;
  const Piece piece{.send = data,
                    .recv = data,
                    .dtype = sent.dtype(),
                    .counts = {&count, 1},
                    .recv_dtype = sent.dtype(),
                    .device = sent.device()};
  ranks.broadcast({&piece, 1}, 0).wait();
  if (ranks.rank() != 0) copy_(local, sent);
}

Pipeline::State Pipeline::of_own_stages(const State& own,
                                        const std::map<std::string, int64_t>& numbers) const {
  State made = own;
  for (auto& [key, number] : made.numbers) {
    const PipelineTie* tie = tie_of_last(key);
    const auto found = numbers.find(tie ? tie->first + key.substr(tie->last.size()) : key);
    if (found != numbers.end()) number = found->second;
  }
  if (!ties_.empty()) check_ties_of(own);
  for (size_t i = 0; i < ties_.size(); ++i) {
    if (!pairs_[i]) continue;
    const auto& [first_stage, last_stage, first, last] = ties_[i];
    const std::string& name = holds(first_stage) ? first : last;
    for (const auto& [key, tensor] : own.tensors) {
      if (!belongs_to(key, name)) continue;
      if (!is_local(ties_[i])) {
        copy_from_first(pairs_[i], tensor);
        continue;
      }
      const NoGrad no_grad;
      const Tensor copy = own.tensors.at(last + key.substr(first.size()));
      copy_(copy.detach().local(), tensor.detach().local());
    }
  }
  return made;
}

}  // namespace weft
