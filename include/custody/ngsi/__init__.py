"""Room `ngsi`: notifications of context brokers, from their receipt to files and tables."""
