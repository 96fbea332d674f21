"""Language models on real text: the settings (`points`), the training (`batches`, `training`), the perplexities (`scoring`), the rows (`recording`)."""
