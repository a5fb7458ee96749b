"""How a parameter server and its workers keep in step: six protocols, on two clocks."""
