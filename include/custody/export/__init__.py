"""Room `export`: events are published elsewhere, each at least once and in the order of its writer.

`export_run` follows the writers from durable cursors (`cursors`) and hands batches to a receiver; a module a kind of
receiver: `http_receiver`, `site_to_site`, `openlineage_receiver`, `kafka_receiver`, `file_receiver`. The step of a pass
is in `export_steps`.
"""
