"""What several suites ask with: models and data that belong to more than one question."""
