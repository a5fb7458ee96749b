"""Run a parameter server's protocols, on a virtual clock and for real, and write their Records.

    python -m benchmarks.synchrony
    python -m benchmarks.synchrony --grid gpus

The first repeats the study of one core (about ten minutes). Records go to data/synchrony; pages 9
and 32 show them. Over Ray the same protocols are run by `python -m benchmarks.over_ray`.
"""
