"""HDFS over Hadoop's RPC, with the client that Spark brings: the files of `ngsi.backend = "binary"`.

The driver's JVM does the work, over py4j. Bytes are forced to the disks of their DataNodes (`hsync`) and the file is
closed before a write is acknowledged; REST can ask for the second only.

With Kerberos the user is the one whom Spark has logged in, by `spark.kerberos.principal` and `spark.kerberos.keytab` or
by a ticket of `kinit`. Otherwise `ngsi.krb5_user` logs in, as it does with REST: by `ngsi.krb5_keytab`, or by
`ngsi.krb5_password`. Hadoop takes no password, so Java's own Kerberos module gets it in memory, and its ticket becomes
Hadoop's login. A file of delegation tokens is taken in the place of a login. With `ngsi.hdfs_doas` the user, whoever it
is, acts for that one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from custody.config import NgsiSection
from custody.errors import ConfigurationError, StorageError
from custody.ngsi.parameters import Parameters
from custody.ngsi_sink.delegation import TokenFile, doas_and_token, token_file, token_refused
from custody.ngsi_sink.target import BusyError, not_a_file
from custody.ngsi_sink.webhdfs import authority, impersonation_refused, is_busy, is_impersonation_refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Result = TypeVar("Result")
Java = Any
"""An object of the driver's JVM: py4j has no types."""
_AUTHENTICATION, _KERBEROS = "hadoop.security.authentication", "kerberos"
_PRINCIPALS = ("dfs.namenode.kerberos.principal", "dfs.namenode.kerberos.principal.pattern")
_OPTIONS = {"useFirstPass": "true", "refreshKrb5Config": "true"}
_SHARED = "javax.security.auth.login"


def log_in(jvm: Java, conf: Java, values: NgsiSection) -> None:
    """Make sure that the JVM has a login before it connects; the client's `conf` uses Kerberos from then on.

    Raises:
        ConfigurationError: nobody is logged in, and the user or the password of the settings is refused; or nothing
            says who the NameNode is.
    """
    jvm.org.apache.hadoop.hdfs.HdfsConfiguration.init()  # hdfs-site.xml is read from here on
    if not any(conf.get(name) for name in _PRINCIPALS):
        raise ConfigurationError(
            f"ngsi.backend binary with krb5_auth: expected {_PRINCIPALS[0]} in the configuration of Hadoop, got none. "
            "Set HADOOP_CONF_DIR to the folder of the cluster's core-site.xml and hdfs-site.xml."
        )
    for name, file in (
        ("java.security.krb5.conf", values.krb5_conf_file),
        ("java.security.auth.login.config", values.krb5_login_conf_file),
    ):
        if Path(file).is_file():
            jvm.java.lang.System.setProperty(name, str(Path(file).absolute()))
    users = jvm.org.apache.hadoop.security.UserGroupInformation
    if users.isSecurityEnabled() and users.getLoginUser().hasKerberosCredentials():
        return
    if values.krb5_user is None or (values.krb5_password is None and values.krb5_keytab is None):
        raise ConfigurationError(
            "ngsi.backend binary with krb5_auth: expected a login of Spark (spark.kerberos.keytab), or ngsi.krb5_user "
            "with krb5_keytab or krb5_password, got neither."
        )
    subject = _subject(jvm, values) if values.krb5_keytab is None else None
    _use_kerberos(jvm, conf)
    if subject is not None:
        users.loginUserFromSubject(subject)
    else:
        _log_in_by_keytab(users, values)


def _use_kerberos(jvm: Java, conf: Java) -> None:
    conf.set(_AUTHENTICATION, _KERBEROS)
    # Hadoop asked Java for the realm's name before `ngsi.krb5_conf_file` was set: ask again.
    jvm.org.apache.hadoop.security.authentication.util.KerberosName.resetDefaultRealm()
    jvm.org.apache.hadoop.security.UserGroupInformation.setConfiguration(conf)


def _log_in_by_keytab(users: Java, values: NgsiSection) -> None:
    from py4j.protocol import Py4JJavaError

    keytab = str(values.krb5_keytab and values.krb5_keytab.absolute())
    try:
        users.loginUserFromKeytab(values.krb5_user, keytab)
    except Py4JJavaError as error:
        raise ConfigurationError(
            f"Kerberos: expected a login of {values.krb5_user} by the keytab {keytab}, got "
            f"{_reason(error.java_exception)}. Correct ngsi.krb5_user and ngsi.krb5_keytab, or ngsi.krb5_conf_file."
        ) from None


