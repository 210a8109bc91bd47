#include "show/explore.h"

#include <math.h>

#include "base/mem.h"
#include "base/output.h"
#include "show/canvas.h"
#include "show/plot.h"

/* --- the page's text: style and script, by hand ----------------------------------------------- */

static const char head[] = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                           "<meta name=\"viewport\" content=\"width=device-width\">\n"
                           "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "
                           "'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n";

static const char style[] =
    "\n<style>\n"
    ":root{color-scheme:light dark;--paper:#fff;--text:#1f2328;--muted:#59636e;--edge:#8c959f;\n"
    "  --ground:#f1f3f6;--ink:40,70,198;--focus:#c2410c}\n"
    "@media (prefers-color-scheme:dark){:root{--paper:#0d1117;--text:#e6edf3;--muted:#9da7b3;\n"
    "  --edge:#6e7681;--ground:#1b222b;--ink:111,168,255;--focus:#ffb77c}}\n"
    "body{margin:22px;background:var(--paper);color:var(--text);\n"
    "  font:14px/1.4 system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif}\n"
    "h1{font-size:18px;margin:0}h2{font-size:15px;margin:0}p{margin:4px 0;max-width:80ch}\n"
    ".muted{color:var(--muted)}label{margin-right:18px}section{min-width:0;max-width:100%}\n"
    "main{display:flex;gap:32px;align-items:flex-start;margin-top:16px;flex-wrap:wrap}\n"
    "#heads{overflow:auto;max-width:100%;max-height:46vh;padding:4px}\n"
    ".row{display:flex;gap:4px;align-items:center;margin-bottom:4px}\n"
    ".row>span{width:5em;flex:none;color:var(--muted)}\n"
    ".group{display:flex;gap:2px;border:1px solid transparent;border-radius:6px;padding:2px}\n"
    ".shared{border-color:var(--edge)}\n"
    "button{border:2px solid transparent;border-radius:5px;padding:1px;background:none;\n"
    "  color:var(--muted);font:11px/1.2 inherit;cursor:pointer;display:block}\n"
    "button canvas{display:block;width:44px;height:44px;background:var(--ground)}\n"
    "button[aria-checked=true]{border-color:rgb(var(--ink));color:var(--text);font-weight:600}\n"
    ":focus-visible{outline:3px solid var(--focus);outline-offset:1px}\n"
    "#map{width:min(360px,90vw);aspect-ratio:1;background:var(--ground);display:block;\n"
    "  margin-top:8px;cursor:crosshair}\n"
    "#said{min-height:2.8em;max-width:60ch}\n"
    "#text{display:flex;width:max-content;max-width:100%;overflow:auto;box-sizing:border-box;\n"
    "  max-height:72vh;border:1px solid var(--edge);border-radius:6px;padding:6px}\n"
    "ol{list-style:none;margin:0;padding:0}#queries{text-align:right}\n"
    "li{height:20px;line-height:20px;padding:0 6px;border-radius:3px;cursor:default;\n"
    "  white-space:pre;min-width:6em;background:rgba(var(--ink),calc(.7*var(--w,0)))}\n"
    "li[aria-selected=true]{font-weight:700;box-shadow:inset 0 0 0 2px rgb(var(--ink))}\n"
    "#lines{width:150px;flex:none}#lines path{stroke:rgb(var(--ink));stroke-width:2;fill:none}\n"
    "</style>\n</head>\n<body>\n";

static const char body[] =
    "<p><label><input type=\"checkbox\" id=\"small\"> Show small weights, too (by their "
    "root)</label>\n<label><input type=\"checkbox\" id=\"first\"> Leave out the first "
    "token</label></p>\n"
    "<p class=\"muted\">Left: tokens that look; right: tokens that are looked at. Point at one, or "
    "move with the arrow keys; Escape shows all again.</p>\n"
    "<main>\n<section aria-label=\"Heads\">\n<div id=\"heads\" role=\"radiogroup\" "
    "aria-label=\"Heads, layers down\">\n";

