"""One lookup: the graph, the decisions of its nodes, and the text of the answer."""
