"""What a browser shows: the page of a run, and the site, where the pair itself runs."""
