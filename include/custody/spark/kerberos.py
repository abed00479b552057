"""Who the driver's JVM is for a Hadoop with Kerberos: whom Spark has logged in, or the user of the settings.

Spark logs in by `spark.kerberos.principal` and `spark.kerberos.keytab` before any of this runs, or finds a ticket of
`kinit`. Otherwise `ngsi.krb5_user` and `ngsi.krb5_password` log in, as they do with REST. Hadoop has no way in for a
password, so Java's own module of Kerberos gets it in memory, and its ticket becomes Hadoop's login.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from custody.config import NgsiSection
from custody.errors import ConfigurationError

Java = Any
"""An object of the driver's JVM: py4j has no types."""
_AUTHENTICATION, _KERBEROS = "hadoop.security.authentication", "kerberos"
_PRINCIPALS = ("dfs.namenode.kerberos.principal", "dfs.namenode.kerberos.principal.pattern")
_OPTIONS = {"useFirstPass": "true", "refreshKrb5Config": "true"}
_SHARED = "javax.security.auth.login"


def log_in(jvm: Java, conf: Java, values: NgsiSection) -> None:
    """See that the JVM has a login before it connects; `conf` is that of the client, and wants Kerberos from then on.

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
    subject = _subject(jvm, values)
    conf.set(_AUTHENTICATION, _KERBEROS)
    # Only now does Java know the file above; Hadoop had asked it for the realm's name before.
    jvm.org.apache.hadoop.security.authentication.util.KerberosName.resetDefaultRealm()
    users.setConfiguration(conf)
    users.loginUserFromSubject(subject)


def _subject(jvm: Java, values: NgsiSection) -> Java:
    from py4j.protocol import Py4JJavaError

    password = jvm.java.io.CharArrayWriter()  # py4j makes a text of Python of every other way to characters
    given = values.krb5_password or ""
    password.write(given, 0, len(given.encode("utf-16-le")) // 2)
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
