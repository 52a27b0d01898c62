"""Prints the sample starts that sampler_test.cpp expects: the sampler's rules written again, without NumPy."""

MASK = 0xFFFFFFFF


def philox4x32(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & MASK, (p0 >> 32) ^ c[3] ^ k[1], p0 & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


def words(seed, stream, step, block, shuffle=3):
    return philox4x32([block & MASK, block >> 32, step & MASK, (shuffle << 24) ^ stream], [seed & MASK, seed >> 32])


def uniform(w, n):
    return ((w[0] | w[1] << 32) * n) >> 64


def random_start(seed, tokens, context, i):
    return uniform(words(seed, 0, 0, i), tokens - context)


def epoch_start(seed, tokens, context, i):
    windows = max(1, (tokens - 1) // context - 1)
    epoch, w = divmod(i, windows)
    half = (windows - 1).bit_length() // 2 + (windows - 1).bit_length() % 2
    while True:
        left, right = w >> half, w & ((1 << half) - 1)
        for r in range(6):
            left, right = right, left ^ (words(seed, 2, epoch, r << 56 | right)[0] & ((1 << half) - 1))
        w = left << half | right
        if w < windows:
            break
    return uniform(words(seed, 1, epoch, 0), tokens - windows * context) + w * context


for i in (0, 1, 1_000_000_007):
    print(random_start(1337, 1_003_854, 64, i), epoch_start(1337, 1_003_854, 64, i))
