// Reads memory and does nothing with it: the floor of anything that must read as much. Every thread has eight loads of 16 bytes
// under way.
#include "bits.cuh"

#define UNDER_WAY 8

extern "C" __global__ void __launch_bounds__(512, 2) read(const uint4 *from, u64 count, u32 *never) {
    const u64 threads = (u64)gridDim.x * blockDim.x;
    u32 sum = 0;
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += threads * UNDER_WAY) {
        uint4 words[UNDER_WAY];
#pragma unroll
        for (int i = 0; i < UNDER_WAY; i++) words[i] = at + i * threads < count ? __ldcs(from + at + i * threads) : uint4{0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < UNDER_WAY; i++) sum ^= words[i].x ^ words[i].y ^ words[i].z ^ words[i].w;
    }
    if (sum == 0x12345678u) *never = sum;
}
