// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "weft/shape.h"

int main() {
  const weft::Shape shape{6, 4};
  std::cout << shape << '\n';
}
