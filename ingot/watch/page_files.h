// The files of the page, built into the program.
#pragma once

#include <string_view>

namespace ingot {

std::string_view page_html();
std::string_view page_style();
std::string_view page_store_script();
std::string_view page_panels_script();
std::string_view page_app_script();

}  // namespace ingot
