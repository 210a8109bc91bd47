#!/bin/sh
# page.sh DECODE - loads the page of attend --html in headless Chromium, from file:// and without a network, and
# checks the document that its script makes. Where there is no Chromium, it says so and checks nothing.
. tests/support/checks.sh

for browser in chromium chromium-browser google-chrome; do
    command -v $browser >"$out" && break
    browser=
done
if [ -z "$browser" ]; then
    finish "; skipped: no chromium is installed (make deps-browser), which loads the page of attend --html"
fi

# load PAGE [real]: loads the page; the document is then in $out, and complaints of its script are in $err.
load() {
    h_time=--virtual-time-budget=10000
    [ -z "${2:-}" ] || h_time=--timeout=200000
    timeout 240 "$browser" --headless --no-sandbox --disable-gpu --window-size=1280,800 \
        --user-data-dir="$dir/profile" --enable-logging=stderr $h_time \
        --dump-dom "file://$dir/$1" >"$out" 2>"$dir/log"
    grep CONSOLE "$dir/log" >"$err"
}

# The text has words that would be markup, a script's end, and a byte that is no text.
line="the cat </script><b id=\"bad\">&amp;' and the cat $(printf '\303')"
"$decode" attend $golden/layerwise-kv.gguf --tokens 3,5,3,7,5,3 --html "$dir/ids.html" -q >"$out"
"$decode" attend models/shakespeare-gqa2.gguf -p "$line" --html "$dir/page.html" -q >>"$out" 2>&1
note "with -q a file comes without a table" is_empty "$out"
note "pages are written" [ -s "$dir/page.html" ]
note "a page names nothing outside" lacks "$dir/page.html" "src="

# with PAGE FILE: prints the page with FILE's script at its end and without the policy that would refuse it.
with() {
    sed -e "s/script-src [^;\"]*/script-src 'unsafe-inline' 'wasm-unsafe-eval'/" -e '/<\/body>/,$d' "$dir/$1"
    echo "<script>"
    cat "$2"
    echo "</script></body></html>"
}
# results N: notes each line "ok WHAT" or "FAILED WHAT" of the document; there must be at least N.
results() {
    sed 's/<br>/\n/g; s/<pre>/\n/g' "$out" | grep -E '^(ok|FAILED) ' >"$dir/results"
    note "there are $1 results" [ "$(wc -l <"$dir/results")" -ge "$1" ]
    while IFS= read -r result; do
        note "$result" [ "${result%% *}" = ok ]
    done <"$dir/results"
}

