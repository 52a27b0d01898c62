// OffsetIndex finds the lines of a long file that belong to a range of x.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace ingot {

// Holds x and offset of one line in every so many bytes. REQUIRES: x never falls.
class OffsetIndex {
 public:
  void add(double x, uint64_t offset);
  // Returns the offset of a line at or before the first one whose x is at least `x`; 0 if there is none.
  uint64_t offset_before(double x) const;
  // Returns the offset of a line after the last one whose x is at most `x`; nullopt if it is not in the
  // index.
  std::optional<uint64_t> offset_after(double x) const;

 private:
  struct Entry {
    double x;
    uint64_t offset;
  };
  uint64_t stride_bytes_ = uint64_t{1} << 14;
  std::vector<Entry> entries_;
};

}  // namespace ingot
