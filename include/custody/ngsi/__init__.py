"""Room `ngsi`: notifications of context brokers become files on HDFS and Hive tables; pure functions at its core."""
