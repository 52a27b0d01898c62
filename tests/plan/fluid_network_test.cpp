#include "ingot/plan/fluid_network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace ingot {
namespace {

struct FlowCase {
  std::vector<double> capacities;
  std::vector<Loads> flows;
};

FlowCase random_case(std::mt19937& random) {
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  FlowCase c;
  const int resources = pick(1, 12), flows = pick(1, 15);
  for (int r = 0; r < resources; ++r) c.capacities.push_back(pick(1, 100));
  for (int f = 0; f < flows; ++f) {
    Loads loads;
    for (int r = 0; r < resources; ++r)
      if (pick(0, 3) == 0) loads.push_back({r, pick(1, 8) / 8.0});
    if (loads.empty()) loads.push_back({pick(0, resources - 1), 1});
    c.flows.push_back(loads);
  }
  return c;
}

bool fits(const FlowCase& c, const std::vector<double>& rates) {
  for (size_t r = 0; r < c.capacities.size(); ++r) {
    double used = 0;
    for (size_t f = 0; f < rates.size(); ++f)
      for (const Load& load : c.flows[f])
        if (load.resource == static_cast<int>(r)) used += load.weight * rates[f];
    if (used > c.capacities[r] * (1 + 1e-11)) return false;
  }
  return true;
}

// Finds max-min fair rates from the definition alone. All rates that can still rise do so together, to the
// level that bisection finds; a rate that cannot rise alone by a millionth stays.
std::vector<double> naive_rates(const FlowCase& c) {
  std::vector<double> rates(c.flows.size());
  std::vector<bool> is_fixed(rates.size());
  while (std::ranges::count(is_fixed, false) > 0) {
    double low = 0, high = 1000;
    const auto at_level = [&](double level) {
      std::vector<double> raised = rates;
      for (size_t f = 0; f < rates.size(); ++f)
        if (!is_fixed[f]) raised[f] = level;
      return raised;
    };
    for (int i = 0; i < 100; ++i) {
      const double middle = (low + high) / 2;
      (fits(c, at_level(middle)) ? low : high) = middle;
    }
    rates = at_level(low);
    for (size_t f = 0; f < rates.size(); ++f) {
      std::vector<double> raised = rates;
      raised[f] *= 1 + 1e-6;
      if (!is_fixed[f] && !fits(c, raised)) is_fixed[f] = true;
    }
  }
  return rates;
}

TEST(FluidNetwork, SharesAreMaxMinFair) {
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    const FlowCase c = random_case(random);
    FluidNetwork network(c.capacities);
    std::vector<int> numbers;
    for (const Loads& loads : c.flows) numbers.push_back(network.join(1, loads, 0));
    network.settle(0);
    const std::vector<double> wanted = naive_rates(c);
    for (size_t f = 0; f < numbers.size(); ++f)
      ASSERT_NEAR(network.bytes_per_s(numbers[f]), wanted[f], 1e-5 * wanted[f])
          << "case " << i << " flow " << f;
  }
}

TEST(FluidNetwork, SettlingOnlyWhatIsConnectedGivesTheSameRatesAsAllAtOnce) {
  std::mt19937 random(8);
  for (int i = 0; i < 200; ++i) {
    const FlowCase c = random_case(random);
    FluidNetwork step_by_step(c.capacities);
    std::vector<int> numbers;
    for (const Loads& loads : c.flows) {
      numbers.push_back(step_by_step.join(1e6, loads, 0));
      step_by_step.settle(0);
    }
    FlowCase rest{.capacities = c.capacities, .flows = {}};
    std::vector<int> kept;
    for (size_t f = 0; f < numbers.size(); ++f) {
      if (f % 2 == 1) {
        step_by_step.leave(numbers[f]);
        step_by_step.settle(0);
      } else {
        kept.push_back(numbers[f]);
        rest.flows.push_back(c.flows[f]);
      }
    }
    const std::vector<double> wanted = naive_rates(rest);
    for (size_t f = 0; f < kept.size(); ++f)
      ASSERT_NEAR(step_by_step.bytes_per_s(kept[f]), wanted[f], 1e-5 * wanted[f]);
  }
}

TEST(FluidNetwork, AChangeOfRateKeepsTheBytesThatAreLeft) {
  const std::vector<double> capacities = {10};
  const Loads loads = {{0, 1}};
  FluidNetwork network(capacities);
  const int first = network.join(100, loads, 0);
  ASSERT_EQ(network.settle(0).size(), 1u);
  const int second = network.join(10, loads, 4);  // 60 bytes of the first are left
  const auto shared = network.settle(4);
  ASSERT_EQ(shared.size(), 2u);
  EXPECT_EQ(shared[0].transfer, first);
  EXPECT_DOUBLE_EQ(shared[0].end_s, 4 + 60.0 / 5);
  EXPECT_DOUBLE_EQ(shared[1].end_s, 6);
  const uint32_t version = shared[0].version;
  network.leave(second);
  const auto alone = network.settle(6);  // 50 bytes are left
  ASSERT_EQ(alone.size(), 1u);
  EXPECT_DOUBLE_EQ(alone[0].end_s, 11);
  EXPECT_FALSE(network.is_current(first, version));
  EXPECT_TRUE(network.is_current(first, alone[0].version));
}

}  // namespace
}  // namespace ingot
