"""Models and endpoints: embedding, chat, structured output, prompts, prices."""
