"""How long a step takes: features, the simulator's truth, what a policy may fit, profiles."""
