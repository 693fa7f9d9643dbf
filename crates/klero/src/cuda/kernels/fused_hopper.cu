// The fused head for sm_90: hidden states times weights on the tensor cores, tile by tile, each tile drawn from in registers.
//
// A persistent grid: every worker (a CTA, or a cluster of two) takes an even share of the blocks of 64 ids and walks it in tiles.
// One warp keeps a ring of stages full by bulk copies; two warpgroups multiply and draw. A stage is 64 of the D numbers, of the
// tile's weight rows and of the hidden states. While a tile is drawn from, the ring fills for the next.
//
// The two warpgroups share the work by ids (up to 64 rows: SPLIT_ROWS 0) or by rows (up to 128; a cluster of two, 256).
// Weight rows are permuted by the copy: column 8 j + 2 c + e of a block of 64 holds id 16 c + 2 j + e, so that the sums of one
// thread are sixteen ids in a row.
//
// Every sum runs over k = 0, 16, 32, ... in one order, whatever the tile, so a logit's bits do not depend on the batch.
#include "draw.cuh"
#include "hopper.cuh"
#include "wgmma.cuh"

#define CONSUMERS 8 // warps
#define COLUMN_BLOCKS (IDS / BLOCK)
#define TILE_BLOCKS (COLUMN_BLOCKS * (SPLIT_ROWS ? 1 : 2))
#define WEIGHT_BYTES (TILE_BLOCKS * BLOCK * 128)
#define STAGE_BYTES (WEIGHT_BYTES + HIDDEN_ROWS * 128)
#define GROUP_ROWS (SPLIT_ROWS ? 128 : 64) // rows of a CTA

struct Maps {
    alignas(64) char whole[128]; // boxes of a warpgroup's blocks (in a cluster, half of them)
    alignas(64) char single[128]; // boxes of one block
    alignas(64) char tail[128];  // the last, partial block
    alignas(64) char hidden[128];
};

// By ids both warpgroups hold all rows; by rows each holds its own.
struct Shared {
    Racers<2, 64> racers;
    u64 full[STAGES], empty[STAGES];
};

typedef Share<TILE_BLOCKS> Tiles;

struct Ring {
    u32 full, empty, stage, phase;
    __device__ void next() {
        if (++stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
    }
};

__device__ __forceinline__ void produce_blocks(const Maps &maps, const Shape &shape, u32 to, int k, u32 from, u32 end, u32 barrier, u64 policy) {
    constexpr u32 WHOLE = COLUMN_BLOCKS < CLUSTER ? 1 : COLUMN_BLOCKS / CLUSTER;
    while (from < end) {
        const bool whole = end - from >= WHOLE && from + WHOLE <= shape.full;
        const void *map = whole ? maps.whole : from < shape.full ? maps.single : maps.tail;
        const int at = from < shape.full ? from : 0;
#if CLUSTER == 2
        copy_weights_to(to, map, k, at, barrier, policy, 3);
#else
        copy_weights(to, map, k, at, barrier, policy);
#endif
        const u32 step = whole ? WHOLE : 1;
        from += step;
        to += step * BLOCK * 128;
    }
}

__device__ __forceinline__ void produce(const Maps &maps, const Shape &shape, const Tiles &share, Ring ring, u32 stages, u32 rank) {
    const u64 weights = policy_unchanged(), hidden = policy_last();
    for (u32 tile = 0; tile < share.tiles(); tile++) {
        const u32 from = share.start(tile), to = share.start(tile + 1), count = to - from;
        for (u32 kb = 0; kb < shape.depth; kb++, ring.next()) {
            barrier_wait(ring.empty + 8 * ring.stage, ring.phase ^ 1);
            const u32 barrier = ring.full + 8 * ring.stage, base = stages + ring.stage * STAGE_BYTES;
            barrier_expect(barrier, count * BLOCK * 128 + HIDDEN_ROWS * 128);
            copy_hidden(base + WEIGHT_BYTES, maps.hidden, kb * 64, rank * GROUP_ROWS, barrier, hidden);
            // Each CTA of a cluster brings its part to both.
            const u32 mine = count * rank / CLUSTER, end = count * (rank + 1) / CLUSTER;
            produce_blocks(maps, shape, base + mine * BLOCK * 128, kb * 64, from + mine, from + end, barrier, weights);
        }
    }
}

// A warp of the consumers: it multiplies with its warpgroup, and draws from its sixteen rows.
struct Consumer {
    Drawer<2, 64> drawer;
    Ring ring;
    u32 lane;
    u64 weights, hidden; // operands of stage 0

