#!/bin/sh
# page.sh DECODE - the page of attend --html in a browser, headless Chromium: what its script makes of
# it, as the document is after loading from file://, without a network. Without a Chromium it says so
# and checks nothing.
. "$(dirname "$0")/checks.sh"

for browser in chromium chromium-browser google-chrome; do
    command -v $browser >"$out" && break
    browser=
done
if [ -z "$browser" ]; then
    finish "; skipped: no chromium is installed, which would load the page of attend --html"
fi

# load PAGE: $out is the document after loading; what the script complains of is in $err.
load() {
    timeout 120 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$dir/profile" \
        --enable-logging=stderr --virtual-time-budget=10000 --dump-dom "file://$dir/$1" \
        >"$out" 2>"$dir/log"
    grep CONSOLE "$dir/log" >"$err"
}

# Words that would be markup, a script's end, and a byte that is no text.
line="the cat </script><b id=\"bad\">&amp;' and the cat $(printf '\303')"
"$decode" attend $golden/layerwise-kv.gguf --tokens 3,5,3,7,5,3 --html "$dir/ids.html" -q >"$out"
"$decode" attend models/shakespeare-gqa2.gguf -p "$line" --html "$dir/page.html" -q >"$dir/table"
note "pages are written" [ -s "$dir/page.html" ]
note "a page names nothing outside" lacks "$dir/page.html" "src="

load page.html
note "no complaint of the script" is_empty "$err"
note "a thumbnail is drawn for each head" [ "$(grep -o '<canvas height="[1-9][0-9]*" width="[1-9]' "$out" | wc -l)" -eq 32 ]
note "heads that share are framed" [ "$(grep -o 'class="group shared"' "$out" | wc -l)" -eq 8 ]
note "the first head is picked" has "$out" 'tabindex="0" aria-label="head 0.0"'
note "one head is picked" [ "$(grep -o 'aria-checked="true"' "$out" | wc -l)" -eq 1 ]
note "text is no markup" lacks "$out" 'id="bad"'
note "text is there" has "$out" '>&lt;</li>'
note "both sides have all tokens" \
    [ "$(grep -o 'role="option"' "$out" | wc -l)" -eq "$((2 * $(grep -o '<li>' "$dir/page.html" | wc -l)))" ]
note "lines are drawn" has "$out" '<path d="M0 '
note "nothing is picked" has "$out" 'All tokens: lines are'

# The strongest key that the page says is that of --query.
"$decode" attend models/shakespeare-gqa2.gguf -p "$line" --query 9 --layer 2 --head 4 --top 1 \
    --format csv >"$dir/top"
place=$(tail -1 "$dir/top" | cut -d, -f5)
load 'page.html#2.4@9'
note "no complaint with a head and a token" is_empty "$err"
note "the head of the address is picked" has "$out" 'id="name">Head 2.4<'
note "its token looks at the key of --query 9" \
    [ "$(sed -n "s/.*id=\"said\"[^>]*>'[^(]*(9) looks at [^(]*(\([0-9]*\)).*/\1/p" "$out")" = "$place" ]

# Keys and pointer: `drive` adds a script that does what a reader would.
drive() {
    {
        sed '/<\/body>/,$d' "$dir/page.html"
        echo "<script>
const key = (id, k) => \$(id).dispatchEvent(new KeyboardEvent('keydown', {key: k, bubbles: true}));
const point = (id, t) => \$(id).children[t].dispatchEvent(new MouseEvent('mouseenter'));
$1</script></body></html>"
    } >"$dir/driven.html"
    load driven.html
    note "no complaint of: $1" is_empty "$err"
}
drive "key('heads', 'ArrowDown'); key('heads', 'ArrowRight'); key('heads', 'ArrowUp')"
note "arrows pick a head" has "$out" 'id="name">Head 0.1<'
drive "key('heads', 'ArrowUp'); key('heads', 'End'); key('heads', 'ArrowRight')"
note "they end with the last" has "$out" 'id="name">Head 3.7<'
drive "point('queries', 3)"
note "the pointer picks a token" has "$out" '(3) looks at'
drive "point('queries', 3); key('queries', 'ArrowDown'); key('queries', 'ArrowRight')"
note "arrows pick a token, and the side" has "$out" '(4) is looked at by'
drive "point('keys', 5); key('keys', 'Escape')"
note "Escape shows all" has "$out" 'All tokens: lines are'
drive "\$('first').click(); point('queries', 0)"
note "the first token is left out" lacks "$out" '<path'

load ids.html
note "tokens without a vocabulary are ids" is_empty "$err"
finish
