// Number types and moves between their bits. Every kernel is compiled without contraction and with denormals, so that what is
// written as a product and a sum is one, and an fma is where fmaf stands.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define INFINITE __int_as_float(0x7f800000)

// Approximations: only where a margin covers them.
__device__ __forceinline__ float log2_approx(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
