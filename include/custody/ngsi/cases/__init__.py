"""Cases: what is sent, and what has to come out. Whoever moves from another sink can write theirs and run them."""
