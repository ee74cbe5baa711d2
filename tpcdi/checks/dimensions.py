"""Checks of what is in the dimensions and in Prospect."""

from typing import LiteralString

from psycopg.sql import SQL, Literal

from tpcdi.checks import Checks, answer, batches, none, query, rows, validated

TAGS: dict[str, LiteralString] = {
    "HighValue": "networth > 1000000 OR income > 200000",
    "Expenses": "numberchildren > 3 OR numbercreditcards > 5",
    "Boomer": "age > 45",
    "MoneyAlert": "income < 50000 OR creditrating < 600 OR networth < 100000",
    "Spender": "numbercars > 3 OR numbercreditcards > 7",
    "Inherited": "age < 25 AND networth > 1000000",
}

BROKER: Checks = {
    "DimBroker row count": query("""\
        SELECT NULL, count(*), '=', (SELECT sum(value) FROM audit
            WHERE dataset = 'DimBroker' AND attribute = 'HR_BROKERS')
        FROM dimbroker"""),
    "DimBroker distinct keys": query("""\
        SELECT NULL, count(DISTINCT sk_brokerid), '=', (SELECT sum(value) FROM audit
            WHERE dataset = 'DimBroker' AND attribute = 'HR_BROKERS')
        FROM dimbroker"""),
    "DimBroker BatchID": none("dimbroker WHERE batchid <> 1"),
    "DimBroker IsCurrent": none("dimbroker WHERE NOT iscurrent"),
    "DimBroker EffectiveDate": none("dimbroker WHERE effectivedate <> '1950-01-01'"),
    "DimBroker EndDate": none("dimbroker WHERE enddate <> '9999-12-31'"),
}

ACCOUNT: Checks = {
    "DimAccount row count": query(
        """\
        SELECT batchid, (SELECT count(*) FROM dimaccount WHERE batchid = batch.batchid),
            CASE batchid WHEN 1 THEN '>' ELSE '>=' END,
            {told} - {again} + CASE batchid WHEN 1 THEN {of_customers} - {customers} ELSE 0 END
        FROM batch""",
        told=answer("DimAccount", "CA_ADDACCT", "CA_CLOSEACCT", "CA_UPDACCT"),
        again=answer("DimAccount", "CA_ID_HIST"),
        of_customers=answer("DimCustomer", "C_NEW", "C_UPDCUST", "C_INACT"),
        customers=answer("DimCustomer", "C_ID_HIST"),
    ),
    "DimAccount TaxStatus": none("dimaccount WHERE batchid = 1 AND taxstatus NOT IN (0, 1, 2)"),
    "DimAccount inactive customers": none("""\
        (SELECT sk_customerid
        FROM dimcustomer JOIN dimaccount USING (sk_customerid)
        WHERE dimcustomer.status = 'Inactive'
        GROUP BY sk_customerid
        HAVING count(*) FILTER (WHERE dimaccount.status = 'Inactive') = 0) AS wrong"""),
}

