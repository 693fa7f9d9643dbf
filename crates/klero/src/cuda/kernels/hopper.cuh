// The instructions of sm_90 that the compiler has no names for: barriers in shared memory, the bulk tensor copy, wgmma's fences.
#pragma once
#include "bits.cuh"

__device__ __forceinline__ u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void barrier_init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

__device__ __forceinline__ void barrier_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives at the barrier of the same place in another CTA of the cluster.
__device__ __forceinline__ void barrier_arrive_at(u32 barrier, u32 cta) {
    asm volatile(
        "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [there];\n}\n" ::"r"(barrier), "r"(cta)
        : "memory");
}

__device__ __forceinline__ void barrier_wait(u32 barrier, u32 phase) {
    asm volatile(
        "{\n.reg .pred p;\nWAIT_%=:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE_%=;\nbra WAIT_%=;\n"
        "DONE_%=:\n}\n" ::"r"(barrier), "r"(phase)
        : "memory");
}

// What stays in L2: the weights take what is free, the hidden states are read by every CTA.
__device__ __forceinline__ u64 policy_unchanged() {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_unchanged.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

__device__ __forceinline__ u64 policy_last() {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// A box of the five-dimensional view of the weights, to this CTA or to all of `mask`.
__device__ __forceinline__ void copy_weights(u32 to, const void *map, int k, int block, u32 barrier, u64 policy) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%2, %3, %3, %3, %4}], [%5], %6;" ::"r"(to), "l"(map), "r"(k), "r"(0), "r"(block), "r"(barrier), "l"(policy)
        : "memory");
}

__device__ __forceinline__ void copy_weights_to(u32 to, const void *map, int k, int block, u32 barrier, u64 policy, u16 mask) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
        "[%0], [%1, {%2, %3, %3, %3, %4}], [%5], %6, %7;" ::"r"(to), "l"(map), "r"(k), "r"(0), "r"(block), "r"(barrier), "h"(mask), "l"(policy)
        : "memory");
}

__device__ __forceinline__ void copy_hidden(u32 to, const void *map, int k, int row, u32 barrier, u64 policy) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to), "l"(map), "r"(k), "r"(row), "r"(barrier), "l"(policy)
        : "memory");
}

__device__ __forceinline__ void prefetch_map(const void *map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

// Keeps the compiler from moving the sums across a fence or a wait.
template <int COUNT>
__device__ __forceinline__ void pin(float (&d)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(d[i])::"memory");
}

// An operand of rows of 64 numbers (128 bytes), swizzled by 128 bytes, eights of rows 1024 bytes apart.
__device__ __forceinline__ u64 operand(u32 address) { return 1ull << 62 | 64ull << 32 | 1ull << 16 | (address & 0x3ffff) >> 4; }

__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

__device__ __forceinline__ u32 cluster_rank() {
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
