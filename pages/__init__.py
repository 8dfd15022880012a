"""Web pages: the page of a run, and the site, in which the pair itself runs."""
