#include "cli/environment.h"

#include <stdlib.h>

const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}
