#include "ingot/nn/program/program_text.h"

#include <fmt/core.h>

#include <regex>
#include <vector>

namespace ingot {
namespace {

void append(std::string& list, const std::string& item) {
  if (!list.empty()) list += ", ";
  list += item;
}

class ProgramText {
 public:
  ProgramText(const Program& program, const ParamList& params)
      : program_(program), params_(params), kept_for_(program.values().size()) {
    for (size_t i = program.ops().size(); i-- > program.border();)  // the first reader remains
      for (const ValueId id : program.ops()[i].in)
        if (id != kNoValue) kept_for_[static_cast<size_t>(id)] = program.ops()[i].primitive->name();
  }

  std::string run() {
    text_ = fmt::format("a slot of {} bytes for each micro-batch in flight, and {} bytes of scratch\n",
                        program_.slot_bytes(), program_.scratch_bytes());
    section("forward", 0, program_.border());
    if (program_.border() < program_.ops().size())
      section("backward", program_.border(), program_.ops().size());
    return text_;
  }

 private:
  // Consecutive operations of one block, or outside blocks.
  struct Part {
    int block = -1;
    std::vector<std::string> lines;
    std::string shape;  // the lines without addresses and numbers of units
  };

  void section(const char* name, size_t begin, size_t end) {
    text_ += fmt::format("{}\n", name);
    std::vector<Part> parts;
    for (size_t i = begin; i < end; ++i) {
      const Op& op = program_.ops()[i];
      if (parts.empty() || parts.back().block != op.block)
        parts.push_back({.block = op.block, .lines = {}, .shape = {}});
      Part& part = parts.back();
      part.lines.push_back(line(op));
      part.shape += std::regex_replace(part.lines.back(), kNumbers, "") + "\n";
    }
    for (size_t first = 0, last = 0; first < parts.size(); first = last + 1) {
      last = first;
      while (parts[first].block >= 0 && last + 1 < parts.size() &&
             parts[last + 1].shape == parts[first].shape)
        ++last;
      print(parts[first], parts[last].block);
    }
  }

  void print(const Part& part, int last_block) {
    if (last_block != part.block)
      text_ += fmt::format(" block {}; blocks up to {} are alike\n", part.block, last_block);
    else if (part.block >= 0)
      text_ += fmt::format(" block {}\n", part.block);
    for (const std::string& line : part.lines) text_ += fmt::format("  {}\n", line);
  }

  std::string line(const Op& op) const {
    std::string text = op.primitive->name();
    if (op.in.empty() && op.out.empty()) return text + fmt::format(" of unit {}", op.scope.unit);
    std::string read, written;
    for (const ValueId id : op.in)
      if (id != kNoValue) append(read, value(id).name);
    for (const int id : op.weights)
      if (id >= 0) append(read, params_[id].name);
    text += fmt::format("({})", read);
    for (const ValueId id : op.out)
      if (id != kNoValue) append(written, described(id, op));
    if (!written.empty()) text += fmt::format(" -> {}", written);
    for (const int id : op.gradients)
      if (id >= 0) text += "; gradient of " + params_[id].name;
    if (op.cause == Cause::kRecompute || op.cause == Cause::kAgain) text += "  [recomputation]";
    return text;
  }

  std::string described(ValueId id, const Op& op) const {
    const Value& v = value(id);
    const Addresses::Place& place = program_.addresses().values[static_cast<size_t>(id)];
    std::string text = fmt::format("{} {} {}", v.name, name(v.dtype), v.shape.to_string());
    if (v.placement != Placement::kWhole) text += fmt::format(" {}", text_of(v.placement));
    text += fmt::format(" at {} {}", place.is_in_slot ? "slot" : "scratch", place.offset);
    if (op.cause == Cause::kForward && program_.is_intact(id) && !kept_for_[static_cast<size_t>(id)].empty())
      text += fmt::format(", kept for {}", kept_for_[static_cast<size_t>(id)]);
    return text;
  }

  const Value& value(ValueId id) const { return program_.values()[static_cast<size_t>(id)]; }

  static const std::regex kNumbers;
  const Program& program_;
  const ParamList& params_;
  std::vector<std::string> kept_for_;  // by value: the first operation of backward that reads it
  std::string text_;
};

const std::regex ProgramText::kNumbers("blocks\\.[0-9]+|(slot|scratch|unit) [0-9]+");

}  // namespace

std::string program_text(const Program& program, const ParamList& params) {
  return ProgramText(program, params).run();
}

}  // namespace ingot
