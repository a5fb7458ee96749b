"""CUDA kernels: their sources as data (`*.cu`), how they are built on the machine that runs them,
and the operators made of them.
"""
