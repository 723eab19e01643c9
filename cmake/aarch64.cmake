# SPDX-License-Identifier: Apache-2.0
# A toolchain file: builds for 64-bit ARM on another machine, by Debian's g++-aarch64-linux-gnu, and
# runs tests under qemu-user-static. scripts/long unpacks the libraries into WEFT_SYSROOT.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(WEFT_SYSROOT "${CMAKE_CURRENT_LIST_DIR}/../build/arm64" CACHE PATH
  "weft's dependencies for aarch64, unpacked from Debian's packages")
get_filename_component(WEFT_SYSROOT "${WEFT_SYSROOT}" ABSOLUTE)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES WEFT_SYSROOT)
set(CMAKE_FIND_ROOT_PATH ${WEFT_SYSROOT} /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L /usr/aarch64-linux-gnu)