static const char panels[] =
    "</div>\n<h2 id=\"name\"></h2>\n<p id=\"note\" class=\"muted\"></p>\n"
    "<canvas id=\"map\" role=\"img\" aria-label=\"Weights: queries down, keys across\"></canvas>\n"
    "</section>\n<section aria-label=\"Text\">\n<p id=\"said\" aria-live=\"polite\"></p>\n"
    "<div id=\"text\"><ol id=\"queries\" role=\"listbox\" aria-label=\"Looking tokens\"></ol><svg "
    "id=\"lines\" aria-hidden=\"true\"></svg><ol id=\"keys\" role=\"listbox\" aria-label=\"Tokens "
    "looked at\"></ol></div>\n"
    "</section>\n</main>\n<noscript>This page needs its script to draw.</noscript>\n"
    "<ol id=\"tokens\" hidden>";

/* Weights come as bytes b, each (b / 255)^2; those of a map's rows follow each other, row i with
 * i + 1 of them. */
static const char *const script[] = {
    "</script>\n<script>\n'use strict';\n"
    "const $ = id => document.getElementById(id);\n"
    "const texts = [...$('tokens').children].map(e => e.textContent), n = texts.length;\n"
    "const heads = [...document.querySelectorAll('#heads button')];\n"
    "const columns = document.querySelectorAll('.row:first-child button').length;\n"
    "const HEIGHT = 20, WIDTH = 150;\n"
    "const bytes = Uint8Array.from(atob($('weights').textContent), c => c.charCodeAt(0));\n"
    "const at = {head: 0, side: 'queries', token: -1, small: false, first: false};\n"
    "const items = {};\n\n"
    "// The weight that query i gives to key j, and how dark it is shown.\n"
    "function weight(head, i, j) {\n"
    "  const b = bytes[head * n * (n + 1) / 2 + i * (i + 1) / 2 + j] / 255;\n"
    "  return b * b;\n"
    "}\n"
    "function shade(w, j) {\n"
    "  return at.first && j == 0 ? 0 : at.small ? Math.sqrt(w) : w;\n"
    "}\n\n",
    "// A map of a head: where tokens are more than cells, a cell is the darkest of its own.\n"
    "function draw(canvas, head, most) {\n"
    "  const side = Math.min(n, most), cells = new Float32Array(side * side);\n"
    "  const cell = t => Math.floor(t * side / n);\n"
    "  for (let i = 0; i < n; i++)\n"
    "    for (let j = 0; j <= i; j++) {\n"
    "      const c = cell(i) * side + cell(j);\n"
    "      cells[c] = Math.max(cells[c], shade(weight(head, i, j), j));\n"
    "    }\n"
    "  const scale = Math.max(1, Math.floor(most / side)), pen = canvas.getContext('2d');\n"
    "  canvas.width = canvas.height = side * scale;\n"
    "  const ink = getComputedStyle(document.documentElement).getPropertyValue('--ink');\n"
    "  cells.forEach((s, c) => {\n"
    "    pen.fillStyle = `rgba(${ink},${s})`;\n"
    "    pen.fillRect(c % side * scale, Math.floor(c / side) * scale, scale, scale);\n"
    "  });\n"
    "  if (canvas.id && at.token >= 0) {\n"
    "    const edge = cell(at.token) * scale, rows = at.side == 'queries';\n"
    "    pen.strokeStyle = `rgb(${ink})`;\n"
    "    pen.strokeRect(rows ? 0 : edge, rows ? edge : 0,\n"
    "                   rows ? canvas.width : scale, rows ? scale : canvas.height);\n"
    "  }\n"
    "}\n\n",
    "function line(i, j, w) {\n"
    "  const y = i * HEIGHT + HEIGHT / 2, z = j * HEIGHT + HEIGHT / 2;\n"
    "  const path = document.createElementNS('http://www.w3.org/2000/svg', 'path');\n"
    "  path.setAttribute('d', `M0 ${y}C60 ${y} ${WIDTH - 60} ${z} ${WIDTH} ${z}`);\n"
    "  path.setAttribute('opacity', (.1 + .9 * w).toFixed(3));\n"
    "  $('lines').append(path);\n"
    "}\n\n",
    "function show() {\n"
    "  const t = at.token, all = t < 0, looks = at.side == 'queries', best = [];\n"
    "  heads.forEach((b, h) => {\n"
    "    b.setAttribute('aria-checked', h == at.head);\n"
    "    b.tabIndex = h == at.head ? 0 : -1;\n"
    "  });\n"
    "  $('name').textContent = 'Head ' + heads[at.head].dataset.name;\n"
    "  $('note').textContent = heads[at.head].title;\n"
    "  draw($('map'), at.head, 360);\n"
    "  $('lines').replaceChildren();\n"
    "  for (const side in items)\n"
    "    items[side].forEach((e, i) => {\n"
    "      const picked = side == at.side && i == t;\n"
    "      e.setAttribute('aria-selected', picked);\n"
    "      e.tabIndex = picked || (all && i == 0) ? 0 : -1;\n"
    "      e.style.removeProperty('--w');\n"
    "    });\n"
    "  // All weights; or of the token picked those with which it looks, or is looked at.\n"
    "  for (let i = all ? 0 : t; i < (looks && !all ? t + 1 : n); i++)\n"
    "    for (let j = looks ? 0 : t; j <= (looks ? i : t); j++) {\n"
    "      const w = weight(at.head, i, j), s = shade(w, j), partner = looks ? j : i;\n"
    "      if (s >= .01 && (w >= .1 || !all)) line(i, j, s);\n"
    "      if (all) continue;\n"
    "      items[looks ? 'keys' : 'queries'][partner].style.setProperty('--w', s);\n"
    "      const percent = (100 * w).toFixed(w < .1 ? 1 : 0) + '%';\n"
    "      best.push([w, `'${texts[partner]}' (${partner}) ${percent}`]);\n"
    "    }\n"
    "  best.sort((a, b) => b[0] - a[0]);\n"
    "  $('said').textContent = all ? 'All tokens: lines are weights of 0.1 and more.' :\n"
    "    `'${texts[t]}' (${t}) ${looks ? 'looks at' : 'is looked at by'} ` +\n"
    "    (best.filter(p => p[0] > 0).slice(0, 6).map(p => p[1]).join(', ') || 'nothing');\n"
    "}\n\n",
    "function go(change, focus) {\n"
    "  if (change.side == at.side && change.token == at.token) return;\n"
    "  Object.assign(at, change);\n"
    "  show();\n"
    "  if (focus) focus.focus();\n"
    "}\n"
    "function redraw() {\n"
    "  at.small = $('small').checked;\n"
    "  at.first = $('first').checked;\n"
    "  heads.forEach((b, h) => draw(b.firstElementChild, h, 64));\n"
    "  show();\n"
    "}\n\n"
    "// Where an arrow key leads among `count` things, `across` a line; -1: it is no arrow.\n"
    "function target(key, from, count, across) {\n"
    "  const step = {ArrowUp: -across, ArrowDown: across, ArrowLeft: -1, ArrowRight: 1}[key];\n"
    "  const to = key == 'Home' ? 0 : key == 'End' ? count - 1 : from + step;\n"
    "  return to >= 0 && to < count ? to : -1;\n"
    "}\n\n",
    "for (const side of ['queries', 'keys']) {\n"
    "  items[side] = texts.map((text, t) => {\n"
    "    const e = document.createElement('li');\n"
    "    e.textContent = text;\n"
    "    e.setAttribute('role', 'option');\n"
    "    e.setAttribute('aria-label', `token ${t}, ${text}`);\n"
    "    e.onmouseenter = e.onfocus = () => go({side, token: t});\n"
    "    return e;\n"
    "  });\n"
    "  $(side).append(...items[side]);\n"
    "  $(side).onkeydown = event => {\n"
    "    const aside = {ArrowLeft: 'queries', ArrowRight: 'keys'}[event.key];\n"
    "    const to = aside ? at.token : target(event.key, at.token, n, 1);\n"
    "    if (to < 0 || at.token < 0) return;\n"
    "    event.preventDefault();\n"
    "    go({side: aside || side, token: to}, items[aside || side][to]);\n"
    "  };\n"
    "}\n"
    "$('heads').onkeydown = event => {\n"
    "  const to = target(event.key, at.head, heads.length, columns);\n"
    "  if (to < 0) return;\n"
    "  event.preventDefault();\n"
    "  go({head: to}, heads[to]);\n"
    "};\n",
    "heads.forEach((b, h) => { b.onclick = () => go({head: h}); });\n"
    "document.addEventListener('keydown', event => {\n"
    "  if (event.key == 'Escape') go({side: 'queries', token: -1});\n"
    "});\n"
    "$('map').onmousemove = event => {\n"
    "  const t = Math.floor(event.offsetY / $('map').clientHeight * n);\n"
    "  go({side: 'queries', token: Math.max(0, Math.min(n - 1, t))});\n"
    "};\n"
    "$('lines').setAttribute('height', n * HEIGHT);\n"
    "$('small').onchange = $('first').onchange = redraw;\n"
    "matchMedia('(prefers-color-scheme: dark)').onchange = redraw;\n"
    "// FILE.html#1.3@12 begins with head 1.3 and the query at position 12.\n"
    "const [name, token] = location.hash.slice(1).split('@');\n"
    "at.head = Math.max(0, heads.findIndex(b => b.dataset.name == name));\n"
    "at.token = +token >= 0 && +token < n ? Math.floor(+token) : -1;\n"
    "redraw();\n"
    "if (at.token >= 0) items.queries[at.token].scrollIntoView({block: 'center'});\n"
    "</script>\n</body>\n</html>\n",
};

