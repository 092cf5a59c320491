"""Looking at what was bought: marks, automatic checks, and the page that is served for marking.

Begin with `written_marks.py`: it finds the files that a person means, and enters what is said of them.
Nothing here buys, or changes a file, an attempt or an amount.
"""
