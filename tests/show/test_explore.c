/* Tests of attend's page as it is written: its parts, and texts that would break out of the markup.
 * (tests/show/page.sh runs its script in a browser, on what the program shows.) */
#include "formats/json_write.h"
#include "show/explore.h"
#include "xml.h"

static void put_texts(const void *arg, struct output *out)
{
    struct json j;
    json_init(&j, out, 0);
    json_begin_array(&j, NULL);
    for (const char *const *text = arg; *text; text++)
        json_text(&j, NULL, text_of(*text));
    json_end(&j);
}

static const char *numbers = "";

static void put_numbers(const void *arg, struct output *out)
{
    (void)arg;
    output_puts(out, numbers);
}

static char *write_page(const char *const *texts, struct text checkpoint)
{
    const struct explore_page page = {.title = "t </title>",
                                      .put_view = put_texts,
                                      .put_numbers = put_numbers,
                                      .arg = texts,
                                      .checkpoint = checkpoint};
    const char *path = scratch_path("page.html");
    expect_ok(explore_write(&page, path, &err));
    return file_text(path, NULL);
}

static const char *const texts[] = {"</script><b>", "\"'&\xff\x01", "\xe6\x97\xa5",
                                    "\" onclick=\"x", NULL};

TEST(texts_stay_texts)
{
    expect_counts(write_page(texts, text_span(NULL, 0)), "1 <title>t &lt;/title&gt;</title>",
                  "1 \"\\u003c/script>\\u003cb>\"", "1 \"\\\"'&\xef\xbf\xbd\\u0001\"",
                  "1 \"\xe6\x97\xa5\"", "0 <b>", "1 \"\\\" onclick=\\\"x\"", "3 <script",
                  "3 </script>", "0 http://www.w3.org/1999", "0 src=", "0 href=", "0 url(",
                  "0 fetch(", "1 default-src 'none'; base-uri 'none'; form-action 'none'",
                  "1 style-src 'sha256-", "1 script-src 'sha256-", "0 unsafe-inline");
}

/* Zeros stand behind the last bytes of base64 (RFC 4648, section 10: "foobar" is Zm9vYmFy). */
TEST(numbers_are_base64)
{
    numbers = "foobar";
    expect_counts(write_page(texts, text_span(NULL, 0)), "1 id=\"numbers\">Zm9vYmFy</script>");
    numbers = "foob";
    expect_counts(write_page(texts, text_span(NULL, 0)), "1 id=\"numbers\">Zm9vYgAA</script>");
    numbers = "";
}

/* A live page has the checkpoint and the module; its policy allows what else it runs. */
TEST(live_pages_have_the_checkpoint)
{
    expect_counts(write_page(texts, text_span("GGUF\0\1\2", 7)),
                  "1 id=\"checkpoint\" data-bytes=\"7\">R0dVRgABAgAA</script>", "1 id=\"module\">",
                  "6 <script", "6 </script>", "1 'wasm-unsafe-eval'; worker-src blob:\">",
                  "1 default-src 'none'", "0 unsafe-inline");
}
