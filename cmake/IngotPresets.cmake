# Builds files of configs/ into the program.

# ingot_toml_table(LIBRARY PATTERN HEADER TYPE FUNCTION): adds a generated file to a library, with the function
# of the header that returns name and text of every file that matches the pattern, sorted by name.
function(ingot_toml_table library pattern header type function)
  file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${pattern})
  list(SORT files)
  set(rows "")
  foreach(file ${files})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    get_filename_component(name ${file} NAME_WE)
    file(READ ${file} text)
    string(APPEND rows "    {\"${name}\", R\"toml(${text})toml\"},\n")
  endforeach()
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/${function}_table.cpp @ONLY CONTENT
"// Generated from @pattern@ by cmake/IngotPresets.cmake.
#include \"@header@\"

namespace ingot {

std::span<const @type@> @function@() {
  static constexpr @type@ kFiles[] = {
@rows@  };
  return kFiles;
}

}  // namespace ingot
")
  target_sources(${library} PRIVATE ${PROJECT_BINARY_DIR}/generated/${function}_table.cpp)
endfunction()

ingot_toml_table(ingot_config configs/*.toml ingot/config/presets.h Preset presets)
ingot_toml_table(ingot_plan configs/hardware/*.toml ingot/plan/hardware.h HardwareFile hardware_files)
