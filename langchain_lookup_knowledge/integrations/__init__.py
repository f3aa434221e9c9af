"""Ways to use a knowledge base: a tool, a retriever, an MCP server and a command line."""
