"""From a constraint to a program that the engine can run, in processes that can be stopped."""
