# ingot_library(NAME [DEPENDS folders...] [LINK_PUBLIC libs...] [LINK_PRIVATE libs...])
# The static library of the folder ingot/NAME, as target ingot_NAME and ingot::NAME.
function(ingot_library name)
  cmake_parse_arguments(arg "" "" "DEPENDS;LINK_PUBLIC;LINK_PRIVATE" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/ingot/${name}/*.cpp)
  if(NOT INGOT_HAS_CUDA)
    list(FILTER sources EXCLUDE REGEX "_cublaslt\\.cpp$")
  endif()
  add_library(ingot_${name} STATIC ${sources})
  add_library(ingot::${name} ALIAS ingot_${name})
  set_target_properties(ingot_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(ingot_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
  list(TRANSFORM arg_DEPENDS PREPEND ingot_)
  target_link_libraries(ingot_${name} PUBLIC ingot_options ${arg_DEPENDS} ${arg_LINK_PUBLIC}
                                      PRIVATE ${arg_LINK_PRIVATE})
endfunction()
