# Installs the program with its manual pages and completion scripts (component "ingot"); the headers, one static library per
# folder, and the files for find_package(ingot) (component "dev"). `cpack` makes a Debian package of each.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ingot)
install(TARGETS ingot_options ingot_core ingot_comm ingot_ops ingot_nn ingot_optim ingot_formats ingot_data ingot_console
        ingot_config ingot_infer ingot_train ingot_parallel ingot_memory ingot_plan ingot_checkpoint ingot_tasks ingot_run ingot_sweep ingot_profile
        EXPORT ingot_targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
install(TARGETS ingot RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT ingot)
if(NOT CMAKE_CROSSCOMPILING)
  set(help ${PROJECT_BINARY_DIR}/help)
  install(DIRECTORY ${help}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT ingot FILES_MATCHING PATTERN "*.1")
  install(DIRECTORY ${help}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man5 COMPONENT ingot FILES_MATCHING PATTERN "*.5")
  set(share ${CMAKE_INSTALL_DATADIR})
  install(FILES ${help}/bash DESTINATION ${share}/bash-completion/completions RENAME ingot COMPONENT ingot)
  install(FILES ${help}/zsh DESTINATION ${share}/zsh/vendor-completions RENAME _ingot COMPONENT ingot)
  install(FILES ${help}/fish DESTINATION ${share}/fish/vendor_completions.d RENAME ingot.fish COMPONENT ingot)
endif()
install(DIRECTORY ingot/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ingot COMPONENT dev FILES_MATCHING PATTERN "*.h")
install(EXPORT ingot_targets NAMESPACE ingot:: DESTINATION ${package_dir} COMPONENT dev)

configure_package_config_file(cmake/ingot-config.cmake.in ${PROJECT_BINARY_DIR}/ingot-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ingot-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ingot-config.cmake ${PROJECT_BINARY_DIR}/ingot-config-version.cmake
        DESTINATION ${package_dir} COMPONENT dev)
# Beside each other as in the checkout, so that the links of README and docs lead somewhere.
install(FILES README.md CHANGELOG.md CONTRIBUTING.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT ingot)
install(DIRECTORY docs examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT ingot PATTERN __pycache__ EXCLUDE)

# Two Debian packages: ingot and ingot-dev.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_VENDOR Ingot)
set(CPACK_PACKAGE_CONTACT "Ingot's developers <ingot@localhost>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)
set(CPACK_COMPONENTS_ALL ingot dev)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_INGOT_PACKAGE_NAME ingot)
set(CPACK_DEBIAN_INGOT_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_INGOT_PACKAGE_SECTION science)
set(CPACK_COMPONENT_INGOT_DESCRIPTION "Pretrains GPT- and LLaMA-style language models
 The program, its manual pages and its completions for bash, zsh and fish.")
set(CPACK_DEBIAN_DEV_PACKAGE_NAME ingot-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libfmt-dev, libtomlplusplus-dev, nlohmann-json3-dev, libpcre2-dev, libxxhash-dev, libdnnl-dev")
set(CPACK_COMPONENT_DEV_DESCRIPTION "Headers and libraries of Ingot
 For CMake's find_package(ingot).")
if(INGOT_NATIVE)
  # Such a program runs only on machines with this machine's instructions; the version says so.
  set(CPACK_DEBIAN_PACKAGE_RELEASE native)
endif()
if(PROJECT_IS_TOP_LEVEL)
  include(CPack)
endif()
