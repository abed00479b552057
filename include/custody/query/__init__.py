"""Room `query`: the query language and the search over what the catalog lists."""

from custody.query.parser import field_help, parse_query
from custody.query.scan import Scan
from custody.query.search import Found, search_state

__all__ = ["Found", "Scan", "field_help", "parse_query", "search_state"]
