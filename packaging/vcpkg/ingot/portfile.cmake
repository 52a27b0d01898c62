# An overlay port of this checkout: vcpkg install ingot --overlay-ports=packaging/vcpkg
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
vcpkg_check_features(OUT_FEATURE_OPTIONS options FEATURES mpi INGOT_MPI onednn INGOT_ONEDNN)
vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS ${options} -DINGOT_NATIVE=OFF -DINGOT_CUDA=OFF -DINGOT_TESTS=OFF -DINGOT_BENCH=OFF "-DCMAKE_CXX_FLAGS=-march=x86-64-v3")
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/ingot)
vcpkg_copy_tools(TOOL_NAMES ingot AUTO_CLEAN)
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