CUSTOMER: Checks = {
    "DimCustomer row count": query(
        """\
        SELECT batchid, (SELECT count(*) FROM dimcustomer WHERE batchid = batch.batchid), '>=',
            {told} - {again}
        FROM batch""",
        told=answer("DimCustomer", "C_NEW", "C_INACT", "C_UPDCUST"),
        again=answer("DimCustomer", "C_ID_HIST"),
    ),
    "DimCustomer inactive customers": query(
        "SELECT batchid, {found}, '=', {wanted} FROM batch",
        found=validated("DimCustomer", "Inactive customers"),
        wanted=answer("DimCustomer", "C_INACT", of="<="),
    ),
    "DimCustomer Gender": none("dimcustomer WHERE gender NOT IN ('M', 'F', 'U')"),
    "DimCustomer age range alerts": query(
        """\
        SELECT batchid, (SELECT count(*) FROM told WHERE type = 'Alert'
            AND text = 'DOB out of range' AND told.batchid = batch.batchid), '=', {wanted}
        FROM batch""",
        wanted=answer("DimCustomer", "C_DOB_TO", "C_DOB_TY"),
    ),
    "DimCustomer customer tier alerts": query(
        """\
        SELECT batchid, (SELECT count(*) FROM told WHERE type = 'Alert'
            AND text = 'Invalid customer tier' AND told.batchid = batch.batchid), '=', {wanted}
        FROM batch""",
        wanted=answer("DimCustomer", "C_TIER_INV"),
    ),
    "DimCustomer TaxID": none("dimcustomer WHERE taxid NOT LIKE '___-__-____'"),
    "DimCustomer Email1": none("dimcustomer WHERE email1 NOT LIKE '_%.%@%.%'"),
    "DimCustomer Email2": none("dimcustomer WHERE email2 NOT LIKE '_%.%@%.%' AND email2 <> ''"),
    "DimCustomer demographic fields": query("""\
        SELECT NULL, count(*), '=',
            (SELECT count(*) FROM dimcustomer WHERE agencyid IS NOT NULL AND iscurrent)
        FROM dimcustomer AS c
        JOIN prospect AS p
            ON upper(c.firstname || c.lastname || c.addressline1 || coalesce(c.addressline2, '')
                || c.postalcode)
            = upper(p.firstname || p.lastname || p.addressline1 || coalesce(p.addressline2, '')
                || p.postalcode)
            AND coalesce(c.creditrating, 0) = coalesce(p.creditrating, 0)
            AND coalesce(c.networth, 0) = coalesce(p.networth, 0)
            AND coalesce(c.marketingnameplate, '') = coalesce(p.marketingnameplate, '')
        WHERE c.iscurrent"""),
}
CUSTOMER |= {
    f"DimCustomer Phone{n}": none(
        "dimcustomer WHERE {phone} !~ '^((([+]1 )?[(].{{3}}[)] )?.{{3}}-.{{4}}.*)?$'",
        phone=f"phone{n}",
    )
    for n in (1, 2, 3)
}
CUSTOMER |= {
    f"DimCustomer {kind}TaxRate": query(
        """\
        SELECT NULL, count(*) FILTER (WHERE tx_name IS NULL), '=', 0
        FROM dimcustomer LEFT JOIN taxrate ON tx_name = {name} AND tx_rate = {rate}
        UNION ALL SELECT NULL, count(DISTINCT {name}), '>=', {least} FROM dimcustomer""",
        name=f"{kind.lower()}taxratedesc",
        rate=f"{kind.lower()}taxrate",
        least=Literal(least),
    )
    for kind, least in (("Local", 301), ("National", 9))
}

SECURITY: Checks = {
    "DimSecurity row count": query(
        "SELECT batchid, {found}, '>=', {wanted} FROM batch WHERE batchid = 1",
        found=validated("DimSecurity"),
        wanted=answer("DimSecurity", "FW_SEC"),
    ),
    "DimSecurity ExchangeID": none(
        "dimsecurity WHERE exchangeid NOT IN ('NYSE', 'NASDAQ', 'AMEX', 'PCX')"
    ),
    "DimSecurity Issue": none(
        "dimsecurity WHERE issue NOT IN ('COMMON', 'PREF_A', 'PREF_B', 'PREF_C', 'PREF_D')"
    ),
}

COMPANY: Checks = {
    "DimCompany row count": query(
        "SELECT batchid, {found}, '<=', {wanted} FROM batch",
        found=validated("DimCompany"),
        wanted=answer("DimCompany", "FW_CMP", of="<="),
    ),
    "DimCompany distinct names": none("""\
        dimcompany AS one JOIN dimcompany AS other
            ON other.name = one.name AND other.companyid <> one.companyid"""),
    "DimCompany Industry": none("""\
        dimcompany WHERE (industry IN (SELECT in_name FROM industry)) IS NOT TRUE"""),
    "DimCompany SPrating": none(
        "dimcompany WHERE sprating !~ '^(AAA|CC|C|D|(AA|A|BBB|BB|B|CCC)[+-]?)$'"
    ),
    "DimCompany Country": none(
        "dimcompany WHERE country NOT IN ('Canada', 'United States of America', '')"
    ),
}

PROSPECT: Checks = {
    "Prospect SK_UpdateDateID": none("prospect WHERE sk_recorddateid < sk_updatedateid"),
    "Prospect SK_RecordDateID": rows(
        "Prospect", "datevalue >= firstday", "LEFT JOIN dimdate ON sk_dateid = sk_recorddateid"
    ),
    "Prospect batches": batches("Prospect", 3),
    "Prospect Country": none(
        "prospect WHERE country NOT IN ('Canada', 'United States of America')"
    ),
    # Every tag that applies is there, and what is there is some of the tags, in this order.
    "Prospect MarketingNameplate": none(
        """\
        prospect
        WHERE {untagged}
            OR (CASE WHEN marketingnameplate <> '' THEN '+' || marketingnameplate ELSE '' END)
                !~ {some}""",
        untagged=SQL(" OR ").join(
            query(
                "(" + condition + ") AND position({tag} IN coalesce(marketingnameplate, '')) = 0",
                tag=Literal(tag),
            )
            for tag, condition in TAGS.items()
        ),
        some=Literal("^" + "".join(f"([+]{tag})?" for tag in TAGS) + "$"),
    ),
}

CHECKS: Checks = BROKER | ACCOUNT | CUSTOMER | SECURITY | COMPANY | PROSPECT
