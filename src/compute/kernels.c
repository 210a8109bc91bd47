#include "compute/kernels.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

const char *const storage_names[STORAGE_COUNT + 1] = {
    [STORAGE_F32] = "f32",   [STORAGE_F16] = "f16",   [STORAGE_BF16] = "bf16",
    [STORAGE_Q8_0] = "q8_0", [STORAGE_Q4_0] = "q4_0",
};

const char *storage_name(enum storage s)
{
    assert((unsigned)s < STORAGE_COUNT);
    return storage_names[s];
}

uint64_t storage_bytes(enum storage s, uint64_t n)
{
    const uint64_t blocks = (n + QUANT_BLOCK - 1) / QUANT_BLOCK;
    assert((unsigned)s < STORAGE_COUNT);
    return n * storage_block_bytes(s) / QUANT_BLOCK +
           (storage_is_quantised(s) ? blocks * sizeof(uint16_t) : 0);
}

size_t matrix_panel_bytes(int n_in, enum storage s)
{
    const size_t elements = (size_t)n_in * KERNEL_LANES, block = storage_block_bytes(s);
    assert((unsigned)s < STORAGE_COUNT && n_in >= 1);
    if (storage_is_quantised(s))
        return matrix_scales_bytes(n_in) + elements / QUANT_BLOCK * block;
    return elements * (block / QUANT_BLOCK);
}

uint64_t matrix_bytes(int n_out, int n_in, enum storage s)
{
    return (uint64_t)matrix_panels(n_out) * matrix_panel_bytes(n_in, s);
}

bool ffn_is_gated(enum ffn_kind kind)
{
    assert((unsigned)kind < FFN_KINDS);
    return kind == FFN_SWIGLU;
}

enum epilogue ffn_epilogue(enum ffn_kind kind)
{
    static const enum epilogue epilogues[FFN_KINDS] = {[FFN_GELU] = EPILOGUE_GELU,
                                                       [FFN_GELU_ERF] = EPILOGUE_GELU_ERF,
                                                       [FFN_RELU] = EPILOGUE_RELU,
                                                       [FFN_SWIGLU] = EPILOGUE_SILU};
    assert((unsigned)kind < FFN_KINDS);
    return epilogues[kind];
}

/* Slowest first. */
static const struct kernels *const tables[] = {
    &kernels_scalar,
#if defined(__x86_64__) || defined(__i386__)
    &kernels_avx2,
    &kernels_avx512_base,
    &kernels_avx512,
#elif defined(__aarch64__)
    &kernels_neon_base,
    &kernels_neon,
#endif
};
#define N_TABLES ((int)(sizeof tables / sizeof tables[0]))

const struct kernels *kernels_at(int i)
{
    assert(i >= 0);
    return i < N_TABLES ? tables[i] : NULL;
}

bool kernels_supported(const struct kernels *k)
{
#if defined(__x86_64__) || defined(__i386__)
    /* These ask the operating system too (xgetbv), not only the processor. Every processor with
     * AVX2 and FMA has F16C, which not every compiler can ask for. */
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512vl");
    return k == &kernels_scalar || (k == &kernels_avx2 && avx2) ||
           (k == &kernels_avx512_base && avx512) ||
           (k == &kernels_avx512 && avx512 && __builtin_cpu_supports("avx512vnni"));
#elif defined(__aarch64__) && defined(__linux__)
    return k != &kernels_neon || (getauxval(AT_HWCAP) & HWCAP_ASIMDDP); /* else the baseline */
#else
    return k != tables[N_TABLES - 1] || N_TABLES == 1;
#endif
}

enum status kernels_choose(const char *name, const struct kernels **out, struct err *e)
{
    const size_t len = name ? strlen(name) : 0;
    char choices[128] = "";
    size_t used = 0;
    *out = NULL;
    for (int i = 0; kernels_at(i); i++) {
        const struct kernels *k = kernels_at(i);
        if (!kernels_supported(k))
            continue;
        if (used < sizeof choices)
            used +=
                snprintf(choices + used, sizeof choices - used, "%s%s", used ? ", " : "", k->name);
        /* "avx512" asks for "avx512-base" too. */
        if (!name || (strncmp(k->name, name, len) == 0 &&
                      (k->name[len] == '\0' || (len > 0 && k->name[len] == '-'))))
            *out = k;
    }
    return *out ? STATUS_OK
                : err_set(e, STATUS_USAGE, "instruction set \"%.40s\": expected one of %s", name,
                          choices);
}
