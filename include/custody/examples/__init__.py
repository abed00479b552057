"""Room `examples`: whole flows to try and to read, which need nothing but a repository.

`web_crawler` is a flow of fourteen steps with queues between them; `web_site` is the small site that it crawls.
"""
