"""One simulated night, with assumptions of your own (`night.py`).

    python -m benchmarks.simulate_night [--workers N] [--rows N] [--parts] [--images-a-minute N] ...

The constants are those of docs/benchmarks/figures.json.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

from benchmarks.night import Assumed, costs, simulate
from benchmarks.night_page import as_options, measured
from benchmarks.write_page import DOCS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--rows", type=float, default=1e8)
    parser.add_argument("--parts", action="store_true", help="each run has a part of the plan")
    for name, value in as_options(Assumed()).items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    chosen = vars(parser.parse_args())
    workers, rows, parts = chosen.pop("workers"), chosen.pop("rows"), chosen.pop("parts")
    constants = measured(json.loads((DOCS / "benchmarks" / "figures.json").read_text()))
    given = replace(Assumed(), **chosen)
    night = simulate(workers, rows, constants, given, whole_plan=not parts)
    print(f"{night.bought:,.0f} of {rows:,.0f} rows in {night.seconds / 3600:.1f} hours")
    print(f"{night.speed:,.0f} jobs a second with all workers, of whom {night.deaths} died")
    for wall, seconds in sorted(night.walls.items(), key=lambda pair: -pair[1]):
        print(f"  {seconds / 3600:6.2f} hours bound by {wall}")
    for name, value in costs(workers, night, constants, given).items():
        print(f"{name:>34} {value:16,.2f}")


if __name__ == "__main__":
    main()
