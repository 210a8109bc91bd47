/* Tests of attend's page as it is written: its parts, weights worked out by hand, and texts that
 * would break out of the markup. (tests/show/page.sh runs its script in a browser.) */
#include "show/plot.h"

#include "base/mem.h"
#include "show/explore.h"
#include "show/heatmap.h"
#include "xml.h"

static const float weights[2][9] = {{1, 0, 0, 0.25f, 0.75f, 0, 0, 0.04f, 0.96f},
                                    {1, 0, 0, 1, 0, 0, 0, 0, 1}};
static const struct text_label tokens[3] = {{"</script><b>"}, {"\"'&\xff\x01"}, {"\xe6\x97\xa5"}};
static const struct text_label rows[2] = {{"layer 0"}, {"layer <1>"}};

static char *write_page(const struct heatmap_picture *p)
{
    const char *path = scratch_path("page.html");
    const struct explore_page page = {.maps = p, .why = "no <paths>"};
    expect_ok(explore_write(&page, path, &err));
    return file_text(path, NULL);
}

static struct heatmap_picture page_of(const struct heatmap_map *maps, int n_rows, int n_columns)
{
    return (struct heatmap_picture){.title = "t </title>",
                                    .subtitle = "s & s",
                                    .column_names = tokens,
                                    .map_rows = 3,
                                    .map_columns = 3,
                                    .maps = maps,
                                    .n_rows = n_rows,
                                    .n_columns = n_columns,
                                    .row_names = rows};
}

/* The triangle's rows follow each other: 1, then 0 and 1, are 00 00 80 3f 00 00 00 00 00 00 80 3f,
 * which is AACAPwAAAAAAAIA/ in base64. */
TEST(weights_are_floats)
{
    const struct heatmap_map maps[] = {{.cells = weights[1], .group = -1, .name = "0.0"},
                                       {.cells = weights[1], .group = 3, .name = "0.1"}};
    struct heatmap_picture p = page_of(maps, 1, 2);
    p.map_rows = p.map_columns = 2;
    expect_counts(write_page(&p), "1 id=\"numbers\">AACAPwAAAAAAAIA/AACAPwAAAAAAAIA/</script>",
                  "1 {\"name\": \"0.0\", \"note\": \"\", \"group\": -1}",
                  "1 {\"name\": \"0.1\", \"note\": \"\", \"group\": 3}");
    p.map_rows = p.map_columns = p.n_columns = 1; /* a float, and zeros behind it */
    expect_counts(write_page(&p), "1 id=\"numbers\">AACAPwAA</script>");
}

TEST(texts_stay_texts)
{
    const struct heatmap_map map = {
        .cells = weights[0], .group = -1, .name = "<i>", .note = "\" onclick=\"x"};
    const struct heatmap_picture p = page_of(&map, 1, 1);
    expect_counts(write_page(&p), "1 <title>t &lt;/title&gt;</title>", "1 \"s & s\"",
                  "1 \"\\u003c/script>\\u003cb>\"", "1 \"\\\"'&\xef\xbf\xbd\\u0001\"",
                  "1 \"\xe6\x97\xa5\"", "0 <b>", "0 <i>", "1 \"note\": \"\\\" onclick=\\\"x\"",
                  "3 <script", "3 </script>", "0 http://www.w3.org/1999",
                  "0 src=", "0 href=", "0 url(", "0 fetch(",
                  "1 default-src 'none'; base-uri 'none'; form-action 'none'",
                  "1 style-src 'sha256-", "1 script-src 'sha256-", "0 unsafe-inline");
}

TEST(paths_are_floats)
{
    enum { N = 3 };
    const struct heatmap_map map = {.cells = weights[1], .group = -1, .name = "0.0"};
    struct heatmap_picture p = page_of(&map, 1, 1);
    static const float ones[N * 3] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    const struct explore_layer layer = {4, 1, 1, 0, ones, ones, ones, ones, NULL, ones, ones, ones};
    const struct explore_paths paths = {1, 1, 1, 1, 0.5, "x", "", "/2", &layer, 1};
    const struct explore_next next[N] = {{{"<a>"}, 0.25}, {{"b"}, 0.0625}, {{"c"}, 1}};
    const struct explore_page page = {&p, next, 1, &paths, NULL, NULL};
    const char *path = scratch_path("page.html");
    p.map_rows = p.map_columns = 1;
    expect_ok(explore_write(&page, path, &err));
    /* Weight, x, q, k, v, length, place, number, and what is added to a logit are nine ones. */
    expect_counts(
        file_text(path, NULL),
        "1 \"paths\": {\"d\": 1, \"key\": 1, \"value\": 1, \"largest\": 1, \"scale\": 0.5, "
        "\"x\": \"x\", \"rotated\": \"\", \"scaled\": \"/2\", \"layers\": [{\"layer\": 4, "
        "\"heads\": 1, \"shared\": 1, \"window\": 0, \"additive\": 0, \"direct\": 1, \"bias\": [1, "
        "1, 1]}]}",
        "1 id=\"numbers\">AACAPwAAgD8AAIA/AACAPwAAgD8AAIA/AACAPwAAgD8AAIA/</script>",
        "1 [\"\\u003ca>\", 0.25]", "0 \"why\"");
}

/* A live page has the checkpoint, a text and the module; its policy allows what else it runs. */
TEST(live_pages_have_the_checkpoint)
{
    const struct heatmap_map map = {.cells = weights[1], .group = -1, .name = "0.0"};
    struct heatmap_picture p = page_of(&map, 1, 1);
    const struct explore_live live = {.name = "<m>",
                                      .checkpoint = text_span("GGUF\0\1\2", 7),
                                      .text = text_of("</script>"),
                                      .n_made = 3,
                                      .kv_heads = "2",
                                      .variants = {4, 2},
                                      .n_variants = 2,
                                      .n_ctx = 9};
    const struct explore_page page = {.maps = &p, .why = "", .live = &live};
    const char *path = scratch_path("page.html");
    p.map_rows = p.map_columns = 1;
    expect_ok(explore_write(&page, path, &err));
    expect_counts(
        file_text(path, NULL),
        "1 \"live\": {\"name\": \"\\u003cm>\", \"text\": \"\\u003c/script>\", \"made\": 3, "
        "\"kv\": \"2\", \"variants\": [4, 2], \"context\": 9}",
        "1 id=\"checkpoint\" data-bytes=\"7\">R0dVRgABAgAA</script>", "1 id=\"module\">",
        "6 <script", "6 </script>", "1 'wasm-unsafe-eval'; worker-src blob:\">",
        "1 default-src 'none'", "0 unsafe-inline");
}

TEST(how_much_there_is_room_for)
{
    const uint64_t most = UINT64_MAX;
    ck_assert_uint_eq(explore_weights(32, 256), 32 * 256 * 257 / 2);
    ck_assert_uint_eq(explore_weights(1, 1), 1);
    ck_assert_uint_eq(explore_weights(most, 4), most);
    ck_assert_uint_gt(explore_weights(144, 4096), EXPLORE_MOST);
}
