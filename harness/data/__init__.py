"""Real text: what there is (`catalogue`), how it comes here (`fetch`), as what it is read (`corpus`), and its floors (`ngrams`)."""
