// Holds the Python file with which transformers loads a model that belongs to none of its own families.
#pragma once

#include <string_view>

namespace ingot {

std::string_view modeling_ingot_py();  // the text of ingot/checkpoint/python/modeling_ingot.py

}  // namespace ingot
