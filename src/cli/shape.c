#include "cli/shape.h"

#define VALUES struct shape_options
const struct option shape_options[] = {
    OPT_STRING("shape", shape, "SHAPE", SHAPE_HELP),
    OPT_SHAPE_ARCH(arch),
    OPT_END,
};

enum status shape_of_options(const struct shape_options *o, const struct common_options *common,
                             struct config *c, struct err *e)
{
    if (common->positional || common->model)
        return err_usage(e, "a checkpoint and --shape are both named; expected one of them");
    if (o->arch && named_shape_of(o->shape))
        return err_usage(e, "--arch: --shape %.60s has its own, %s", o->shape,
                         named_shape_of(o->shape)->arch);
    const char *arch = shape_archs[o->arch ? o->arch - 1 : 0];
    return shape_parse(o->shape, arch_preset(text_of(arch)), c, e);
}
