"""CUDA kernels, built on the machine that runs them, and the operators made of them."""
