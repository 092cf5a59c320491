"""The plots of a batch: spending, submissions, latency and cost, as PNG under `plots/` of the report.

`activity.py` adds up what they show, exactly; `plots.py` has them drawn and stores them; `draw.py` draws, and
is the only module that imports matplotlib. A plot is for looking: where one cannot be drawn, a person is told
so, and nothing else changes.
"""
