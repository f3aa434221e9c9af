"""Certificates of a CA of one's own, for servers on loopback."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


class Authority:
    """A CA whose files are in `folder`; `path` is its certificate."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
        made = self._builder(self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        usage = dict.fromkeys(
            (
                "digital_signature content_commitment key_encipherment data_encipherment "
                "key_agreement encipher_only decipher_only"
            ).split(),
            False,
        )
        made = made.add_extension(
            x509.KeyUsage(**usage, key_cert_sign=True, crl_sign=True), critical=True
        )
        self.path = str(self._write("ca.pem", made.sign(self._key, hashes.SHA256())))

    def issue(self, address: str = "127.0.0.1", *, days: int = 2) -> tuple[str, str]:
        """Return the files of a certificate and its key; below 0 days it has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, address)])
        shown = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        made = self._builder(name, key, days).add_extension(shown, critical=False)
        made = made.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
            critical=False,
        )
        certificate = self._write(f"{address}.{days}.pem", made.sign(self._key, hashes.SHA256()))
        path = certificate.with_suffix(".key")
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return str(certificate), str(path)

    def _builder(self, name, key, days: int = 2) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 10 * DAY)
            .not_valid_after(now + days * DAY)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
        )

    def _write(self, name: str, certificate: x509.Certificate) -> Path:
        path = self._folder / name
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return path
