"""Names of certificates as Java prints them, and the rules that make principals of them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.security.principals import PrincipalRules, distinguished_name


def tlv(tag: int, body: bytes) -> bytes:
    size = len(body)
    return bytes([tag]) + (bytes([size]) if size < 128 else bytes([0x82]) + size.to_bytes(2)) + body


def certificate(subject: bytes) -> bytes:
    """As much of a certificate as a subject needs around it."""
    empty = tlv(0x30, b"")
    fields = tlv(0xA0, b"\x02\x01\x02") + tlv(2, b"\1") + empty + empty + empty + subject
    return tlv(0x30, tlv(0x30, fields) + empty + tlv(3, b"\0"))


#: DER of a Name, and what X500Principal.getName() of OpenJDK 17 says of it.
JAVA = [
    (
        "305f310a3008060355040c14012c3114300806035504050c01623008060355040602010531193017060a0992268993f22c6401190c092b615c5a3b2ce4b8ad3120300e06035504070c07202b5a3d232e3e300e060355040b1b0728232f285a2061",
        "L=\\ \\+Z\\=\\#.\\>+OU=(\\#/(Z a,DC=\\+a\\\\Z\\;\\,中,2.5.4.5=#0c0162+C=#020105,2.5.4.12=#14012c",
    ),
    (
        "3057310a3008060355040c0c012f3122300806035504060201053016060a0992268993f22c6401011308203d3a283a2b612c31123010060a0992268993f22c64011914022b2f3111300f06035504080c085c3e393be4b8ad2e",
        "ST=\\\\\\>9\\;中.,DC=\\+/,C=#020105+UID=\\ \\=:(:\\+a\\,,2.5.4.12=#0c012f",
    ),
    (
        "30433120300906035504031b022c2b3013060a0992268993f22c6401190c053e202e2d22310c300a06035504081c032c3d3a3111300f06035504070c083c5a003d2e2f205c",
        'L=\\<Z\\00\\=./ \\\\,ST=#1c032c3d3a,CN=\\,\\++DC=\\> .-\\"',
    ),
    (
        "305f3120300d06035504031b0627272c27202c300f06035504030c083d202c2b3e3b3e5a310f300d060355040a1606272c3a275a2b310b3009060355040c0c023b22311d300b060355040816043f235a3d300e06035504060c070022223e3b2f3d",
        "ST=?\\#Z\\=+C=\\00\\\"\\\"\\>\\;/\\=,2.5.4.12=#0c023b22,O='\\,:'Z\\+,CN=''\\,' \\,+CN=\\= \\,\\+\\>\\;\\>Z",
    ),
    (
        "30623113300706035504060c0030080603550403020105310a3008060355040b1b0162311c3007060355040a1400301106035504060c0a6123402b3d40e4b8ad003121300e06035504030c07403b3b393d222f300f06035504051b082727622e39273a29",
        'CN=@\\;\\;9\\=\\"/+2.5.4.5=#1b082727622e39273a29,O=+C=a\\#@\\+\\=@中\\00,OU=b,C=+CN=#020105',
    ),
    (
        "305531183008060355040c0c015f300c06035504061b053a5a2e3f613111300f06035504030c08002d5a3c006100203114301206035504070c0be4b8ad2d2b233d22e4b8ad3110300e060355040c130728282e39203a2b",
        '2.5.4.12=#130728282e39203a2b,L=中-\\+\\#\\=\\"中,CN=\\00-Z\\<\\00a\\00\\ ,2.5.4.12=#0c015f+C=:Z.?a',
    ),
    (
        "30413123300f060355040a14082d206223292b3d29301006035504080c092be4b8ad2b392f2c3b310a30080603550409130128310e300c06035504090c05223e00232c",
        'STREET=\\"\\>\\00\\#\\,,STREET=(,O=- b\\#)\\+\\=)+ST=\\+中\\+9/\\,\\;',
    ),
    (
        "305f3122300c06035504060c05402c2f5f2c3012060a0992268993f22c6401010c0420223e5c310c300a060355040b0c035a203b31173009060355040b13022e3d300a060355040316032d2f293112301006092b06010401868d1f011303615a29",
        '1.3.6.1.4.1.99999.1=#1303615a29,OU=.\\=+CN=-/),OU=Z \\;,C=@\\,/_\\,+UID=\\ \\"\\>\\\\',
    ),
    (
        "303e310c300a06035504090c03203b3e3121300e06035504080c073d2e2f223e5c2b300f0603550407140820292d28272c202c310b300906035504060c023e2e",
        "C=\\>.,ST=\\=./\\\"\\>\\\\\\++L=\\ )-('\\, \\,,STREET=\\ \\;\\>",
    ),
    (
        "30543110300e06035504030c07e4b8ad00623d2e3120300e0603550406160761292b2d2c2028300e060a0992268993f22c6401011b003111300f06035504060c085c40e4b8ad5f203e310b3009060355040a0c022b3b",
        "O=\\+\\;,C=\\\\@中_ \\>,C=a)\\+-\\, (+UID=,CN=中\\00b\\=.",
    ),
    (
        "3052310b3009060355040b0c025c5c311f300d060355040514062d2b23625a61300e06035504030c07403c00225c3b09310e300c060355040b1b052b2f27295a3112301006035504030c09233d2e2a6161e4b8ad",
        "CN=\\#\\=.*aa中,OU=\\+/')Z,2.5.4.5=#14062d2b23625a61+CN=@\\<\\00\\\"\\\\\\;\t,OU=\\\\\\\\",
    ),
    (
        "304e311a300706035504081c00300f060355040a160820285a3f20232d283122300d06035504080c063d00e4b8ad3d3011060a0992268993f22c6401190c033c2c3d310c300a06035504071403283929",
        "L=(9),ST=\\=\\00中\\=+DC=\\<\\,\\=,ST=#1c00+O=\\ (Z? \\#-(",
    ),
    (
        "304c310b300906035504070c02095c311d300c060355040b0c052a402d222a300d06035504081606282e392d3d233110300e060355040913073f612c2b28292e310c300a06035504031c0339233a",
        'CN=#1c0339233a,STREET=?a\\,\\+().,OU=*@-\\"*+ST=(.9-\\=\\#,L=\t\\\\',
    ),
    (
        "305f311a3007060355040b0c00300f060355040314082328283d2b232761310a300806035504060c015c3111300f060a0992268993f22c6401190201053122300806035504080201053016060a0992268993f22c64010116086228613d2c5a3a61",
        "ST=#020105+UID=b(a\\=\\,Z:a,DC=#020105,C=\\\\,OU=+CN=\\#((\\=\\+\\#'a",
    ),
]


@pytest.mark.parametrize(("subject", "printed"), JAVA)
def test_a_subject_is_printed_as_java_prints_it(subject: str, printed: str) -> None:
    assert distinguished_name(certificate(bytes.fromhex(subject))) == printed


@given(st.binary(max_size=60), st.integers(0, 40))
def test_garbage_is_a_value_error(body: bytes, cut: int) -> None:
    whole = certificate(bytes.fromhex(JAVA[0][0]))
    for data in (body, certificate(body), certificate(tlv(0x30, tlv(0x31, tlv(0x30, body)))), whole[:cut]):
        with suppress(ValueError):
            distinguished_name(data)


NAME = "CN=duke,OU=ServiceUsers,O=Org,C=US"


@pytest.mark.parametrize(
    ("rules", "name", "principal"),
    [
        ("DEFAULT", NAME, NAME),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", NAME, "duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/U", NAME, "DUKE"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/L", NAME, "duke@serviceusers"),
        ("RULE:^cn=(.*?),.*$/$1/, RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U , DEFAULT", NAME, "DUKE"),
        ("RULE:^CN=other.*$/x/,DEFAULT", NAME, NAME),
        ("RULE:^CN=other.*$/x/", NAME, None),
        # Java replaces all matches: the second one is the empty text at the end.
        ("RULE:.*/x/", NAME, "xx"),
        # A reference to no group stands for itself; of $12 with one group, 2 is a digit.
        ("RULE:^CN=(.*?),.*$/$1@$4/", NAME, "duke@$4"),
        ("RULE:^CN=(.*?),.*$/$12/", NAME, "duke2"),
        ("RULE:^CN=(.*?),.*$/\\$1\\//", NAME, "$1/"),
        (r"RULE:^CN=(.*?)\/(.*)$/$2/", "CN=host/broker", "broker"),
        ("RULE:^(.*)$/$0/", "CN=a", "CN=a"),
    ],
)
def test_rules_map_names_as_kafkas_do(rules: str, name: str, principal: str | None) -> None:
    assert PrincipalRules(rules).name(name) == principal


@pytest.mark.parametrize(
    "rules",
    [
        "",
        "   ",
        "default",
        "RULE:",
        "RULE:a",
        "RULE:a/b",
        "RULE:a/b/X",
        "RULE:(/b/",
        "RULE:[a/b/",
        "DEFAULT x",
    ],
)
def test_rules_that_are_none(rules: str) -> None:
    with pytest.raises(ValueError, match="DEFAULT and RULE:PATTERN"):
        PrincipalRules(rules)
