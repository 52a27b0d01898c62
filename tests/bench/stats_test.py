#!/usr/bin/env python3
"""Tests bench/stats.py against tables and known distributions. Nothing is timed: figures are drawn from fixed seeds."""
import math
import pathlib
import random
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import stats  # noqa: E402
from stats import HOLDS, IN_PART, NOT_TOLD_APART, REFUTED, Interval  # noqa: E402

TRIALS = 1000
SEEDS = range(8)


def at_most(probability):
    """Returns what a count of TRIALS exceeds in one case of 30,000 (four standard deviations)."""
    return TRIALS * probability + 4 * math.sqrt(TRIALS * probability * (1 - probability))


def at_least(probability):
    return TRIALS - at_most(1 - probability)


def arms(generator, effect, of_seed=0.05, noise=0.01):
    """Returns two arms of 8 seeds. The scatter of the seeds is common to both, as with equal data and weights."""
    common = {seed: 4 + generator.gauss(0, of_seed) for seed in SEEDS}
    return ({seed: x + generator.gauss(0, noise) for seed, x in common.items()},
            {seed: x + effect + generator.gauss(0, noise) for seed, x in common.items()})


def count(seed, judge, **drawn):
    """Returns how often judge(a, b) has each value in TRIALS draws."""
    generator = random.Random(seed)
    found = [judge(*arms(generator, **drawn)) for _ in range(TRIALS)]
    return {value: found.count(value) for value in set(found)}


class StudentsT(unittest.TestCase):
    def test_quantiles_are_those_of_the_tables(self):
        for freedom, quantile in ((1, 12.7062), (2, 4.3027), (4, 2.7764), (7, 2.3646), (30, 2.0423), (1000, 1.9623)):
            self.assertAlmostEqual(stats.t_quantile(0.975, freedom), quantile, places=4)
        self.assertAlmostEqual(stats.t_quantile(0.95, 7), 1.8946, places=4)

    def test_one_degree_of_freedom_is_cauchys_distribution(self):
        for t in (-30.0, -1.0, -0.1, 0.0, 0.5, 2.0, 100.0):
            self.assertAlmostEqual(stats.t_probability(t, 1), 0.5 + math.atan(t) / math.pi, places=12)


class Intervals(unittest.TestCase):
    def test_ranks_are_those_of_the_tables_of_the_sign_test(self):
        # The critical values of the two-sided sign test at 5 %, plus one (Conover, Practical Nonparametric Statistics).
        table = {5: 0, 6: 1, 8: 1, 9: 2, 11: 2, 12: 3, 15: 4, 17: 5, 20: 6, 25: 8, 30: 10}
        self.assertEqual({n: stats.interval_rank(n) for n in table}, table)

    def test_median_interval_is_of_order_statistics(self):
        self.assertEqual(stats.median_interval([9, 1, 8, 2, 7, 3, 6, 4, 5]), Interval(5, 2, 8))
        self.assertEqual(stats.median_interval([6, 5, 4, 3, 2, 1]), Interval(3.5, 1, 6))

    def test_too_few_rounds_have_no_interval_of_the_median(self):
        with self.assertRaisesRegex(ValueError, "at least 6 values, got 5"):
            stats.median_interval([1.0] * 5)

    def test_median_interval_misses_the_median_in_at_most_5_percent(self):
        generator = random.Random(1)
        for rounds in (6, 9, 12, 20):
            misses = 0
            for _ in range(TRIALS):
                found = stats.median_interval([generator.expovariate(1) for _ in range(rounds)])
                misses += not found.low <= math.log(2) <= found.high
            self.assertLess(misses, at_most(0.05))

    def test_mean_interval_misses_the_mean_in_5_percent(self):
        generator = random.Random(2)
        for seeds in (3, 5, 8):
            misses = 0
            for _ in range(TRIALS):
                found = stats.mean_interval([generator.gauss(7, 2) for _ in range(seeds)])
                misses += not found.low <= 7 <= found.high
            self.assertLess(misses, at_most(0.05))
            self.assertGreater(misses, at_least(0.05))

    def test_bootstrap_of_a_mean_equals_the_interval_of_its_normal_distribution(self):
        generator = random.Random(3)
        values = [generator.gauss(0, 1) for _ in range(400)]
        found, exact = stats.bootstrap(values), stats.mean_interval(values)
        self.assertEqual(found.value, exact.value)
        self.assertAlmostEqual(found.low, exact.low, delta=0.01)  # a tenth of the half width, which is 0.1
        self.assertAlmostEqual(found.high, exact.high, delta=0.01)
        self.assertEqual(found, stats.bootstrap(values))

    def test_figures_that_are_no_numbers_count_as_infinite(self):
        self.assertEqual(stats.mean_interval([math.nan, 1.0, math.nan]), Interval(math.inf, 1.0, math.inf))

    def test_one_seed_tells_nothing(self):
        self.assertEqual(stats.mean_interval([3.0]), Interval(3.0, -math.inf, math.inf))
        self.assertEqual(stats.told_apart(stats.mean_interval([3.0])), NOT_TOLD_APART)