/* --- the weights ------------------------------------------------------------------------------ */

uint64_t explore_weights(uint64_t n_maps, uint64_t n_tokens)
{
    return u64_product(n_maps, u64_product(n_tokens, n_tokens + 1) / 2);
}

/* Puts three bytes that are held in base64 (RFC 4648) when one more makes them so many. Returns
 * what is held then; before its bytes is a 1. */
static uint32_t put_byte(struct output *out, uint32_t held, uint32_t byte)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char four[4];
    held = held << 8 | byte;
    if (held >> 24 == 0)
        return held;
    for (int i = 0; i < 4; i++)
        four[i] = digits[held >> (18 - 6 * i) & 63];
    output_put(out, text_span(four, 4));
    return 1;
}

/* Zeros fill up the last three: the page reads no further than its weights. */
static void put_weights(struct output *out, const struct heatmap_picture *p)
{
    uint32_t held = 1;
    for (int m = 0; m < p->n_rows * p->n_columns; m++)
        for (int i = 0; i < p->map_rows; i++)
            for (int j = 0; j <= i; j++) {
                const double w = (double)p->maps[m].cells[(size_t)i * p->map_columns + j];
                held = put_byte(out, held, sqrt(fmin(fmax(w, 0), 1)) * 255 + 0.5);
            }
    while (held > 1)
        held = put_byte(out, held, 0);
}

