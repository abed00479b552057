"""A local Airflow for development and for the demo; nothing in the library needs it."""
