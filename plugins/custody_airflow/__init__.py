"""custody's sensors and operators for Airflow: thin, the library does the work.

Imported by DAGs as `custody_airflow`; Airflow puts `plugins/` on the import path.
"""
