// Durations that no double holds and dates that no calendar has are refused. parse_duration_s() returned
// infinity for the first; parse_utc() took "2026-02-30" for the 2nd of March and ignored what followed a NUL.
#include <gtest/gtest.h>

#include <string>

#include "ingot/config/config_units.h"
#include "ingot/run/record/utc_time.h"

namespace ingot {
namespace {

TEST(ImpossibleTimes, DurationsBeyondTheLargestDoubleAreRefused) {
  const std::string largest = "1" + std::string(308, '0');
  EXPECT_EQ(parse_duration_s(largest + "s"), 1e308);
  EXPECT_EQ(parse_duration_s(largest + "d"), std::nullopt);
  EXPECT_EQ(parse_duration_s(largest + "h" + largest + "m"), std::nullopt);
}

TEST(ImpossibleTimes, DatesThatNoCalendarHasAreRefused) {
  EXPECT_EQ(parse_utc("2026-03-02T00:00:00Z"), 1772409600);
  for (const std::string text : {"2026-02-30T00:00:00Z", "2026-03-02T00:00:61Z", "2026-3-2T0:0:0Z",
                                 "2026-03-02T 00:00:00Z", "9999-12-31T23:59:61Z"})
    EXPECT_EQ(parse_utc(text), std::nullopt) << text;
  EXPECT_EQ(parse_utc(std::string("2026-03-02T00:00:00Z\0x", 22)), std::nullopt);
}

}  // namespace
}  // namespace ingot
