// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"

#include <gtest/gtest.h>

#include "cli/step_cost.h"

namespace weft::cli {

TEST(Devices, KnowsMachinesByTheNamesThatDriversTell) {
  EXPECT_EQ(machine_of_device("NVIDIA H100 80GB HBM3", "bf16").value().name, "h100");
  EXPECT_EQ(machine_of_device("NVIDIA H200", "f32").value().name, "h200");
  EXPECT_EQ(machine_of_device("NVIDIA A100-SXM4-80GB", "bf16").value().name, "a100");
  for (const char* name :
       {"emulated GPU", "NVIDIA H100 PCIe", "NVIDIA A100-PCIE-40GB", "NVIDIA GH200 480GB"}) {
    EXPECT_FALSE(machine_of_device(name, "bf16")) << name;
  }
}

TEST(Devices, KnowsPeaksByTheNamesThatDriversTell) {
  struct Case {
    const char* name;
    double bf16, f32;
  };
  for (const Case& one : {Case{"NVIDIA H100 80GB HBM3", 989.4e12, 66.9e12},
                          {"NVIDIA H100 PCIe", 756e12, 51.2e12},
                          {"NVIDIA H100 NVL", 835.5e12, 60e12},
                          {"NVIDIA H200", 989.4e12, 66.9e12},
                          {"NVIDIA H200 NVL", 835.5e12, 60e12},
                          {"NVIDIA GH200 480GB", 989.4e12, 66.9e12},
                          {"NVIDIA A100-SXM4-80GB", 312e12, 19.5e12}}) {
    EXPECT_NEAR(peak_operations(one.name, "bf16").value(), one.bf16, 1) << one.name;
    EXPECT_NEAR(peak_operations(one.name, "f32").value(), one.f32, 1) << one.name;
  }
  for (const char* name : {"cpu", "emulated GPU", "NVIDIA B200", "NVIDIA T4", ""}) {
    EXPECT_FALSE(peak_operations(name, "bf16")) << name;
  }
}

TEST(Devices, OfTheCpuAreItsRanks) {
  EXPECT_EQ(device_of_rank("cpu", 3), cpu);
  EXPECT_EQ(devices_of_ranks("cpu", 3), 3);
  EXPECT_EQ(device_name(cpu), "cpu");
}

TEST(Devices, AreGivenToRanksInTurn) {
  const int count = device_count(DeviceKind::cuda);
  if (count == 0) GTEST_SKIP() << "there is no GPU, nor an emulated one";
  for (int rank = 0; rank < 2 * count + 1; ++rank) {
    EXPECT_EQ(device_of_rank("cuda", rank).index, rank % count);
    EXPECT_EQ(device_of_rank("cuda:0", rank).index, 0);
    EXPECT_EQ(devices_of_ranks("cuda", rank + 1), std::min(rank + 1, count));
    EXPECT_EQ(devices_of_ranks("cuda:0", rank + 1), 1);
  }
  EXPECT_FALSE(device_name({DeviceKind::cuda, 0}).empty());
}

}  // namespace weft::cli
