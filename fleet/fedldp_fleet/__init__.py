"""One fleet: a server keeps jobs, and agents of vehicles call in to answer them."""
