"""Room `ngsi_sink`: from stored notifications to files and tables on HDFS or in a folder, each line once."""
