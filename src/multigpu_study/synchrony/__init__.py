"""How a parameter server and its workers keep in step: six protocols, on a virtual clock and for
real.
"""
