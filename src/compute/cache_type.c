#include "compute/cache_type.h"

#include <math.h>

#include "base/mem.h"
#include "base/text.h"

#define F16_LARGEST 65504.0

const char *const cache_type_names[CACHE_TYPES + 1] = {
    [CACHE_F32] = "f32",   [CACHE_F16] = "f16",   [CACHE_Q8_0] = "q8_0",
    [CACHE_Q5_0] = "q5_0", [CACHE_Q4_0] = "q4_0",
};

const struct cache_type_info cache_types[CACHE_TYPES] = {
    [CACHE_F32] = {32, false, sizeof(float), HUGE_VAL},
    [CACHE_F16] = {16, false, sizeof(uint16_t), F16_LARGEST},
    [CACHE_Q8_0] = {8, true, sizeof(int8_t), F16_LARGEST * 127},
    [CACHE_Q5_0] = {5, true, sizeof(uint32_t), F16_LARGEST * 16},
    [CACHE_Q4_0] = {4, true, sizeof(uint32_t), F16_LARGEST * 8},
};

int cache_rotation(enum cache_type t, int n)
{
    const int size = MIN(n & -n, CACHE_MOST_ROTATED);
    return cache_types[t].has_scales && size >= 8 ? size : 0;
}

struct kv_type_name kv_type_name(struct kv_type t)
{
    struct kv_type_name name;
    chars_printf(name.text, "%s", cache_type_names[t.keys]);
    if (t.values != t.keys)
        chars_append(name.text, "/%s", cache_type_names[t.values]);
    return name;
}

enum status list_kv_types(const char *option, const char *text, struct int_list *list,
                          struct err *e)
{
    for (char item[32], part[32]; list_item(&text, item, sizeof item);) {
        const char *rest = item;
        const bool both = list_next(&rest, "/", part, sizeof part) == 0;
        const int keys = names_find(cache_type_names, part);
        const int values = names_find(cache_type_names, both ? part : rest);
        if (keys < 0 || values < 0)
            return err_usage(e, "%s: expected K or K/V of %s, found '%s'", option,
                             names_joined(cache_type_names, ", ").text, item);
        TRY(list_add(option, kv_type_item((struct kv_type){keys, values}), list, e));
    }
    return STATUS_OK;
}
