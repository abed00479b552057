"""A web crawler as a flow: fourteen steps, each a component of its own, with queues of FlowFiles between them.

    GetHTTP ─> fetched ─> Funnel ─┬> pages ─> RouteText ─┬> keyword_lines ─> PutEmail
                  ^               │                      └> link_lines ─> SplitText ─> links ─> ExtractText ─> urls ─┐
                  │               └> copies ─> MergeContent ─> bundles ─> CompressContent ─> archives ─> PutFile      │
                  │                                                                                                  v
              RouteOnAttribute <─ named <─ UpdateAttribute <─ responses <─ InvokeHTTP <─ requests <─ DetectDuplicate
                  └> logged ─> LogAttribute

Each step takes FlowFiles from its queue, works on them in one session, and sends them on: queues, contents and events
agree after every commit, so a crawl that was killed goes on where it was. The URLs that were seen are the content of a
FlowFile too, which waits in a queue of its own: they are kept by the same commit as the link that was followed.
"""

from __future__ import annotations

import http.client
import logging
import re
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from email.message import EmailMessage
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import msgspec

from custody.errors import NotFoundError
from custody.examples.web_site import LOOPBACK, ORIGIN
from custody.flow import Component, FlowFile
from custody.flowfile_repository import QueueSession
from custody.lineage import Diagram, ExportFormat, Lineage, export
from custody.repository import Repository
from custody.repository.flow import Flow
from custody.repository.shared_session import session
from custody.vfs import FileSystem, PosixFileSystem

_LOGGER = logging.getLogger(__name__)
_LINK = re.compile(rb'href="([^"]+)"')
_AT_ONCE = 10
"""So many FlowFiles a step takes in one session."""
_CHUNK_BYTES = 64 << 10
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_OWN_NUMBER = re.compile(r"-[0-9a-f]{8}(?=[.\"])")
"""The end of the names that the steps give: the beginning of a uuid."""
_GZIP = 31
"""The window bits with which zlib writes gzip."""
_TIMEOUT_SECONDS = 10.0
_RETRY_MS = 30_000
_SLOT_SECONDS = 60.0
_DIAGRAM = msgspec.json.Decoder(Diagram)
SEEN = "crawl_seen"
"""The queue of the FlowFile that holds the URLs that were seen."""

OpenSession = Callable[[], AbstractContextManager[QueueSession]]


@dataclass(frozen=True, slots=True)
class CrawlStep:
    """One step: the type of its component, and the queue that it takes from."""

    name: str
    queue: str

    @property
    def task_id(self) -> str:
        """The step's name as that of a task, such as `route_text`."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self.name).lower()

    @property
    def component(self) -> Component:
        """The component that reports the step's events."""
        return Component(id=f"web_crawler.{self.task_id}", type=self.name, name=self.name)


STEPS = (
    CrawlStep("GetHTTP", SEEN),
    CrawlStep("Funnel", "crawl_fetched"),
    CrawlStep("RouteText", "crawl_pages"),
    CrawlStep("PutEmail", "crawl_keyword_lines"),
    CrawlStep("SplitText", "crawl_link_lines"),
    CrawlStep("ExtractText", "crawl_links"),
    CrawlStep("DetectDuplicate", "crawl_urls"),
    CrawlStep("InvokeHTTP", "crawl_requests"),
    CrawlStep("UpdateAttribute", "crawl_responses"),
    CrawlStep("RouteOnAttribute", "crawl_named"),
    CrawlStep("LogAttribute", "crawl_logged"),
    CrawlStep("MergeContent", "crawl_copies"),
    CrawlStep("CompressContent", "crawl_bundles"),
    CrawlStep("PutFile", "crawl_archives"),
)
"""In the order in which one page goes through them."""


@dataclass(frozen=True, slots=True)
class CrawlOptions:
    """Options of a crawl."""

    folder: Path
    """Where archives and mails are put."""
    port: int = 0
    """The site's port on the loopback interface; only GetHTTP and InvokeHTTP need it."""
    keyword: str = "provenance"
    """Lines with it are mailed, in whatever case they are written."""
    bundle_pages: int = 3
    """So many pages go into one archive."""
    fs: FileSystem = field(default_factory=PosixFileSystem)

    @property
    def archive(self) -> Path:
        """The folder of the archives."""
        return self.folder / "archive"

    @property
    def mail(self) -> Path:
        """The folder of the mails, in place of a mail server."""
        return self.folder / "mail"


