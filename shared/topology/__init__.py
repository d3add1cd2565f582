"""Where Redis is and how it is reached: one server, Sentinels that know which one, or a Cluster."""
