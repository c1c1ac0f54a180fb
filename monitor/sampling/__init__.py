"""The sampler: signals in, a policy, a coin, a decision out."""
