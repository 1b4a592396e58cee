"""Back ends of the search that ask a language model: on a server, in this process, or from a recording."""
