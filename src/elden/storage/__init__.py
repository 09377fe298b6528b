"""What is kept on disk: arrays with a card and checksums, run folders, checkpoints, and the logs beside them."""
