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

# The same for configs/hardware/*.toml: hardware_files() of ingot/plan/hardware.h.
file(GLOB descriptions CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/configs/hardware/*.toml)
list(SORT descriptions)
set(rows "")
foreach(description ${descriptions})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${description})
  get_filename_component(name ${description} NAME_WE)
  file(READ ${description} text)
  string(APPEND rows "    {\"${name}\", R\"toml(${text})toml\"},\n")
endforeach()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/hardware_table.cpp @ONLY CONTENT
"// Generated from configs/hardware/*.toml by cmake/IngotPresets.cmake.
#include \"ingot/plan/hardware.h\"

namespace ingot {

std::span<const HardwareFile> hardware_files() {
  static constexpr HardwareFile kFiles[] = {
@rows@  };
  return kFiles;
}

}  // namespace ingot
")
target_sources(ingot_plan PRIVATE ${PROJECT_BINARY_DIR}/generated/hardware_table.cpp)
