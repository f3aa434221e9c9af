"""The commands of `lookup-knowledge`, and the arguments that they share."""
