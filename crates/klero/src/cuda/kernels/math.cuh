// The exponential and the logarithms that decide: the fixed sequences of IEEE operations of the library's `math`, so that a
// draw on the card and one on the CPU agree to the bit.
#pragma once
#include "bits.cuh"

// e^y for y <= 0, bit-equal to the library's exp where the result is at least 2^-115, else some number at most that small: the
// sums that it is used in begin with a term of 1, beside which such numbers vanish.
__device__ __forceinline__ float exp_term(float y) {
    const float magic = 12582912.0f;
    y = fmaxf(y, -80.0f);
    const float shifted = fmaf(y, 1.44269504f, magic);
    const float n = shifted - magic;
    const float r = fmaf(n, -1.4286068e-6f, fmaf(n, -0.69314575f, y));
    float p = fmaf(r, 1.3926376e-3f, 8.3633335e-3f);
    p = fmaf(r, p, 0.041666552f);
    p = fmaf(r, p, 0.16666576f);
    p = fmaf(r, p, 0.5f);
    const float fraction = fmaf(r * r, p, r) + 1.0f;
    // The low mantissa bits of `shifted` hold n; adding them to the exponent multiplies by 2^n.
    return __uint_as_float(__float_as_uint(fraction) + (__float_as_uint(shifted) << 23));
}

// 2 artanh(s) for |s| <= 1/3: sixteen terms of the series.
__device__ __forceinline__ double twice_artanh(double s) {
    const double square = s * s;
    double sum = 0.0;
#pragma unroll
    for (int k = 16; k >= 1; k--) sum = square * (sum + 1.0 / (double)(2 * k + 1));
    return fma(2.0 * s, sum, 2.0 * s);
}

// ln x for positive normal x.
__device__ __forceinline__ double ln(double x) {
    const long long bits = __double_as_longlong(x) + (0x3ff0000000000000ll - 0x3fe6a09e667f3bcdll);
    const double k = (double)((int)(bits >> 52) - 1023);
    const double m = __longlong_as_double((bits & 0x000fffffffffffffll) + 0x3fe6a09e667f3bcdll);
    const double s = (m - 1.0) / (m + 1.0);
    return fma(k, __longlong_as_double(0x3fe62e42fee00000ll), fma(k, 1.9082149292705877e-10, twice_artanh(s)));
}

// ln(1 + v) for -1/2 <= v <= 0.
__device__ __forceinline__ double ln_1p(double v) { return twice_artanh(v / (2.0 + v)); }
