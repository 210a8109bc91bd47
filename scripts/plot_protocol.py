#!/usr/bin/env python3
"""plot_protocol.py CSV SVG - bits per byte against the share of uptraining, a panel for each number
of K/V heads. Needs matplotlib; see protocol.sh."""

import csv
import sys

import matplotlib
matplotlib.use("svg")
import matplotlib.pyplot as plt

STYLES = {
    "mean": ("mean", "#c0504d", "o-"),
    "fit": ("fit", "#1f77b4", "o-"),
    "teacher": ("fit, with teacher", "#17a2b8", "s--"),
    "scratch": ("from scratch", "#666666", "D"),
}


def main():
    source, target = sys.argv[1:3]
    with open(source, newline="") as f:
        rows = list(csv.DictReader(f))
    for row in rows:
        row["alpha"], row["bits_per_byte"] = float(row["alpha"]), float(row["bits_per_byte"])
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "decode", "font.size": 10})
    figure, panels = plt.subplots(1, 3, figsize=(10, 3.4), sharey=True)
    for panel, groups in zip(panels, ("4", "2", "1")):
        mha = [r for r in rows if r["method"] == "mha"]
        panel.plot([r["alpha"] for r in mha], [r["bits_per_byte"] for r in mha], "-",
                   color="black", linewidth=1, label="MHA, uptrained as long")
        for method, (label, color, style) in STYLES.items():
            points = [r for r in rows if (r["method"], r["groups"]) == (method, groups)]
            if method == "teacher":  # starts where fit does
                points = [r for r in rows if (r["method"], r["groups"], r["alpha"]) ==
                          ("fit", groups, 0)] + points
            panel.plot([r["alpha"] for r in points], [r["bits_per_byte"] for r in points], style,
                       color=color, label=label, markersize=4, linewidth=1.3)
        panel.set_title("MQA" if groups == "1" else f"{groups} K/V heads", fontsize=10)
        panel.set_xlabel("uptraining, % of the steps")
        panel.set_yscale("log")
        panel.grid(True, which="both", linewidth=0.3)
        panel.yaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%.2f"))
        panel.yaxis.set_minor_formatter(matplotlib.ticker.FormatStrFormatter("%.2f"))
    panels[0].set_ylabel("bits per byte, held out")
    panels[-1].legend(fontsize=8, frameon=False)
    figure.tight_layout()
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    main()
