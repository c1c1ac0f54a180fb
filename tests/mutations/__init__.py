"""Mutation check: each rule of the design is switched off in a copy of the tree, and a test has to notice.

`make mutations` (`python -m tests.mutations`) runs all of them. A rule whose removal no test notices isn't
tested.
"""
