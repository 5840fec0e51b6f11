"""A captured step, a captured part and a captured optimizer: when to record, when to replay, and what each says of itself."""
