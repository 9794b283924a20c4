"""Checks a proof of `audit prove` by docs/audit/format.md alone: check_proof.py [--witness KEY] PUBLIC-KEY PROOF... Needs openssl for Ed25519."""

import base64
import hashlib
import json
import re
import subprocess
import sys
import tempfile

HEADER = "c2sp.org/tlog-proof@v1"
SPKI_PREFIX = bytes.fromhex("302a300506032b6570032100")


class Refused(Exception):
    pass


def require(condition, reason):
    if not condition:
        raise Refused(reason)


def sha256(data):
    return hashlib.sha256(data).digest()


def decode(text):
    data = base64.b64decode(text, validate=True)
    require(base64.b64encode(data).decode() == text, "base64 has one spelling")
    return data


def number(text):
    require(re.fullmatch(r"0|[1-9][0-9]{0,14}", text), "a number")
    return int(text)


def raw_public_key(pem):
    lines = [line for line in pem.splitlines() if line and not line.startswith("-----")]
    der = base64.b64decode("".join(lines))
    require(der.startswith(SPKI_PREFIX) and len(der) == 44, "an Ed25519 public key")
    return der[12:]


def is_signature(text, signature, key_file):
    with tempfile.NamedTemporaryFile() as message, tempfile.NamedTemporaryFile() as sig:
        message.write(text)
        message.flush()
        sig.write(signature)
        sig.flush()
        command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", key_file, "-rawin"]
        command += ["-in", message.name, "-sigfile", sig.name]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def is_cosigned(text, name, signed, witness_file):
    """Rules of cosignature/v1: key id, time, signature."""
    with open(witness_file, encoding="ascii") as file:
        key = raw_public_key(file.read())
    if len(signed) != 76 or signed[:4] != sha256(name.encode() + b"\n\x04" + key)[:4]:
        return False
    time = int.from_bytes(signed[4:12], "big")
    return is_signature(f"cosignature/v1\ntime {time}\n{text}\n".encode(), signed[12:], witness_file)


def read_checkpoint(note, key_file, witness_file):
    text, separator, rest = note.partition("\n\n")
    require(separator and rest.endswith("\n"), "a signed note")
    origin, size, root = (text.split("\n") + ["", "", ""])[:3]
    require(text == f"{origin}\n{size}\n{root}", "three lines")
    match = re.fullmatch(r"digest-gateway/([\w.-]{1,64}(?:@[1-9][0-9]{0,3})?)/([1-9][0-9]{0,14})", origin, re.ASCII)
    require(match, "an origin of a gateway")
    with open(key_file, encoding="ascii") as file:
        key = raw_public_key(file.read())
    key_id = sha256(origin.encode() + b"\n\x01" + key)[:4]
    is_signed, seen = False, witness_file is None
    for line in rest[:-1].split("\n"):
        dash, name, signature = (line.split(" ") + ["", ""])[:3]
        require(line == f"\u2014 {name} {signature}" and dash == "\u2014", "a signature line")
        signed = decode(signature)
        if name == origin and signed[:4] == key_id and len(signed) == 68:
            is_signed = is_signed or is_signature(f"{text}\n".encode(), signed[4:], key_file)
        seen = seen or is_cosigned(text, name, signed, witness_file)
    require(is_signed, "the key signed it")
    require(seen, "the witness cosigned it")
    return match[1], int(match[2]), number(size), decode(root)


def root_of(leaf, index, size, path):
    """RFC 9162, section 2.1.3.2."""
    require(index < size, "the index is in the tree")
    node, last, root = index, size - 1, leaf
    for sibling in path:
        require(last > 0, "the path is not too long")
        if node % 2 == 1 or node == last:
            root = sha256(b"\x01" + sibling + root)
            while node % 2 == 0 and node > 0:
                node, last = node // 2, last // 2
        else:
            root = sha256(b"\x01" + root + sibling)
        node, last = node // 2, last // 2
    require(last == 0, "the path is not too short")
    return root


def check_record(entry, request_id, *key_files):
    require(set(entry) == {"record", "proof"}, "record and proof")
    line, proof = entry["record"], entry["proof"]
    head, separator, note = proof.partition("\n\n")
    require(separator, "a proof and a checkpoint")
    first_line, index_line, *path = head.split("\n")
    require(first_line == HEADER and index_line.startswith("index "), "the form of tlog-proof")
    index = number(index_line[len("index "):])
    replica, first, size, root = read_checkpoint(note, *key_files)
    leaf = sha256(b"\x00" + line.encode())
    require(root_of(leaf, index, size, [decode(each) for each in path]) == root, "the record is in the tree")
    record = json.loads(line)
    require(record["seq"] == first + index and record["replica"] == replica, "the record is at its place")
    require(record["requestId"] == request_id, "the record is of the request")
    return record


def check(file, *key_files):
    with open(file, encoding="utf-8") as handle:
        proof = json.load(handle)
    require(set(proof) == {"requestId", "records"} and proof["records"], "a proof of a request")
    records = [check_record(each, proof["requestId"], *key_files) for each in proof["records"]]
    access, *outcomes = records
    for outcome in outcomes:
        belongs = outcome["kind"] == "outcome" and outcome["access"] == access["seq"]
        require(belongs and outcome["replica"] == access["replica"], "the records are of one request")
    return len(records)


def main(*arguments):
    witness_file = arguments[1] if arguments[0] == "--witness" else None
    key_file, *files = arguments[2:] if witness_file else arguments
    for file in files:
        try:
            print(f"ok: {check(file, key_file, witness_file)}")
        except (Refused, ValueError, KeyError, TypeError, UnicodeError) as error:
            print(f"refused: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
