// Packs several values into the one message that a pipeline stage sends the next.
#pragma once

#include <vector>

#include "ingot/nn/program/builder.h"

namespace ingot {

// A value that a message holds.
struct Packed {
  std::string name;
  Shape shape;
  Placement placement;
};

// Returns the number of elements of a message.
int64_t message_elements(const std::vector<Packed>& values);
// Packs the values, in order, into a message (elements).
ValueId pack(Builder& b, const std::vector<ValueId>& values, std::string name);
// Returns the values of a message.
std::vector<ValueId> unpack(Builder& b, ValueId message, const std::vector<Packed>& values);

}  // namespace ingot