def _reason(error: Java) -> str:
    """Return the first line of what Java says, with that of its cause, which is the more precise one."""
    texts = [_first_line(item.getMessage()) for item in (error, error.getCause()) if item is not None]
    return "; ".join(dict.fromkeys(texts))


def _user_of_tokens(jvm: Java, conf: Java, parameters: Parameters, file: Path) -> Java:
    """Return a user of Hadoop's with the tokens of a file, who needs no login.

    Raises:
        ConfigurationError: the file cannot be read, or has no token for HDFS.
    """
    from py4j.protocol import Py4JJavaError

    # Read by the same parser as with REST, whose errors say what is wrong with the file.
    TokenFile(file, [authority(host, parameters.values.hdfs_port) for host in parameters.hosts])
    jvm.org.apache.hadoop.hdfs.HdfsConfiguration.init()  # hdfs-site.xml is read from here on
    _use_kerberos(jvm, conf)
    users = jvm.org.apache.hadoop.security.UserGroupInformation
    user = users.createRemoteUser(parameters.username)
    try:
        path = jvm.org.apache.hadoop.fs.Path(file.absolute().as_uri())
        user.addCredentials(jvm.org.apache.hadoop.security.Credentials.readTokenStorageFile(path, conf))
    except Py4JJavaError as error:
        raise ConfigurationError(
            f"{file}: expected Hadoop's delegation tokens, got {_reason(error.java_exception)}."
        ) from None
    return user


def _user(jvm: Java, conf: Java, parameters: Parameters) -> Java | None:
    """Return the user who connects, None for the one who is logged in; raises as `log_in` and `_user_of_tokens`."""
    values, file = parameters.values, token_file(parameters.values)
    users = jvm.org.apache.hadoop.security.UserGroupInformation
    # A login of Spark's is renewed, the tokens that YARN gave a driver at its start are not.
    is_logged_in = users.isSecurityEnabled() and users.getLoginUser().hasKerberosCredentials()
    if file is not None and not (is_logged_in and values.krb5_auth and values.delegation_token_file is None):
        if values.hdfs_doas is not None:
            raise doas_and_token(file)
        return _user_of_tokens(jvm, conf, parameters, file)
    if values.krb5_auth:
        log_in(jvm, conf, values)
        return None if values.hdfs_doas is None else users.createProxyUser(values.hdfs_doas, users.getLoginUser())
    real = users.createRemoteUser(parameters.username)
    return real if values.hdfs_doas is None else users.createProxyUser(values.hdfs_doas, real)


def _connect_as(user: Java | None, jvm: Java, gateway: Java, uri: Java, conf: Java) -> Java:
    """Return a new FileSystem of a user's own.

    `newInstance`, not `get`: Hadoop shares what `get` returns, and our close would close it for Spark as well.
    """
    files = jvm.org.apache.hadoop.fs.FileSystem
    if user is None:
        return files.newInstance(uri, conf)
    # `doAs` wants an object of a Java interface. Java itself makes one of a bound method, so that no call has to come
    # back to Python.
    kind_of = jvm.java.lang.Class.forName
    lookup, base = jvm.java.lang.invoke.MethodHandles, kind_of("org.apache.hadoop.fs.FileSystem")
    takes = gateway.new_array(jvm.java.lang.Class, 1)
    takes[0] = kind_of("org.apache.hadoop.conf.Configuration")
    signature = jvm.java.lang.invoke.MethodType.methodType(base, kind_of("java.net.URI"), takes)
    given = gateway.new_array(jvm.java.lang.Object, 2)
    given[0], given[1] = uri, conf
    bound = lookup.insertArguments(lookup.publicLookup().findStatic(base, "newInstance", signature), 0, given)
    action = kind_of("java.security.PrivilegedExceptionAction")
    return user.doAs(jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(action, bound))


