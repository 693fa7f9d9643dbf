// wgmma: D[64, N] += A[64, 16] B[N, 16]^T, both operands in shared memory, f32 sums in registers.
#pragma once
#include "bits.cuh"

#if HALF
#define WGMMA_TYPES "f32.f16.f16"
#else
#define WGMMA_TYPES "f32.bf16.bf16"
#endif

#define D8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define D32(i) D8(i), D8(i + 8), D8(i + 16), D8(i + 24)
#define R32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define R64 R32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define R96 R64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"

template <int N>
struct Wgmma;

// `keep` 0: the sums start anew.
#define WGMMA(N, NAMES, A, B, P, ...) \
    template <> \
    struct Wgmma<N> { \
        template <int COUNT> \
        static __device__ __forceinline__ void run(float (&d)[COUNT], u64 a, u64 b, int keep) { \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #P ", 0;\n" \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16." WGMMA_TYPES " {" NAMES "}, %" #A ", %" #B \
                         ", p, 1, 1, 0, 0;\n}\n" \
                         : __VA_ARGS__ \
                         : "l"(a), "l"(b), "r"(keep)); \
        } \
    };

WGMMA(64, R32, 32, 33, 34, D32(0))
WGMMA(128, R64, 64, 65, 66, D32(0), D32(32))
WGMMA(192, R96, 96, 97, 98, D32(0), D32(32), D32(64))
