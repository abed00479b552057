"""Kerberos for backend `rest`: a login by user and password or keytab, and its tokens for HTTP services (SPNEGO).

The password is handed to the system's Kerberos and appears in no message. Errors are of two kinds. A refused user or
password is a setting to correct; it is not tried again, for a KDC may lock the user out. A KDC that does not answer, or
a host without a service, is a fault that may pass.
"""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from custody.config import NgsiSection
from custody.errors import ConfigurationError

INSTALL = "apt-get install gcc libkrb5-dev && pip install 'pyspnego[kerberos]'"
"""Two of its packages have no wheels for Linux: they are compiled against the system's Kerberos, here Debian's."""
_PACKAGES = ("spnego", "gssapi", "krb5")
# Numbers of libkrb5 that mean a setting to correct: neither the next NameNode nor a later try is worth it.
_REFUSED = {
    -1765328378,  # KDC_ERR_C_PRINCIPAL_UNKNOWN
    -1765328366,  # KDC_ERR_CLIENT_REVOKED: locked, or expired
    -1765328361,  # KDC_ERR_KEY_EXP: the password has to be changed
    -1765328360,  # KDC_ERR_PREAUTH_FAILED: another password
    -1765328353,  # KRB_AP_ERR_BAD_INTEGRITY: the same, where the KDC wants no proof beforehand
    -1765328203,  # KRB5_KT_NOTFOUND: the keytab has no key of this user
    -1765328250,  # KRB5_PARSE_MALFORMED: no name of a principal
}
_NO_REALM = {
    -1765328230,  # KRB5_REALM_UNKNOWN: there is no KDC in the file
    -1765328160,  # KRB5_CONFIG_NODEFREALM
    -1765328249,  # KRB5_CONFIG_CANTOPEN
    -1765328248,  # KRB5_CONFIG_BADFORMAT
}


def absent_packages() -> list[str]:
    """Return those of the packages that a login needs which are not installed."""
    return [name for name in _PACKAGES if find_spec(name) is None]


class Login:
    """Logs in as the settings say. Each token is a login of its own: one is needed only when a cookie expires."""

    def __init__(self, values: NgsiSection) -> None:
        """Check that the packages are installed, and the keytab is there.

        Raises:
            ConfigurationError: one is not.
        """
        if absent := absent_packages():
            raise ConfigurationError(
                f"ngsi.krb5_auth with backend rest: expected the packages of Kerberos, got no {', '.join(absent)}. "
                f"Run: {INSTALL}. Or take backend binary, whose client brings its own Kerberos."
            )
        if values.krb5_keytab is not None and not os.access(values.krb5_keytab, os.R_OK):
            raise ConfigurationError(
                f"ngsi.krb5_keytab: expected a keytab that can be read, got none at {values.krb5_keytab.absolute()}."
            )
        self._values = values
        self._refusal: str | None = None
        if Path(values.krb5_conf_file).is_file():
            # libkrb5 takes the file from the environment only.
            os.environ["KRB5_CONFIG"] = str(Path(values.krb5_conf_file).absolute())

    def token(self, host: str) -> bytes:
        """Return the first token for the HTTP service of a host.

        Raises:
            ConfigurationError: the user or the password is refused, or the realm is not known.
            ConnectionError: no KDC answers, or it knows no such service.
        """
        # The KDC is asked once: every thread and every retry comes here, and it may lock the user out.
        if self._refusal is not None:
            raise ConfigurationError(self._refusal)
        # Imported here: these packages are optional, and only a login needs them.
        import gssapi
        import krb5
        import spnego

        values = self._values
        try:
            proof: Any = values.krb5_user
            if values.krb5_keytab is not None:
                proof = spnego.KerberosKeytab(str(values.krb5_keytab.absolute()), values.krb5_user)
            client: Any = spnego.client(proof, values.krb5_password, hostname=host, service="HTTP", protocol="kerberos")
            token: bytes | None = client.step()
        except krb5.Krb5Error as error:  # of the login itself, which pyspnego does by libkrb5
            raise self._failed(host, error.err_code, error) from None
        except (spnego.exceptions.SpnegoError, gssapi.exceptions.GSSError) as error:
            raise self._failed(host, 0, error) from None
        return token or b""

    def _failed(self, host: str, code: int, error: Exception) -> ConfigurationError | ConnectionError:
        values = self._values
        # GSSAPI puts the reason behind the kind of error, libkrb5 puts it before the number.
        reason = re.sub(r".*Minor \(\d+\): ", "", str(getattr(error, "base_error", None) or error))
        reason = reason.removesuffix(str(code)).strip()
        if code in _REFUSED:
            secret = "ngsi.krb5_password" if values.krb5_keytab is None else "ngsi.krb5_keytab"
            self._refusal = (
                f"Kerberos: expected a login of {values.krb5_user}, got {reason!r}. Correct ngsi.krb5_user and "
                f"{secret}; it is not tried again before, so that nobody is locked out."
            )
            return ConfigurationError(self._refusal)
        if code in _NO_REALM:
            return ConfigurationError(
                f"Kerberos: expected the realm of {values.krb5_user}, got {reason!r}. Name its file in "
                f"ngsi.krb5_conf_file ({Path(values.krb5_conf_file).absolute()} now), in KRB5_CONFIG, or have it as "
                "/etc/krb5.conf."
            )
        return ConnectionError(f"Kerberos of {values.krb5_user} for HTTP/{host}: {reason}")
