"""What those who run a knowledge base measure."""
