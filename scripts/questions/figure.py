#!/usr/bin/env python3
"""figure.py OUT.svg --panel KIND FILE [--title T] [--x LABEL] [--y LABEL] [--log x|y|xy] [--level LABEL=Y]...
              [--tokens TEXT] [...]

Draws panels from tables in CSV with a header, up to three side by side, more in rows of two or three; the pictures of all questions.

    rates   study.csv of scripts/study.sh: bits per byte over learning rates, a line for each arm,
            a band from the lowest to the highest seed, a dot where the arm is at its best
    lines   series,x,y[,low,high]: a line for each series
    bars    series,label,y[,low,high]: bars side by side for each label
    maps    what `decode attend --npy` writes: a map of each head, queries downwards; --tokens TEXT names
            the places by the bytes of a text, --title "A;B" each head; one title that ends in : or , gets its name
    named   JSON: maps with their own "title", "names" of the tokens, "weights"

--level draws a level, as that of a table of counts. Needs matplotlib; without it one line says so.
"""

import csv
import sys


def fail(message):
    sys.exit(f"figure.py: {message}")


def panels_of(words):
    """Returns the panels that the command line asks for, each a dictionary."""
    panels, i = [], 0
    while i < len(words):
        if words[i] == "--panel" and i + 2 < len(words):
            panels.append({"kind": words[i + 1], "file": words[i + 2], "levels": []})
            i += 3
        elif panels and words[i] in ("--title", "--x", "--y", "--log", "--level", "--tokens") and i + 1 < len(words):
            if words[i] == "--level":
                label, _, value = words[i + 1].rpartition("=")
                panels[-1]["levels"].append((label, float(value)))
            else:
                panels[-1][words[i][2:]] = words[i + 1]
            i += 2
        else:
            fail(f"expected --panel KIND FILE and its options, found '{words[i]}'")
    return panels


def grouped(rows, key):
    groups = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def draw_rates(ax, rows):
    def arm(row):
        parts = [row["variant"]]
        parts += [row["method"]] if row["method"] not in ("train", "mha") else []
        parts += [row["alpha"] + "%"] if row["alpha"] != "0" else []
        return " ".join(parts)
    rows = [row for row in rows if row["rate"] != "-"]
    for label, cells in grouped(rows, arm).items():
        by_rate = {float(rate): [float(c["bits_per_byte"]) for c in of] for rate, of in grouped(cells, lambda c: c["rate"]).items()}
        rates = sorted(by_rate)
        means = [sum(by_rate[r]) / len(by_rate[r]) for r in rates]
        line, = ax.plot(rates, means, label=label, linewidth=1.3)
        ax.fill_between(rates, [min(by_rate[r]) for r in rates], [max(by_rate[r]) for r in rates], alpha=0.15,
                        color=line.get_color(), linewidth=0)
        low = rates.index(next(float(c["rate"]) for c in cells if c["best"] == "yes"))
        ax.plot(rates[low], means[low], "o", color=line.get_color(), markersize=5)
    ax.set_xscale("log")
    ax.set_xticks(sorted({float(row["rate"]) for row in rows}), sorted({row["rate"] for row in rows}, key=float))
    ax.minorticks_off()
    ax.set_xlabel("learning rate")
    ax.set_ylabel("bits per byte")


def spread(of):
    """Returns how far low and high are from y, or None where there are none."""
    if not of[0].get("low"):
        return None
    return [[float(r["y"]) - float(r["low"]) for r in of], [float(r["high"]) - float(r["y"]) for r in of]]


def draw_lines(ax, rows):
    for label, of in grouped(rows, lambda r: r["series"]).items():
        ax.errorbar([float(r["x"]) for r in of], [float(r["y"]) for r in of], yerr=spread(of), label=label,
                    marker="o", markersize=3.5, linewidth=1.3, capsize=2)


def draw_bars(ax, rows):
    labels = list(dict.fromkeys(r["label"] for r in rows))
    series = grouped(rows, lambda r: r["series"])
    width = 0.8 / len(series)
    for i, (label, of) in enumerate(series.items()):
        at = [labels.index(r["label"]) + (i - (len(series) - 1) / 2) * width for r in of]
        ax.bar(at, [float(r["y"]) for r in of], width * 0.92, yerr=spread(of), label=label, capsize=2)
    ax.set_xticks(range(len(labels)), labels)
    if max(len(label) for label in labels) * len(labels) > 45:
        for label in ax.get_xticklabels():
            label.set(rotation=35, ha="right", rotation_mode="anchor")


