/*
 * figures - numbers as short texts: with a unit for people, exact for programs.
 */
#pragma once

#include <math.h>
#include <stdint.h>
#include <time.h>

/* What a double is whose value is not known. */
#define NO_FIGURE ((double)NAN)

/* Room for a figure with its unit. */
struct figure {
    char text[32];
};

struct figure figure_bytes(double bytes);     /* "3.41 MiB" */
struct figure figure_duration(double ns);     /* "412 µs", "3.41 s", "2 min 05 s", "3 h 10 min" */
struct figure figure_millions(double x);      /* "15362.2" for 15,362,200,000 */
struct figure figure_rate(double per_second); /* "2510", "8.31": three digits or the integer */
struct figure figure_grouped(uint64_t x);     /* "1,234,567" */
struct figure
figure_weight(double x); /* of 0 to 1, in three characters: ".61", "1.0"; NaN is "–" */

/* Returns x as a message shows it: a NaN loses its sign, which printf would show. */
static inline double figure_unsigned_nan(double x)
{
    return isnan(x) ? NO_FIGURE : x;
}

/* Returns the shortest decimal text that reads back as exactly x, or "NaN" or "Infinity". */
struct figure figure_exact(double x);

/* Returns the ending of a noun behind the number n: "" or "s". */
const char *plural(uint64_t n);
