"""The plots of the page of benchmarks, from its figures."""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib as mpl

mpl.use("agg")  # no screen is needed

from matplotlib import pyplot as plt


def cost_per_row(figures: dict[str, Any], file: Path) -> None:
    """CPU of a row against the size of its batch, in each way to buy."""
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for name, way in figures["ways"].items():
        sizes = [int(size) for size in way["cpu"]]
        ms = [seconds * 1000 / size for size, seconds in zip(sizes, way["cpu"].values(), strict=True)]
        axes.plot(sizes, ms, marker="o", label=name)
    axes.set(xscale="log", yscale="log", xlabel="rows of the batch", ylabel="ms of CPU a row, start included")
    finish(figure, axes, file)


def submissions(limits: list[dict[str, Any]], file: Path) -> None:
    """Submissions a minute against the limit, and minute by minute for one limit."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    for name in limits[0]["minutes"]:
        rates = [mean(each["minutes"][name]) for each in limits]
        shares = [100 * rate / each["limit"] for rate, each in zip(rates, limits, strict=True)]
        left.plot([each["limit"] for each in limits], shares, marker="o", label=name, alpha=0.8)
    left.axhline(100, color="black", linestyle="--", linewidth=1)
    left.set(
        xscale="log", xlabel="limit, images a minute", ylabel="accepted a minute, % of the limit", ylim=0
    )
    left.set_xticks([each["limit"] for each in limits], [str(each["limit"]) for each in limits])
    left.minorticks_off()
    left.grid(alpha=0.3)
    one = limits[len(limits) // 2]
    right.axhline(one["limit"], color="black", linestyle="--", linewidth=1)
    for name, counts in one["minutes"].items():
        right.plot(range(1, len(counts) + 1), counts, marker="o", label=name, alpha=0.8)
    right.set(xlabel="minute of the service's clock", ylabel=f"accepted, of {one['limit']} a minute", ylim=0)
    finish(figure, right, file)


def memory(runs: dict[str, dict[str, Any]], file: Path) -> None:
    """The memory of each run, against the share of its time."""
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for name, run in runs.items():
        share = [100 * at / run["seconds"] for at, _ in run["samples"]]
        [line] = axes.plot(share, [mb for _, mb in run["samples"]], label=name)
        for moment in (run["first"], run["last"]):
            axes.axvline(100 * moment / run["seconds"], color=line.get_color(), linestyle=":", linewidth=1)
    axes.set(xlabel="% of the run's time; dotted: the first and the last request", ylabel="MB")
    axes.set_ylim(bottom=0)
    finish(figure, axes, file)


def finish(figure: Any, axes: Any, file: Path) -> None:
    """Adds legend and grid, and writes the file."""
    axes.legend(fontsize="small")
    axes.grid(alpha=0.3)
    figure.savefig(file, dpi=110, metadata={"Software": None})
    plt.close(figure)
