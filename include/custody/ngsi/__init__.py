"""Room `ngsi`: notifications of context brokers, from their receipt to files on HDFS and Hive tables."""
