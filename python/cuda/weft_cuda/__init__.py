# SPDX-License-Identifier: Apache-2.0
"""libweft.so with kernels for NVIDIA GPUs: `import weft` loads it in place of its own."""

import pathlib

PREFIX = pathlib.Path(__file__).parent
