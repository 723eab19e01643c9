# SPDX-License-Identifier: Apache-2.0
"""The Spack recipe of weft. Nobody has run it yet: it was written from CMakeLists.txt and Spack's
documentation. `spack dev-build weft@main` builds the clone it is called in. It installs the library
and the program; `pip install .` builds the Python package."""

from spack.package import *


class Weft(CMakePackage):
    """Distributed tensors: layouts over meshes of devices, sharded training, checkpoints."""

    license("Apache-2.0")

    version("main", branch="main", git="file:///path/to/a/clone/of/weft")

    variant("mpi", default=True, description="ranks on several hosts, by Open MPI")
    variant("onednn", default=True, description="matrix products by oneDNN")
    variant("openblas", default=True, description="linear algebra by OpenBLAS")
    variant("cuda", default=False, description="kernels for NVIDIA GPUs")
    variant("native", default=True, description="for the processor of this machine")

    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("onednn", when="+onednn")
    depends_on("openblas threads=openmp", when="+openblas")
    depends_on("nlohmann-json")
    depends_on("range-v3")
    depends_on("cli11")
    depends_on("xxhash")
    depends_on("pcre2")
    depends_on("utf8proc")
    depends_on("mpi", when="+mpi")
    depends_on("cuda@13:", when="+cuda")

    conflicts("%gcc@:11")
    generator("ninja")

    def cmake_args(self):
        return [
            self.define("WEFT_UNITY", True),
            self.define_from_variant("WEFT_MPI", "mpi"),
            self.define_from_variant("WEFT_OPENBLAS", "openblas"),
            self.define_from_variant("WEFT_ONEDNN", "onednn"),
            self.define_from_variant("WEFT_CUDA", "cuda"),
            self.define_from_variant("WEFT_NATIVE", "native"),
        ]
