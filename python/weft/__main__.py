# SPDX-License-Identifier: Apache-2.0
"""`python -m weft` is the program `weft`."""

from weft._program import main

main()