def crawl(flow: Flow, options: CrawlOptions) -> dict[str, int]:
    """Crawl the site until nothing waits any more; return how many FlowFiles each step took.

    What an earlier crawl left in its queues is done first. Responses that failed wait for the next crawl, penalised.
    """
    connect(flow)
    worked = dict.fromkeys((step.name for step in STEPS), 0)
    if is_idle(flow):
        worked["GetHTTP"] += run_step("GetHTTP", options, lambda: flow.session(STEPS[0].component))
    is_last = False
    while True:
        before = dict(worked)
        for step in STEPS[1:]:
            worked[step.name] += run_step(step.name, options, lambda of=step.component: flow.session(of), is_last)  # type: ignore[misc]
        if worked == before:
            # Nothing moves: the pages of the last bundle are all there are.
            if is_last:
                return worked
            is_last = True


def run_task(folder: Path, name: str, options: CrawlOptions, *, is_last: bool = False) -> int:
    """Run one step as a task of its own, whose name Airflow's environment has; otherwise as `run_step`."""
    repository = Repository.open(folder)
    if name == STEPS[0].name:
        with repository.flowfiles(wait_seconds=_SLOT_SECONDS) as flow:
            connect(flow)
            if not is_idle(flow):
                return 0
    return run_step(name, options, lambda: session(repository, wait_seconds=_SLOT_SECONDS), is_last)


def connect(flow: Flow) -> None:
    """Make the queues of the crawler that are not there yet."""
    names = {connection.name for connection in flow.queues.connections()}
    for step in STEPS:
        if step.queue not in names:
            flow.connect(step.queue)


def is_idle(flow: Flow) -> bool:
    """Whether nothing of an earlier crawl waits."""
    return all(flow.queues.size(step.queue).count == 0 for step in STEPS if step.queue != SEEN)


def run_step(name: str, options: CrawlOptions, open_session: OpenSession, is_last: bool = False) -> int:
    """Let one step work until its queue gives nothing more; return how many FlowFiles it took.

    Args:
        name: the step.
        options: of the crawl.
        open_session: begins a session of the step's component.
        is_last: whether no more pages will come, so that a bundle needs no more than there are.
    """
    step = next(step for step in STEPS if step.name == name)
    worker = _Worker(options, is_last)
    work = getattr(worker, step.task_id)
    total = 0
    while True:
        with open_session() as session:
            count: int = work(session, step.queue)
        total += count
        # GetHTTP makes one FlowFile, and no more the longer it is asked.
        if not count or step.queue == SEEN:
            return total


