"""Translation: the settings (`points`), the training (`batches`, `training`), the translations (`decoding`), their scores (`scores`), the rows (`recording`)."""
