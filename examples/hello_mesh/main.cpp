// SPDX-License-Identifier: Apache-2.0

// A matrix on a 2 x 2 mesh: what each rank holds under different placements, what a redistribution
// costs, and an operation on it.
//
//   hello_mesh                       # 4 ranks as threads of this process
//   weft run -n 4 -- hello_mesh      # 4 processes; mpirun and torchrun too

#include <iostream>
#include <sstream>

#include "weft/weft.h"

using namespace weft;

/// Prints `text` of each rank, in the order of ranks.
static void print_in_order(const Communicator& world, const std::string& text) {
  for (int rank = 0; rank < world.size(); ++rank) {
    if (rank == world.rank()) std::cout << text << std::flush;
    world.barrier();
  }
}

static std::string part_of(const Communicator& world, const Tensor& tensor) {
  std::ostringstream out;
  out << "  rank " << world.rank() << " holds " << tensor.local().shape() << ':';
  for (double value : tensor.to_vector<double>()) out << ' ' << value;
  out << '\n';
  return out.str();
}

static void hello(const Communicator& world) {
  const DeviceMesh mesh(world, {{"rows", 2}, {"columns", 2}});
  const Tensor whole = reshape(arange(16), {4, 4}).to(f32);
  const auto print = [&](const std::string& text) {
    if (world.rank() == 0) std::cout << text << std::flush;
    world.barrier();
  };

  // One placement for each axis of the mesh, by name or by position.
  const Tensor tiles = distribute(whole, mesh, {{"rows", Shard(0)}, {"columns", Shard(1)}});
  print("each rank holds a tile:\n");
  print_in_order(world, part_of(world, tiles));

  // Sums along a sharded dim are partial: each rank holds an addend until it is needed.
  const Tensor sums = sum(tiles, {1});
  print("row sums, one addend on each rank of a row of the mesh:\n");
  print_in_order(world, part_of(world, sums));

  // `explain` prints what `redistribute` would do.
  std::ostringstream plan;
  plan << "to make them whole:\n" << explain(sums, {Replicate(), Replicate()});
  print(plan.str());
  const Tensor full = sums.full_tensor();

  // Operations work on whole tensors, whatever their layout.
  const Tensor positive = tiles > 7.5;
  std::ostringstream result;
  result << "row sums: " << full << '\n'
         << "elements above 7.5: " << sum(positive).full_tensor().item() << '\n';
  print(result.str());
}

int main() { run_world(4, hello); }
