"""What did happen: readers of logs that clusters write, and what is fitted to them."""
