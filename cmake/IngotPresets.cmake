# Builds configs/*.toml into ingot_config by generating presets() of ingot/config/presets.h.
file(GLOB presets CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/configs/*.toml)
list(SORT presets)
set(rows "")
foreach(preset ${presets})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${preset})
  get_filename_component(name ${preset} NAME_WE)
  file(READ ${preset} text)
  string(APPEND rows "    {\"${name}\", R\"toml(${text})toml\"},\n")
endforeach()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/presets_table.cpp @ONLY CONTENT
"// Generated from configs/*.toml by cmake/IngotPresets.cmake.
#include \"ingot/config/presets.h\"

namespace ingot {

std::span<const Preset> presets() {
  static constexpr Preset kPresets[] = {
@rows@  };
  return kPresets;
}

}  // namespace ingot
")
target_sources(ingot_config PRIVATE ${PROJECT_BINARY_DIR}/generated/presets_table.cpp)
