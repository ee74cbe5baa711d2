"""Experiments, side by side with peers in the same run; results and plots.

May import every room of Headrace.
"""
