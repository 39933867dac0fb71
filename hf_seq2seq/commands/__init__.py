"""The command line: one module for each verb.

In: words. Out: printed lines, and files that the verbs name. Imports every room, but only when a verb runs, so that
help and usage errors come at once.
"""
