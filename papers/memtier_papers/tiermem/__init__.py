"""TierMem: the router between facts and log, its follow-up searches, and its reward."""
