// SPDX-License-Identifier: Apache-2.0
#include <sstream>

#include "tests/ops/agreement.h"
#include "tests/support/ranks.h"

namespace weft {

static std::string printed(const Tensor& tensor) {
  std::ostringstream out;
  out << tensor;
  return out.str();
}

TEST(Print, ElementsAreWrittenAsPyTorchWritesThem) {
  EXPECT_EQ(printed(ones({2, 2})), "Tensor([2, 2], f32, cpu)\n[[1., 1.],\n [1., 1.]]");
  EXPECT_EQ(printed(Array{{3}, {1.5, -2, 1}}.on()),
            "Tensor([3], f32, cpu)\n[ 1.5000, -2.0000,  1.0000]");
  EXPECT_EQ(printed(Array{{2}, {1e10, 1}}.on()), "Tensor([2], f32, cpu)\n[1.0000e+10, 1.0000e+00]");
  EXPECT_EQ(printed(Array{{2}, {1, 0}, boolean}.on()), "Tensor([2], bool, cpu)\n[ True, False]");
  EXPECT_EQ(printed(full({}, 3.5)), "Tensor([], f32, cpu) 3.5000");
  EXPECT_EQ(printed(zeros({0, 3})), "Tensor([0, 3], f32, cpu) []");
  EXPECT_EQ(printed(zeros({3}, {.device = meta})), "Tensor([3], f32, meta)");
  EXPECT_EQ(printed(Tensor()), "Tensor()");
  EXPECT_EQ(printed(reshape(arange(8), {2, 2, 2})),
            "Tensor([2, 2, 2], i64, cpu)\n[[[0, 1],\n  [2, 3]],\n\n [[4, 5],\n  [6, 7]]]");
}

TEST(Print, ALargeTensorIsSummarised) {
  EXPECT_EQ(printed(arange(2000)),
            "Tensor([2000], i64, cpu)\n[   0,    1,    2,  ..., 1997, 1998, 1999]");
  const std::string matrix = printed(reshape(arange(1200), {300, 4}).t());
  EXPECT_EQ(matrix,
            "Tensor([4, 300], i64, cpu)\n[[   0,    4,    8,  ..., 1188, 1192, 1196],\n"
            " [   1,    5,    9,  ..., 1189, 1193, 1197],\n"
            " [   2,    6,   10,  ..., 1190, 1194, 1198],\n"
            " [   3,    7,   11,  ..., 1191, 1195, 1199]]");
}

TEST(Print, AShardedTensorShowsTheRanksPart) {
  on_mesh({{"dp", 3}}, [](const DeviceMesh& mesh) {
    const Tensor x = distribute(reshape(arange(10), {5, 2}), mesh, {Shard(0)});
    const std::string header = "Tensor([5, 2], i64, cpu, mesh(dp=3)[S(0)])\nrank ";
    const char* const parts[] = {"0 holds [2, 2] from [0, 0]:\n[[0, 1],\n [2, 3]]",
                                 "1 holds [2, 2] from [2, 0]:\n[[4, 5],\n [6, 7]]",
                                 "2 holds [1, 2] from [4, 0]:\n[[8, 9]]"};
    EXPECT_EQ(printed(x), header + parts[mesh.rank()]);
  });
}

}  // namespace weft
