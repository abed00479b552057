"""Reading of a published table's own files through the store that they lie in."""

from __future__ import annotations

from io import BytesIO

from pyiceberg.io import FileIO, InputFile, OutputFile

from custody.iceberg.table_folder import TableFolder


class StoreIO(FileIO):  # type: ignore[misc]
    """Opens the files of one table; it writes nothing."""

    def __init__(self, folder: TableFolder) -> None:
        super().__init__()
        self._folder = folder

    def new_input(self, location: str) -> InputFile:
        """Return a file of the table."""
        return _Input(location, self._folder)

    def new_output(self, location: str) -> OutputFile:
        """Refuse."""
        raise NotImplementedError(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Refuse."""
        raise NotImplementedError(str(location))


class _Input(InputFile):  # type: ignore[misc]
    def __init__(self, location: str, folder: TableFolder) -> None:
        super().__init__(location)
        self._folder = folder

    def __len__(self) -> int:
        return len(self._data())

    def exists(self) -> bool:
        """Whether it is there."""
        return self._folder.store.head(self._folder.key_of(self.location)) is not None

    def open(self, seekable: bool = True) -> BytesIO:
        """Return its content."""
        return BytesIO(self._data())

    def _data(self) -> bytes:
        return self._folder.store.get(self._folder.key_of(self.location))
