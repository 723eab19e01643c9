# Debian packages by CPack: scripts/debs.

if(WEFT_PYTHON)
  # The folder below the prefix /usr where Debian's python3 looks.
  set(folder lib/python3/dist-packages/weft)
  install(TARGETS weft_python
    LIBRARY DESTINATION ${folder} COMPONENT python EXCLUDE_FROM_ALL NAMELINK_SKIP)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/weft/
    DESTINATION ${folder} COMPONENT python EXCLUDE_FROM_ALL PATTERN "__pycache__" EXCLUDE)
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_NAME weft)
set(CPACK_PACKAGE_VENDOR "the authors of weft")
set(CPACK_PACKAGE_CONTACT "the authors of weft <weft@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "distributed tensors over meshes of devices")
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL library development program python)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
set(library libweft${WEFT_ABI})
set(same "${library} (= ${PROJECT_VERSION})")

set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME ${library})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
# Loaded when ranks of a job are on several hosts, and for object stores.
set(CPACK_DEBIAN_LIBRARY_PACKAGE_RECOMMENDS "libopenblas0-openmp")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SUGGESTS "libopenmpi3, libcurl4")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libweft-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${same}")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME weft)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS "${same}")
set(CPACK_DEBIAN_PYTHON_PACKAGE_NAME python3-weft)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SECTION python)
math(EXPR next "${Python_VERSION_MINOR} + 1")
set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS "${same}, weft (= ${PROJECT_VERSION}), python3-numpy")
string(APPEND CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS
  ", python3 (>= 3.${Python_VERSION_MINOR}), python3 (<< 3.${next})")
include(CPack)
