# ingot_text(LIBRARY FILE FUNCTION): adds a generated file to a library, which defines
# std::string_view ingot::FUNCTION(): the text of FILE. A header of the library declares it.
function(ingot_text library file function)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${file})
  file(READ ${PROJECT_SOURCE_DIR}/${file} text)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/${function}_text.cpp @ONLY CONTENT
"// Generated from @file@ by cmake/IngotText.cmake.
#include <string_view>

namespace ingot {

std::string_view @function@();

std::string_view @function@() { return R\"text(@text@)text\"; }

}  // namespace ingot
")
  target_sources(${library} PRIVATE ${PROJECT_BINARY_DIR}/generated/${function}_text.cpp)
endfunction()

ingot_text(ingot_checkpoint ingot/checkpoint/python/modeling_ingot.py modeling_ingot_py)