def draw_map(ax, weights, tokens):
    ax.imshow(weights, cmap="Blues", vmin=0, vmax=1)
    n = len(weights)
    if tokens:
        names = [c.strip() if c.strip().isprintable() and c.strip() else "·" for c in tokens[:n]]
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_ticks(range(n), names, fontsize=8 if n <= 20 else 6 if n <= 32 else 4.5, family="monospace")
        if max(map(len, names)) > 1:
            ax.tick_params(axis="x", labelrotation=90)
        ax.tick_params(length=0)
    ax.grid(False)
    ax.set_xlabel("looked at")
    ax.set_ylabel("token")


def main():
    words = sys.argv[1:]
    if len(words) < 4 or words[0].startswith("-"):
        fail("expected OUT.svg --panel KIND FILE ...; its first lines say more")
    out, panels = words[0], panels_of(words[1:])
    try:
        import matplotlib
    except ImportError:
        print("figure.py: matplotlib is not installed, so no picture is drawn: pip install -r scripts/requirements.txt",
              file=sys.stderr)
        return
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "decode", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False,
                                "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25, "axes.titlesize": 10})
    from matplotlib import pyplot, transforms
    # An eleventh line has a colour of its own, too.
    pyplot.rc("axes", prop_cycle=pyplot.cycler(color=[*pyplot.rcParams["axes.prop_cycle"].by_key()["color"], "black"]))

    # A file of maps becomes a panel for each head.
    drawn = []
    for panel in panels:
        try:
            if panel["kind"] == "maps":
                import numpy
                weights = numpy.load(panel["file"])
                titles = panel.get("title", "").split(";")
                at = list(numpy.ndindex(*weights.shape[:2]))
                if len(titles) < len(at) or titles[0][-1:] in ("", ":", ","):
                    titles = [f"{titles[0]} head {layer}.{head}".strip() for layer, head in at]
                drawn += [(dict(panel, title=title), weights[i]) for title, i in zip(titles, at)]
                continue
            if panel["kind"] == "named":
                import json
                with open(panel["file"], encoding="utf-8") as f:
                    drawn += [(dict(panel, title=of["title"], tokens=of["names"]), of["weights"]) for of in json.load(f)]
                continue
            with open(panel["file"], newline="", encoding="utf-8") as f:
                rows = list(csv.DictReader(f))
        except OSError as error:
            fail(f"{panel['file']}: {error.strerror}")
        if not rows:
            fail(f"{panel['file']}: expected rows below the header, found none")
        drawn.append((panel, rows))
    columns = 2 if len(drawn) == 4 else min(len(drawn), 3)
    rows_of_panels = -(-len(drawn) // columns)
    figure, axes = pyplot.subplots(rows_of_panels, columns, figsize=(max(5.2, 4.1 * columns), 3.6 * rows_of_panels), squeeze=False)
    for ax in axes.flat[len(drawn):]:
        ax.set_axis_off()
    draw = {"rates": draw_rates, "lines": draw_lines, "bars": draw_bars}
    for ax, (panel, rows) in zip(axes.flat, drawn):
        ax.set_title(panel.get("title", ""))
        if panel["kind"] in ("maps", "named"):
            draw_map(ax, rows, panel.get("tokens"))
            continue
        if panel["kind"] not in draw:
            fail(f"expected a panel of {', '.join(draw)} maps or named, found '{panel['kind']}'")
        draw[panel["kind"]](ax, rows)
        for i, (label, value) in enumerate(panel["levels"]):
            ax.axhline(value, linestyle=("--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)))[i % 4], linewidth=1.2, color="0.4", label=label)
        for axis in panel.get("log", ""):
            signed = axis == "y" and any(float(r.get("low") or r["y"]) <= 0 for r in rows)
            getattr(ax, f"set_{axis}scale")(**{"value": "symlog", "linthresh": 0.01} if signed else {"value": "log"})
        if panel["kind"] == "lines" and "x" in panel.get("log", ""):
            ticks = sorted({float(r["x"]) for r in rows})
            if len(ticks) > 10 or any(b < 1.2 * a for a, b in zip(ticks, ticks[1:])):
                ticks = [2.0 ** n for n in range(-8, 8) if ticks[0] <= 2.0 ** n <= ticks[-1]]
            ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
            ax.minorticks_off()
        for axis in "xy":
            if axis in panel:
                getattr(ax, f"set_{axis}label")(panel[axis])
        labels = ax.get_legend_handles_labels()[1]
        n_series = len(labels)
        if n_series > 1 or panel["levels"]:  # the legend stands below, where it hides nothing
            ax.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, 0),
                      bbox_transform=ax.transAxes + transforms.ScaledTranslation(0, -0.45, figure.dpi_scale_trans), ncols=min(n_series, 3 if max(map(len, labels)) < 20 else 2))
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None} if out.endswith(".svg") else None, dpi=110, bbox_inches="tight")
    print(f"figure.py: wrote {out}", file=sys.stderr)


if __name__ == "__main__":
    main()