def _subject(jvm: Java, values: NgsiSection) -> Java:
    from py4j.protocol import Py4JJavaError

    password = jvm.java.io.CharArrayWriter()  # py4j turns every other array of characters into a Python str
    secret = values.krb5_password or ""
    # Java counts in UTF-16 units, Python in characters.
    password.write(secret, 0, len(secret.encode("utf-16-le")) // 2)
    subject, shared, options = jvm.javax.security.auth.Subject(), jvm.java.util.HashMap(), jvm.java.util.HashMap()
    shared.put(f"{_SHARED}.name", values.krb5_user)
    shared.put(f"{_SHARED}.password", password.toCharArray())
    for name, value in _OPTIONS.items():
        options.put(name, value)
    module = jvm.com.sun.security.auth.module.Krb5LoginModule()
    module.initialize(subject, None, shared, options)
    try:
        module.login()
        module.commit()
    except Py4JJavaError as error:
        raise ConfigurationError(
            f"Kerberos: expected a login of {values.krb5_user}, got {error.java_exception.getMessage()}. "
            f"Correct ngsi.krb5_user and ngsi.krb5_password, or ngsi.krb5_conf_file "
            f"({Path(values.krb5_conf_file).absolute()} now), which names the realm's KDC."
        ) from None
    return subject


_NAMESERVICE = "custody"
"""The logical name, within this process, of several NameNodes that the settings list."""
_PROVIDER = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
_REPLICATION = "dfs.replication"
_READ_BYTES = 1 << 20


def rpc_files(session: SparkSession) -> Callable[[Parameters], RpcFiles]:
    """Return what opens the HDFS that parameters name, as the user that they name: `open_target(…, rpc=this)`.

    `ngsi.hdfs_host` may be a nameservice that Spark's configuration knows (`dfs.ha.namenodes.<name>`). With Kerberos
    the user is the one whom Spark has logged in, or else `ngsi.krb5_user`.
    """

    def opened(parameters: Parameters) -> RpcFiles:
        context: Java = session.sparkContext
        jvm = context._jvm  # PySpark has no other way to Hadoop's FileSystem
        conf = jvm.org.apache.hadoop.conf.Configuration(context._jsc.hadoopConfiguration())
        root, connected = _addressed(parameters, conf)
        user = _call("log in", connected, lambda: _user(jvm, conf, parameters))

        def connect() -> Java:
            return _connect_as(user, jvm, context._gateway, jvm.java.net.URI(connected), conf)

        def connect_as_the_cluster_wants() -> Java:
            # The client's default is three copies; on a cluster with fewer nodes an append would then fail.
            files = connect()
            copies = files.getServerDefaults(jvm.org.apache.hadoop.fs.Path("/")).getReplication()
            if copies == conf.getInt(_REPLICATION, 0):
                return files
            files.close()
            conf.setInt(_REPLICATION, copies)
            return connect()

        return RpcFiles(jvm, _call("connect", connected, connect_as_the_cluster_wants), root)

    return opened


class RpcFiles:
    """Files of an HDFS, through a FileSystem of the driver's JVM."""

    # A DataNode may go on writing what a caller that is gone has sent it.
    outlives_writers = True

    def __init__(self, jvm: Java, files: Java, root: str) -> None:
        self._jvm = jvm
        self._files = files
        self._root = root

    def size(self, path: str) -> int | None:
        """Return the bytes of a file, None where there is none."""

        def look() -> int | None:
            if not self._files.exists(self._path(path)):
                return None
            status = self._files.getFileStatus(self._path(path))
            if not status.isFile():
                raise not_a_file(self.uri(path))
            return int(status.getLen())

        return _call("getFileStatus", path, look)

    def digest(self, path: str, offset: int, length: int) -> str:
        """Return the SHA-256 of a piece of a file, in hexadecimal."""

        def read() -> str:
            digest, remaining = hashlib.sha256(), length
            stream = self._files.open(self._path(path))
            try:
                stream.seek(offset)
                while remaining and (piece := bytes(stream.readNBytes(min(remaining, _READ_BYTES)))):
                    digest.update(piece)
                    remaining -= len(piece)
            finally:
                stream.close()
            return digest.hexdigest()

        return _call("open", path, read)

    def settle(self, path: str) -> None:
        """Take the file from a writer that may have died, and wait until its length is agreed on."""
        if not _call("recoverLease", path, lambda: self._files.recoverLease(self._path(path))):
            raise BusyError("its DataNodes have not agreed on its length yet")

    def create(self, path: str, data: memoryview) -> None:
        """Create a file and the folders above it.

        Durability: on return the bytes are on the disks of as many DataNodes as HDFS wants before it closes a file.
        """
        # False: never overwrite. Where a lost call made the file, the look at it is repeated.
        _call("create", path, lambda: self._write(self._files.create(self._path(path), False), data))

    def append(self, path: str, data: memoryview) -> None:
        """Add bytes at the end of a file.

        Durability: as of `create`.
        """
        try:
            _call("append", path, lambda: self._write(self._files.append(self._path(path)), data))
        except BusyError:
            self.settle(path)  # otherwise HDFS leaves the file to a dead writer for a minute
            raise

    def cut(self, path: str, length: int) -> None:
        """Cut a file; BusyError until the DataNodes have done it."""
        if not _call("truncate", path, lambda: self._files.truncate(self._path(path), length)):
            raise BusyError("it is being cut at the DataNodes")

    def walk(self, folder: str) -> Iterator[str]:
        """Yield the paths of all files below a folder."""

        def look() -> list[str]:
            if not self._files.exists(self._path(folder)):
                return []
            paths, statuses = [], self._files.listFiles(self._path(folder), True)
            while statuses.hasNext():
                paths.append(str(statuses.next().getPath().toUri().getPath()))
            return paths

        yield from _call("listFiles", folder, look)

    def read(self, path: str) -> bytes:
        """Return a file."""

        def read() -> bytes:
            stream = self._files.open(self._path(path))
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

        return _call("open", path, read)

    def remove(self, folder: str) -> None:
        """Remove a folder with all that is in it."""
        _call("delete", folder, lambda: self._files.delete(self._path(folder), True))

    def uri(self, path: str) -> str:
        """Return `hdfs://…` with the first NameNode of the settings, whichever is active, or the nameservice."""
        return f"{self._root}{quote(path)}"

    def close(self) -> None:
        """Give connections back."""
        _call("close", self._root, self._files.close)

    def _path(self, path: str) -> Java:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    @staticmethod
    def _write(stream: Java, data: memoryview) -> None:
        try:
            stream.write(bytes(data))
            # Before the close, which alone leaves the bytes in the memory of the DataNodes.
            stream.hsync()
        finally:
            stream.close()


def _addressed(parameters: Parameters, conf: Java) -> tuple[str, str]:
    """Return the public name of the file system, and the one to connect to, which is added to `conf`."""
    hosts, port = parameters.hosts, parameters.values.hdfs_port
    root = f"hdfs://{authority(hosts[0], port)}"
    if len(hosts) == 1:
        named = conf.get(f"dfs.ha.namenodes.{hosts[0]}")
        return (f"hdfs://{hosts[0]}",) * 2 if named else (root, root)
    names = [f"nn{number}" for number in range(len(hosts))]
    conf.set("dfs.nameservices", _NAMESERVICE)
    conf.set(f"dfs.ha.namenodes.{_NAMESERVICE}", ",".join(names))
    conf.set(f"dfs.client.failover.proxy.provider.{_NAMESERVICE}", _PROVIDER)
    for name, host in zip(names, hosts, strict=True):
        conf.set(f"dfs.namenode.rpc-address.{_NAMESERVICE}.{name}", authority(host, port))
    return root, f"hdfs://{_NAMESERVICE}"


def _call(operation: str, path: str, do: Callable[[], Result]) -> Result:
    # Imported here: this module is also loaded where Spark is not installed.
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        return do()
    except Py4JJavaError as error:
        kind, message = _java_error(error.java_exception)
        if is_busy(kind, message):
            raise BusyError(f"{kind}: {message}") from error
        if is_impersonation_refused(message):
            raise impersonation_refused(message) from None
        if kind.endswith("InvalidToken"):
            raise token_refused(message) from None
        raise StorageError(f"HDFS {operation} {path}: expected it to be done, got {kind}: {message}") from error
    except PySparkException as error:  # PySpark converts some Java exceptions, such as that of a bad argument
        raise StorageError(f"HDFS {operation} {path}: expected it to be done, got {_first_line(error)}") from error
    except Py4JError as error:
        raise StorageError(f"HDFS {operation} {path}: expected an answer of Spark's JVM, got {error}") from error


def _java_error(error: Java) -> tuple[str, str]:
    """Return the exception's class and message; one that the NameNode sent is wrapped."""
    name = str(error.getClass().getName())
    if name.endswith(".RemoteException"):
        name = str(error.getClassName())
    return name, _first_line(error.getMessage() or "")


def _first_line(said: object) -> str:
    return str(said).strip().partition("\n")[0][:200]