    __device__ __forceinline__ void release(u32 stage) const {
#if CLUSTER == 2
        if (lane < 2) barrier_arrive_at(ring.empty + 8 * stage, lane);
#else
        if (lane == 0) barrier_arrive(ring.empty + 8 * stage);
#endif
    }

    template <int N>
    __device__ __forceinline__ void multiply(float (&acc)[IDS / 2], u32 depth) {
        u32 last = 0;
#pragma unroll 1
        for (u32 kb = 0; kb < depth; kb++) {
            barrier_wait(ring.full + 8 * ring.stage, ring.phase);
            const u64 a = hidden + (u64)(ring.stage * (STAGE_BYTES / 16)), b = weights + (u64)(ring.stage * (STAGE_BYTES / 16));
            pin(acc);
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < 4; k++) Wgmma<N>::run(acc, a + 2 * k, b + 2 * k, k ? 1 : kb > 0);
            wgmma_commit();
            wgmma_wait<1>();
            if (kb > 0) release(last);
            last = ring.stage;
            ring.next();
        }
        drawer.look();
        wgmma_wait<0>();
        pin(acc);
        release(last);
    }
};

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(384, 1)
    fused_head(const __grid_constant__ Maps maps, const __grid_constant__ Params p, const Shape shape) {
    extern __shared__ __align__(1024) char memory[];
    const u32 stages = shared_address(memory);
    Shared &shared = *(Shared *)(memory + STAGES * STAGE_BYTES);
    const u32 warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    const u32 rank = CLUSTER == 2 ? cluster_rank() : 0, worker = blockIdx.x / CLUSTER;
    const Tiles share(shape, worker);
    Ring ring{shared_address(shared.full), shared_address(shared.empty), 0, 0};

    if (threadIdx.x == 0) {
        for (u32 i = 0; i < STAGES; i++) {
            barrier_init(ring.full + 8 * i, 1);
            barrier_init(ring.empty + 8 * i, CONSUMERS * CLUSTER);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    set_up(p, shared.racers, rank * GROUP_ROWS, SPLIT_ROWS ? 64 : 0);
    __syncthreads();
    if (CLUSTER == 2) cluster_sync();

    if (warp >= CONSUMERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (warp == CONSUMERS && lane == 0) {
            prefetch_map(maps.whole);
            prefetch_map(maps.hidden);
            produce(maps, shape, share, ring, stages, rank);
        }
        __syncwarp();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const u32 group = warp / 4, place = warp % 4 * 16, row = rank * GROUP_ROWS + (SPLIT_ROWS ? group * 64 : 0) + place;
        Consumer me{Drawer<2, 64>(p, shared.racers, group, row, place, lane), ring, lane};
        me.weights = operand(stages + (SPLIT_ROWS ? 0 : group * COLUMN_BLOCKS * BLOCK * 128));
        me.hidden = operand(stages + WEIGHT_BYTES + (SPLIT_ROWS ? group * 64 * 128 : 0));
#pragma unroll 1
        for (u32 tile = 0; tile < share.tiles(); tile++) {
            float acc[IDS / 2];
            const u32 from = share.start(tile), all = share.start(tile + 1) - from;
            const u32 skip = SPLIT_ROWS ? 0 : min(group * COLUMN_BLOCKS, all), count = min(all - skip, (u32)COLUMN_BLOCKS);
            // A share's last tile may be narrow.
#if IDS == 192
            if (count == 1) me.multiply<64>(acc, shape.depth);
            else if (count == 2) me.multiply<128>(acc, shape.depth);
            else me.multiply<IDS>(acc, shape.depth);
#else
            me.multiply<IDS>(acc, shape.depth);
#endif
            if (row < p.rows && count > 0) me.drawer.draw(acc, from + skip, count);
        }
        me.drawer.leave(SPLIT_ROWS ? worker : 2 * worker + group);
    }
    if (CLUSTER == 2) cluster_sync();
}
