"""From text to structure: words, passages, languages, grammar, dates."""
