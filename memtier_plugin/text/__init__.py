"""Text in, structure out: words, passages, languages, grammar, dates."""
