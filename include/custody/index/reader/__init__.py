"""Reading a shard's files with arrays: no Whoosh, nothing unpickled, every byte checked before it is believed."""
