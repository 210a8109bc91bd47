#include "compute/kernels.h"

#include "base/mem.h"
#include "base/text.h"

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

/* Slowest first. */
static const struct kernels *const tables[] = {
    &kernels_scalar,
#if defined(__x86_64__) || defined(__i386__)
    &kernels_avx2,
    &kernels_avx512,
#elif defined(__aarch64__)
    &kernels_neon,
#endif
};

const struct kernels *kernels_at(int i)
{
    assert(i >= 0);
    return i < LENGTH(tables) ? tables[i] : NULL;
}

bool kernels_supported(const struct kernels *k)
{
    if (k == &kernels_scalar)
        return true;
#if defined(__x86_64__) || defined(__i386__)
    /* These ask the operating system too (xgetbv), not only the processor. Every processor with
     * AVX2 and FMA has F16C, which not every compiler can ask for. */
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
    return k == &kernels_avx512 ? avx512 : avx2;
#elif defined(__aarch64__) && defined(__linux__)
    return getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
#elif defined(__ARM_FEATURE_DOTPROD)
    return true; /* the program was built for nothing less */
#else
    return false;
#endif
}

enum status kernels_choose(const char *name, const struct kernels **out, struct err *e)
{
    char choices[128] = "";
    *out = NULL;
    for (int i = 0; kernels_at(i); i++) {
        const struct kernels *k = kernels_at(i);
        if (!kernels_supported(k))
            continue;
        chars_append(choices, "%s%s", choices[0] ? ", " : "", k->name);
        if (!name || str_is(name, k->name))
            *out = k;
    }
    return *out ? STATUS_OK
                : err_set(e, STATUS_USAGE, "instruction set \"%.40s\": expected one of %s", name,
                          choices);
}
