// The Python file that lets transformers load a model of no family that it knows.
#pragma once

#include <string_view>

namespace ingot {

std::string_view modeling_ingot_py();  // the text of ingot/checkpoint/python/modeling_ingot.py

}  // namespace ingot
