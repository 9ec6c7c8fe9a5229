"""Three primitives (tables, queues, blobs) and the engines behind them."""
