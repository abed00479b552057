"""Room `walks`: the walks of a build in arrays, for a graph whose arcs from directories fit into memory.

A walk by joins costs Spark the same few seconds a level, however little the level holds. In arrays a level costs
nothing by itself, so a build of a graph that fits is done so, in tasks that share its arrays.
"""
