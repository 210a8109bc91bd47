#include "parts/kernels.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} storages[STORAGE_COUNT] = {
    [STORAGE_F32] = {"f32", 4},
    [STORAGE_F16] = {"f16", 2},
    [STORAGE_BF16] = {"bf16", 2},
};

size_t storage_bytes(enum storage s)
{
    return storages[s].bytes;
}

const char *storage_name(enum storage s)
{
    return storages[s].name;
}

/* Slowest first. */
static const struct kernels *const tables[] = {&kernels_scalar, &kernels_neon, &kernels_avx2,
                                               &kernels_avx512};
#define N_TABLES ((int)(sizeof tables / sizeof tables[0]))

const struct kernels *kernels_at(int i)
{
    int seen = 0;
    for (int t = 0; t < N_TABLES; t++)
        if (tables[t]->name && seen++ == i)
            return tables[t];
    return NULL;
}

int kernels_supported(const struct kernels *k)
{
    if (k == &kernels_scalar)
        return 1;
    /* Part of the baseline of the targets it is compiled for. */
    if (k == &kernels_neon)
        return k->name != NULL;
#if defined(__x86_64__) || defined(__i386__)
    /* These ask the operating system too (xgetbv), not only the processor. */
    __builtin_cpu_init();
    /* Every processor with AVX2 and FMA has F16C, which not every compiler can ask for. */
    const int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (k == &kernels_avx2)
        return k->name && avx2;
    if (k == &kernels_avx512)
        return k->name && avx2 && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
#endif
    return 0;
}

static void name_choices(char *out, size_t size)
{
    size_t used = 0;
    for (int i = 0; kernels_at(i) && used < size; i++)
        if (kernels_supported(kernels_at(i)))
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "",
                                     kernels_at(i)->name);
}

enum status kernels_choose(const char *name, const struct kernels **out, struct err *e)
{
    const struct kernels *chosen = NULL;
    for (int i = 0; kernels_at(i); i++) {
        const struct kernels *k = kernels_at(i);
        if (kernels_supported(k) && (!name || strcmp(name, k->name) == 0))
            chosen = k;
    }
    if (!chosen) {
        char choices[128] = "";
        name_choices(choices, sizeof choices);
        return err_set(e, STATUS_USAGE, "instruction set \"%.40s\": expected one of %s", name,
                       choices);
    }
    *out = chosen;
    return STATUS_OK;
}
