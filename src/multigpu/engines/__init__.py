"""One engine a framework: devices, seeds, clocks, memory, and the step of each placement. Only
workers import these.
"""
