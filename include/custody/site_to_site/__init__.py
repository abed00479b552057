"""Room `site_to_site`: NiFi's Site-to-Site protocol without a network: packets, transactions, answers, RAW sessions."""
