"""This machine: what it has, its lanes, its lock, the processes and ports that a launch may use."""