load page.html
note "no complaint of the script" is_empty "$err"
note "a map and a strip are drawn for each head" [ "$(grep -o '<canvas width="[1-9][0-9]*" height="[1-9]' "$out" | wc -l)" -ge 64 ]
note "heads that share are framed" [ "$(grep -o 'class="group shared"' "$out" | wc -l)" -eq 8 ]
note "one head is picked" [ "$(grep -o 'aria-pressed="true"' "$out" | wc -l)" -eq 1 ]
note "text is no markup" lacks "$out" 'id="bad"'
note "text is there" has "$out" '>&lt;</li>'
note "both sides have all tokens" \
    [ "$(grep -o 'role="option"' "$out" | wc -l)" -eq "$((2 * $("$decode" tokenize models/shakespeare-gqa2.gguf -p "$line" | wc -w)))" ]
note "lines are drawn" has "$out" '<path d="M0 '
note "a token is kept, and its path shown" has "$out" '</i>The path of '
note "leading spaces are seen" has "$out" '>␣'
load 'page.html#%zz'
note "a malformed address draws the page" has "$out" '</i>The path of '
note "and is no complaint" is_empty "$err"
sed 's/const SMALL = 38/const SMALL = 37/' "$dir/page.html" >"$dir/changed.html"
load changed.html
note "a script that is another does not run" lacks "$out" '</i>The path of '

# The strongest key on the page is that of --query.
"$decode" attend models/shakespeare-gqa2.gguf -p "$line" --query 9 --layer 2 --head 4 \
    --format csv >"$dir/top"
place=$(tail -1 "$dir/top" | cut -d, -f6)
load 'page.html#2.4@9'
note "no complaint with a head and a token" is_empty "$err"
note "the head of the address is picked" has "$out" '</i>Head 2.4</h2>'
note "its token looks at the key of --query 9" \
    [ "$(sed -n "s/.*(9) looks at<[^']*'[^(]*(\([0-9]*\)).*/\1/p" "$out")" = "$place" ]

# The numbers of a path are those of --trace.
"$decode" attend models/shakespeare-gqa2.gguf -p "$line" --trace 2.4 --query 9 --json "$dir/trace.json" -q >"$dir/trace"
load 'page.html#2.4@9!'
note "no complaint with a path" is_empty "$err"
note "the path of the token is there" has "$out" 'through head 2.4</h2>'
note "what comes next is there" has "$out" ' (9) comes: '
note "later tokens are masked" [ "$(grep -o '−∞' "$out" | wc -l)" -ge 3 ]
python3 - "$out" "$dir/trace.json" >"$dir/compared" 2>&1 <<'PYTHON'
import json, re, sys
page = open(sys.argv[1], errors="replace").read()
rows = re.findall(r'<tr class="[^"]*">(.*?)</tr>', page)
cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows]
steps = json.load(open(sys.argv[2]))["trace"]
for name, column, digits in (("scores", 4, 3), ("weights", 6, 3)):
    numbers = next(s["rows"][0] for s in steps if s["step"].startswith(name))
    for x, row in zip(numbers, cells):
        assert abs(float(row[column]) - x) <= 1.1 * 10**-digits, (name, x, row[column])
PYTHON
note "scores and weights are those of --trace" is_empty "$dir/compared"

# page.js uses keys and pointer as a reader would, and checks what must be seen then.
"$decode" attend models/shakespeare-mha.gguf --tokens "$(seq -s, 1 100)" --html "$dir/long.html" -q >"$out"
with long.html tests/show/page.js >"$dir/driven.html"
load driven.html
note "no complaint of page.js" is_empty "$err"
results 50

# In windows of all sizes a cell of the map is where it is drawn.
with page.html tests/show/sizes.js >"$dir/sized.html"
{
    echo "<body><pre></pre>"
    for size in 1920x1080 2560x1440 1280x1024 1600x900 1366x768 683x384 390x844; do
        echo "<iframe src='sized.html#0.0' style='width:${size%x*}px;height:${size#*x}px;border:0'></iframe>"
    done
    echo "<script>onmessage = e => document.querySelector('pre').append(e.data, document.createElement('br'))</script>"
} >"$dir/frames.html"
load frames.html
results 7

load 'long.html#0.1@12!'
note "a long text has no paths, but the command" has "$out" '64 tokens and 16 MiB of numbers; this text has 100 tokens. On a terminal: decode attend MODEL ... --trace 0.1 --query 12'

# The weights of a live page are those of attend --npy, bit for bit, and its tokens those of generate. Here the
# browser's clock runs in real time, because another thread works.
if "$decode" attend $model -p x --html "$dir/live.html" --live -q 2>"$err"; then
    : >"$dir/port"
    python3 tests/show/waiting.py >"$dir/port" &
    server=$!
    await has_lines "$dir/port" 1
    for name in shakespeare-mha shakespeare-llama; do
        checkpoint=models/$name.gguf
        "$decode" attend $checkpoint -p "To be" --html "$dir/live.html" --live -q
        {
            python3 tests/show/live_cases.py "$decode" $checkpoint "$dir"
            cat tests/show/live.js
        } >"$dir/live.js"
        with live.html "$dir/live.js" >"$dir/driven.html"
        cat >"$dir/frame.html" <<HTML
<body><pre></pre><iframe src="driven.html" style="width:1280px;height:800px"></iframe>
<img src="http://127.0.0.1:$(cat "$dir/port")/wait">
<script>
onmessage = e => {
  if (e.data == 'end') return fetch('http://127.0.0.1:$(cat "$dir/port")/done', {mode: 'no-cors'});
  document.querySelector('pre').append(e.data, document.createElement('br'));
};
</script>
HTML
        load frame.html real
        note "$name: no complaint of the live page" is_empty "$err"
        results 12
    done
    kill $server
else
    note "without the module --live says what to do" has "$err" "make wasm"
    skipped="; skipped: the page that is live, for which the module is not built (make deps-wasm wasm)"
fi

load ids.html
note "tokens without a vocabulary are ids" is_empty "$err"
finish "${skipped:-}"
