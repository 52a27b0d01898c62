"""Decides whether measured arms differ: paired intervals, equivalence, medians of alternating rounds, and verdicts.

An arm's figures are one number per seed (or per round); two arms are compared pair by pair. An interval has a
confidence of 95 % unless its caller says otherwise. Runs that diverge have the figure infinity and count as worse than
every number. All functions need Python's standard library only, and no global random state.

A claim's verdict follows from the interval of one figure and from the smallest effect that counts, which is stated
before the run:
  holds            the interval excludes what contradicts the claim
  refuted          it excludes what the claim says
  not told apart   it excludes neither
"""
import dataclasses
import functools
import math
import random
import statistics

HOLDS, IN_PART, REFUTED, NOT_TOLD_APART = "holds", "in part", "refuted", "not told apart"
CONFIDENCE = 0.95
LEAST_PAIRS = 2    # a t-interval needs a variance
LEAST_ROUNDS = 6   # the extremes of five values miss their median in 6 % of cases


@dataclasses.dataclass(frozen=True)
class Interval:
    value: float
    low: float
    high: float

    def __neg__(self):
        return Interval(-self.value, -self.high, -self.low)


def t_probability(t, freedom):
    """Returns P(T <= t) of Student's distribution, from the regularised incomplete beta function."""
    if math.isinf(t):
        return 1.0 if t > 0 else 0.0
    tail = 0.5 * incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))
    return 1 - tail if t > 0 else tail


def incomplete_beta(a, b, x):
    """Returns I_x(a, b), by the continued fraction of Lentz (Numerical Recipes, 6.4)."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(1 - x))
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 300):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d, c = 1 / (1 + even * d), 1 + even / c
        fraction *= d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d, c = 1 / (1 + odd * d), 1 + odd / c
        fraction *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return front * fraction / a


@functools.lru_cache
def t_quantile(probability, freedom):
    """Returns the t that P(T <= t) = probability has, for 0.5 <= probability < 1, by bisection."""
    low, high = 0.0, 1.0
    while t_probability(high, freedom) < probability:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if t_probability(middle, freedom) < probability else (low, middle)
    return high


def interval_rank(count, confidence=CONFIDENCE):
    """Returns the largest k for which the k-th smallest and the k-th largest of `count` values enclose the median of
    their distribution with at least this confidence (the inverse of the sign test); 0 if the values are too few."""
    below, rank = 0, 0
    while rank < count // 2:
        below += math.comb(count, rank)
        if 2 * below > (1 - confidence) * 2**count:
            break
        rank += 1
    return rank


def median_interval(values, confidence=CONFIDENCE):
    """Returns the median and its interval from order statistics, which assumes no distribution."""
    rank = interval_rank(len(values), confidence)
    if rank == 0:
        raise ValueError(f"an interval of the median needs at least {LEAST_ROUNDS} values, got {len(values)}")
    ordered = sorted(values)
    return Interval(statistics.median(ordered), ordered[rank - 1], ordered[-rank])


def mean_interval(values, confidence=CONFIDENCE):
    """Returns the mean and its t-interval. With values that are not finite, the median and the interval of the
    median take their place (the extremes, where the values are too few for one). One value has no end."""
    values = [math.inf if math.isnan(v) else v for v in values]
    if not all(math.isfinite(v) for v in values):
        if interval_rank(len(values), confidence):
            return median_interval(values, confidence)
        return Interval(sorted(values)[len(values) // 2], min(values), max(values))
    centre = statistics.fmean(values)
    if len(values) < LEAST_PAIRS:
        return Interval(centre, -math.inf, math.inf)
    half = t_quantile((1 + confidence) / 2, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(centre, centre - half, centre + half)


def pairs(a, b):
    """Returns b - a by seed for two {seed: figure} with equal seeds. An arm that diverged is infinitely far from one
    that did not, and equal to another that did."""
    if set(a) != set(b):
        raise ValueError(f"paired arms need equal seeds, got {sorted(a)} and {sorted(b)}")
    clean = [[math.inf if math.isnan(arm[seed]) else arm[seed] for seed in sorted(a)] for arm in (a, b)]
    return [0.0 if x == y else y - x for x, y in zip(*clean)]


def paired(a, b, confidence=CONFIDENCE):
    """Returns the mean of b - a over seeds, with its t-interval."""
    return mean_interval(pairs(a, b), confidence)


def bootstrap(values, figure=statistics.fmean, confidence=CONFIDENCE, rounds=4000, seed=1):
    """Returns figure(values) with the percentile interval of `rounds` samples with replacement. It suits figures
    without a t-interval; with fewer than about 10 values its interval is too short."""
    generator = random.Random(seed)
    drawn = sorted(figure(generator.choices(values, k=len(values))) for _ in range(rounds))
    skipped = int(rounds * (1 - confidence) / 2)
    return Interval(figure(values), drawn[skipped], drawn[-1 - skipped])


def change_of_time(base, arm, null):
    """Returns the median change arm / base - 1 over rounds in which base, arm and null had their turns, with its
    interval. null is base once more; the interval is widened by what null seems to change, so that a disturbance of the
    machine is not taken for an effect."""
    change = median_interval([y / x - 1 for x, y in zip(base, arm, strict=True)])
    seen = median_interval([y / x - 1 for x, y in zip(base, null, strict=True)])
    return Interval(change.value, change.low - abs(seen.value), change.high + abs(seen.value))


def told_apart(change):
    """Returns "lower", "higher" or "not told apart"; equal arms are told apart in 5 % of cases."""
    return "lower" if change.high < 0 else "higher" if change.low > 0 else NOT_TOLD_APART


def exceeds(figure, smallest):
    """The claim is that the figure is positive, by `smallest` at least. It holds if the interval excludes zero and
    the figure reaches `smallest`; it is refuted if the whole interval is below `smallest`."""
    if figure.low > 0 and figure.value >= smallest:
        return HOLDS
    return REFUTED if figure.high < smallest else NOT_TOLD_APART


def is_below(figure, largest):
    """The claim is that the figure stays below `largest`: arm b is as good as a if b - a does (non-inferiority). It
    holds if the whole interval does, and is refuted if the whole interval does not."""
    return HOLDS if figure.high < largest else REFUTED if figure.low >= largest else NOT_TOLD_APART


def is_within(figure, low, high):
    """The claim is that the figure lies in [low, high]: equivalence by two one-sided tests (TOST), if the caller's
    interval has a confidence of 90 %, which makes each of the tests one of 5 %."""
    if low <= figure.low and figure.high <= high:
        return HOLDS
    return REFUTED if figure.high < low or figure.low > high else NOT_TOLD_APART


def together(verdicts):
    """Returns the verdict of a claim that says all of its parts."""
    found = set(verdicts)
    if len(found) == 1:
        return found.pop()
    if found & {HOLDS, IN_PART}:
        return IN_PART
    return REFUTED  # one part at least is refuted, and none holds