class Paired(unittest.TestCase):
    def test_equal_arms_are_told_apart_in_5_percent(self):
        found = count(4, lambda a, b: stats.told_apart(stats.paired(a, b)), effect=0)
        apart = TRIALS - found[NOT_TOLD_APART]
        self.assertLess(apart, at_most(0.05))
        self.assertGreater(apart, at_least(0.05))

    def test_pairs_find_an_effect_that_the_scatter_of_seeds_hides(self):
        found = count(5, lambda a, b: stats.told_apart(stats.paired(a, b)), effect=-0.03)
        self.assertGreater(found["lower"], 0.95 * TRIALS)
        unpaired = count(5, lambda a, b: stats.told_apart(
            stats.paired(a, dict(zip(SEEDS, [*list(b.values())[3:], *list(b.values())[:3]])))), effect=-0.03)
        self.assertLess(unpaired["lower"], 0.5 * TRIALS)

    def test_pairs_need_equal_seeds(self):
        with self.assertRaisesRegex(ValueError, r"equal seeds, got \[1\] and \[2\]"):
            stats.paired({1: 0.0}, {2: 0.0})

    def test_a_diverged_arm_is_worse_than_every_number(self):
        good, bad = {s: 4.0 for s in SEEDS}, {s: math.nan for s in SEEDS}
        self.assertEqual(stats.paired(good, bad), Interval(math.inf, math.inf, math.inf))
        self.assertEqual(stats.paired(bad, bad), Interval(0, 0, 0))
        self.assertEqual(stats.told_apart(stats.paired(bad, good)), "lower")

    def test_one_diverged_seed_of_eight_does_not_decide(self):
        good = {s: 4.0 + 0.001 * s for s in SEEDS}
        bad = {**good, 3: math.inf}
        self.assertEqual(stats.told_apart(stats.paired(good, bad)), NOT_TOLD_APART)


class Times(unittest.TestCase):
    @staticmethod
    def rounds(generator, change, null=0.0, noise=0.02, count=15):
        base = [math.exp(generator.gauss(0, 0.1)) for _ in range(count)]  # a machine that is alternately fast and slow
        return [base, *([x * (1 + d) * math.exp(generator.gauss(0, noise)) for x in base] for d in (change, null))]

    def test_an_arm_like_the_null_arm_is_told_apart_in_at_most_5_percent(self):
        generator = random.Random(6)
        found = [stats.told_apart(stats.change_of_time(*self.rounds(generator, 0))) for _ in range(TRIALS)]
        self.assertLess(TRIALS - found.count(NOT_TOLD_APART), at_most(0.05))

    def test_a_change_of_ten_percent_is_found(self):
        generator = random.Random(7)
        found = [stats.told_apart(stats.change_of_time(*self.rounds(generator, 0.1))) for _ in range(TRIALS)]
        self.assertGreater(found.count("higher"), 0.95 * TRIALS)

    def test_a_disturbed_null_arm_hides_a_change_of_its_size(self):
        generator = random.Random(8)
        found = [stats.told_apart(stats.change_of_time(*self.rounds(generator, 0.1, null=0.1))) for _ in range(TRIALS)]
        self.assertGreater(found.count(NOT_TOLD_APART), 0.5 * TRIALS)


class Verdicts(unittest.TestCase):
    def better(self, a, b):
        return stats.exceeds(-stats.paired(a, b), 0.03)

    def as_good(self, a, b):
        return stats.is_below(stats.paired(a, b, confidence=0.9), 0.03)

    def equal(self, a, b):
        return stats.is_within(stats.paired(a, b, confidence=0.9), -0.03, 0.03)

    def test_a_better_arm_is_better(self):
        self.assertGreater(count(9, self.better, effect=-0.06)[HOLDS], 0.95 * TRIALS)

    def test_an_equal_arm_is_not_better(self):
        found = count(10, self.better, effect=0)
        self.assertLess(found.get(HOLDS, 0), at_most(0.025))
        self.assertGreater(found[REFUTED], 0.95 * TRIALS)

    def test_a_certain_effect_below_the_smallest_that_counts_does_not_hold(self):
        self.assertEqual(stats.exceeds(Interval(0.02, 0.01, 0.025), 0.03), REFUTED)
        self.assertEqual(stats.exceeds(Interval(0.02, 0.01, 0.04), 0.03), NOT_TOLD_APART)

    def test_noise_leaves_a_claim_undecided(self):
        found = count(11, self.better, effect=0, noise=0.1)
        self.assertGreater(found[NOT_TOLD_APART], 0.8 * TRIALS)

    def test_an_arm_that_is_worse_by_the_margin_passes_in_5_percent(self):
        for judge in (self.as_good, self.equal):
            found = count(12, judge, effect=0.03)
            self.assertLess(found[HOLDS], at_most(0.05))
            self.assertGreater(found[HOLDS], at_least(0.05))
            self.assertGreater(count(13, judge, effect=0)[HOLDS], 0.95 * TRIALS)
            self.assertGreater(count(14, judge, effect=0.1)[REFUTED], 0.95 * TRIALS)

    def test_a_better_arm_is_as_good_but_not_equal(self):
        self.assertGreater(count(15, self.as_good, effect=-0.1)[HOLDS], 0.95 * TRIALS)
        self.assertGreater(count(16, self.equal, effect=-0.1)[REFUTED], 0.95 * TRIALS)

    def test_four_diverging_arms_refute_that_they_train_well(self):
        good, bad = {s: 4.0 + 0.01 * s for s in SEEDS}, {s: math.inf for s in SEEDS}
        for judge in (self.as_good, self.equal, self.better):
            self.assertEqual(stats.together([judge(good, bad)] * 4), REFUTED)

    def test_a_claim_of_several_parts_holds_only_if_all_do(self):
        self.assertEqual(stats.together([HOLDS, HOLDS]), HOLDS)
        self.assertEqual(stats.together([HOLDS, REFUTED]), IN_PART)
        self.assertEqual(stats.together([HOLDS, NOT_TOLD_APART]), IN_PART)
        self.assertEqual(stats.together([REFUTED, NOT_TOLD_APART]), REFUTED)
        self.assertEqual(stats.together([NOT_TOLD_APART, NOT_TOLD_APART]), NOT_TOLD_APART)


if __name__ == "__main__":
    unittest.main()