/* --- the page --------------------------------------------------------------------------------- */

static void put_maps(struct output *out, const struct heatmap_picture *p)
{
    for (int r = 0; r < p->n_rows; r++) {
        const struct heatmap_map *row = p->maps + (size_t)r * p->n_columns;
        output_puts(out, "<div class=\"row\">");
        canvas_put_element(out, "span", p->row_names[r].text);
        for (int c = 0; c < p->n_columns; c++) {
            const struct heatmap_map *m = &row[c];
            const char *const parts[][2] = {
                {"<button role=\"radio\" tabindex=\"-1\" aria-label=\"head ", m->name},
                {"\" data-name=\"", m->name},
                {"\" title=\"", m->note},
                {"\"><canvas></canvas>", m->name},
                {"</button>", ""}};
            if (c == 0 || m->group < 0 || m->group != m[-1].group)
                output_printf(out, "%s<div class=\"group%s\">\n", c > 0 ? "</div>" : "",
                              m->group >= 0 ? " shared" : "");
            for (int i = 0; i < LENGTH(parts); i++) {
                output_puts(out, parts[i][0]);
                canvas_put_text(out, parts[i][1], HUGE_VAL);
            }
        }
        output_puts(out, "</div></div>\n");
    }
}

enum status explore_write(const struct heatmap_picture *p, const char *path, struct err *e)
{
    struct file_output file;
    struct output *out = &file.out;
    assert(explore_weights((uint64_t)p->n_rows * p->n_columns, p->map_rows) <= EXPLORE_MOST);
    file_output_init(&file);
    TRY(file_output_open(&file, path, e));
    output_puts(out, head);
    canvas_put_element(out, "title", p->title);
    output_puts(out, style);
    canvas_put_element(out, "h1", p->title);
    canvas_put_element(out, "p", p->subtitle);
    output_puts(out, body);
    put_maps(out, p);
    output_puts(out, panels);
    for (int i = 0; i < p->map_columns; i++)
        canvas_put_element(out, "li", p->column_names[i].text);
    output_puts(out, "</ol>\n<script type=\"text/plain\" id=\"weights\">");
    put_weights(out, p);
    for (int i = 0; i < LENGTH(script); i++)
        output_puts(out, script[i]);
    return file_output_commit(&file, e);
}