class _Worker:
    """The work of each step, by its task id: takes FlowFiles in a session and returns how many."""

    def __init__(self, options: CrawlOptions, is_last: bool) -> None:
        self._options = options
        self._is_last = is_last

    def get_http(self, session: QueueSession, queue: str) -> int:
        """Receive the site's first page, and begin to remember which URLs were seen."""
        former = session.get(queue)
        if former is not None:
            session.remove(former, "a new crawl begins")
        seen = session.create({"filename": "seen-urls.txt"})
        session.write_bytes(seen, f"{ORIGIN}/\n".encode())
        session.transfer(seen, SEEN)
        page = session.create({"url": f"{ORIGIN}/"})
        response = self._get(session, page, f"{ORIGIN}/")
        session.put_attributes(page, {**response, "filename": "index.html"})
        session.receive(page, f"{ORIGIN}/")
        session.transfer(page, "crawl_fetched")
        return 1

    def funnel(self, session: QueueSession, queue: str) -> int:
        """Send each page both ways; only the CLONE tells of it."""
        pages = session.get_many(queue, _AT_ONCE)
        for page in pages:
            session.transfer(page, "crawl_pages", "crawl_copies")
        return len(pages)

    def route_text(self, session: QueueSession, queue: str) -> int:
        """Copy the lines with the keyword, and those with links, into a FlowFile each."""
        pages = session.get_many(queue, _AT_ONCE)
        keyword = self._options.keyword.lower().encode()
        for page in pages:
            lines = session.read_bytes(page).splitlines(keepends=True)
            routes = {
                "keyword": [line for line in lines if keyword in line.lower()],
                "link": [line for line in lines if _LINK.search(line)],
            }
            for relationship, chosen in routes.items():
                if chosen:
                    part = session.fork(page)
                    session.write_bytes(part, b"".join(chosen))
                    session.transfer(part, f"crawl_{relationship}_lines", relationship=relationship)
            session.terminate(page, "original")
        return len(pages)

    def put_email(self, session: QueueSession, queue: str) -> int:
        """Mail the lines with the keyword: one mail a page, in a folder instead of a mail server."""
        found = session.get_many(queue, _AT_ONCE)
        for lines in found:
            mail = EmailMessage()
            mail["Subject"] = f"{self._options.keyword} in {lines.attributes['url']}"
            mail["Message-ID"] = f"<{lines.uuid}@site.example>"
            mail.set_content(session.read_bytes(lines).decode())
            session.associate(lines, "message-id", f"{lines.uuid}@site.example")
            self._put(session, lines, self._options.mail / f"{lines.uuid}.eml", mail.as_bytes())
        return len(found)

    def split_text(self, session: QueueSession, queue: str) -> int:
        """Make a FlowFile of each line; the bytes are shared."""
        found = session.get_many(queue, _AT_ONCE)
        for lines in found:
            ranges, start = [], 0
            for line in session.read_bytes(lines).splitlines(keepends=True):
                ranges.append((start, len(line)))
                start += len(line)
            for number, part in enumerate(session.split(lines, ranges)):
                session.put_attribute(part, "fragment.index", str(number))
                session.transfer(part, "crawl_links")
            session.terminate(lines, "original")
        return len(found)

    def extract_text(self, session: QueueSession, queue: str) -> int:
        """Make the link of a line an attribute, for the steps that only look at attributes."""
        links = session.get_many(queue, _AT_ONCE)
        for link in links:
            match = _LINK.search(session.read_bytes(link))
            target = urljoin(link.attributes["url"], match[1].decode()) if match else ""
            if target.startswith(f"{ORIGIN}/"):
                session.put_attributes(link, {"url": target, "referrer": link.attributes["url"]})
                session.transfer(link, "crawl_urls")
            else:
                session.terminate(link, "unmatched")
        return len(links)

    def detect_duplicate(self, session: QueueSession, queue: str) -> int:
        """Follow each URL once."""
        seen = session.get(SEEN)
        if seen is None:
            return 0
        links = session.get_many(queue, _AT_ONCE)
        if not links:
            session.put_back(seen)
            return 0
        urls = set(session.read_bytes(seen).decode().split())
        before = len(urls)
        for link in links:
            url = link.attributes["url"]
            if url in urls:
                session.remove(link, "duplicate URL")
            else:
                session.transfer(link, "crawl_requests", relationship="non-duplicate")
                urls.add(url)
        if len(urls) > before:
            session.write_bytes(seen, "".join(f"{url}\n" for url in sorted(urls)).encode())
        session.transfer(seen, SEEN)
        return len(links)

    def invoke_http(self, session: QueueSession, queue: str) -> int:
        """Fetch each URL; the response is made from the request. What fails goes back, and waits for a while."""
        requests = session.get_many(queue, _AT_ONCE)
        for request in requests:
            url = request.attributes["url"]
            response = session.fork(request, {"transaction.id": request.uuid})
            try:
                attributes = self._get(session, response, url)
            except (OSError, http.client.HTTPException) as error:
                _LOGGER.warning("%s: %s", url, error)
                session.remove(response, "no response")
                session.penalise(request, _RETRY_MS)
                session.transfer(request, queue)
                continue
            session.put_attributes(response, attributes)
            session.fetch(response, url)
            session.transfer(response, "crawl_responses")
            session.terminate(request, "Original")
        return len(requests)

    def update_attribute(self, session: QueueSession, queue: str) -> int:
        """Name a response after its URL and its transaction; of a redirect the URL becomes the new one."""
        responses = session.get_many(queue, _AT_ONCE)
        for response in responses:
            url = response.attributes["url"]
            name = Path(urlsplit(url).path).name or "index"
            changes = {"filename": f"{name}-{response.attributes['transaction.id'][:8]}"}
            if location := response.attributes.get("http.location"):
                changes["url"] = urljoin(url, location)
            session.put_attributes(response, changes)
            session.transfer(response, "crawl_named")
        return len(responses)

    def route_on_attribute(self, session: QueueSession, queue: str) -> int:
        """Route a response on its status code; what is neither a page nor a redirect ends here."""
        responses = session.get_many(queue, _AT_ONCE)
        for response in responses:
            status = int(response.attributes["http.status_code"])
            if 200 <= status <= 202:
                session.transfer(response, "crawl_fetched", "crawl_logged", relationship="success")
            elif "http.location" in response.attributes:
                session.put_attributes(response, {"http.location": None})
                session.transfer(response, "crawl_urls", relationship="redirect")
            else:
                session.terminate(response, "unmatched")
        return len(responses)

    def log_attribute(self, session: QueueSession, queue: str) -> int:
        """Log each success."""
        responses = session.get_many(queue, _AT_ONCE)
        for response in responses:
            _LOGGER.info("crawled %s, %d bytes", response.attributes["url"], response.size)
            session.terminate(response, "success")
        return len(responses)

    def merge_content(self, session: QueueSession, queue: str) -> int:
        """Bundle pages; while more can come, only whole bundles."""
        pages = session.get_many(queue, self._options.bundle_pages)
        if len(pages) < self._options.bundle_pages and not self._is_last:
            for page in pages:
                session.put_back(page)
            return 0
        if pages:
            bundle = session.merge(pages, {"merge.count": str(len(pages))}, delimiter=b"\n")
            session.put_attribute(bundle, "filename", f"bundle-{bundle.uuid[:8]}.html")
            session.transfer(bundle, "crawl_bundles")
            for page in pages:
                session.terminate(page, "original")
        return len(pages)

    def compress_content(self, session: QueueSession, queue: str) -> int:
        """Compress a bundle: the old content is read while the new one is written beside it."""
        bundles = session.get_many(queue, _AT_ONCE)
        for bundle in bundles:
            packer = zlib.compressobj(wbits=_GZIP)
            with session.write(bundle, details="gzip") as output:
                for chunk in session.chunks(bundle):
                    output.write(packer.compress(chunk))
                output.write(packer.flush())
            session.put_attributes(
                bundle, {"filename": f"{bundle.attributes['filename']}.gz", "mime.type": "application/gzip"}
            )
            session.transfer(bundle, "crawl_archives")
        return len(bundles)

    def put_file(self, session: QueueSession, queue: str) -> int:
        """Put archives on disk."""
        archives = session.get_many(queue, _AT_ONCE)
        for archive in archives:
            path = self._options.archive / f"bundle-{archive.uuid}.html.gz"
            self._put(session, archive, path, session.read_bytes(archive))
        return len(archives)

    def _put(self, session: QueueSession, flowfile: FlowFile, path: Path, data: bytes) -> None:
        """Write a file and end its FlowFile."""
        self._options.fs.make_directory(path.parent)
        self._options.fs.write_durably(path, data)
        # Without force: after a crash the file is written again under its name, so it was sent once.
        session.send(flowfile, path.absolute().as_uri(), force=False)
        session.terminate(flowfile, "success")

    def _get(self, session: QueueSession, flowfile: FlowFile, url: str) -> dict[str, str]:
        """Give a FlowFile the answer to a GET as its content; return what the answer's head says as attributes."""
        # Only the site's own pages are asked for, wherever its name would lead.
        connection = http.client.HTTPConnection(LOOPBACK, self._options.port, timeout=_TIMEOUT_SECONDS)
        try:
            connection.request("GET", urlsplit(url).path, headers={"Host": urlsplit(url).netloc})
            response = connection.getresponse()
            with session.write(flowfile) as output:
                while chunk := response.read(_CHUNK_BYTES):
                    output.write(chunk)
            attributes = {"http.status_code": str(response.status)}
            for name, header in (("mime.type", "Content-Type"), ("http.location", "Location")):
                if (value := response.getheader(header)) is not None:
                    attributes[name] = value
            return attributes
        finally:
            connection.close()


def crawl_lineage(repository: Repository) -> Lineage:
    """Return the lineage of the newest crawl, from its first page on.

    Raises:
        NotFoundError: nothing was crawled.
    """
    found = repository.search("event_type:RECEIVE AND component_id:web_crawler.get_http", limit=1).events
    if not found:
        raise NotFoundError("the repository has no crawl. Run `custody example crawl FOLDER`.")
    return repository.lineage([found[0].event.flowfile_uuid])


def crawl_picture(repository: Repository) -> str:
    """Return the lineage of the newest crawl as SVG, with numbers for uuids: equal crawls give equal pictures.

    Raises:
        NotFoundError: nothing was crawled.
    """
    numbers: dict[str, str] = {}
    # In the order of their ids, as times of two crawls differ by milliseconds.
    lineage = crawl_lineage(repository).with_events(lambda one: msgspec.structs.replace(one, event_time=one.event_id))
    text = msgspec.json.encode(repository.diagram(lineage)).decode()
    text = _UUID.sub(lambda match: numbers.setdefault(match[0], f"FlowFile {len(numbers) + 1}"), text)
    diagram = _DIAGRAM.decode(_OWN_NUMBER.sub("", text))
    return export(diagram, ExportFormat.SVG)
