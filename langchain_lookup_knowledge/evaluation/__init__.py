"""Questions with known answers: measuring how well they are answered, and fitting the relevance
model.
"""
