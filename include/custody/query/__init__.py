"""Room `query`: the query language and the search over what the catalog lists."""

from custody.query.parser import field_help, parse_query
from custody.query.scan import Scan
from custody.query.search import Explained, Found, Window, search_state

__all__ = ["Explained", "Found", "Scan", "Window", "field_help", "parse_query", "search_state"]
