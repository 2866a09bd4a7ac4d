"""Apache's ADBC driver for Flight SQL as a foreign client of the DuckDB server.

Takes the server's URI. Prints one line of JSON for each check: its name, whether
it holds, and a note.
"""

import contextlib
import json
import sys
import threading
import time

import adbc_driver_flightsql.dbapi as flightsql
import adbc_driver_manager
import pyarrow as pa
import pyarrow.compute as pc

URI = sys.argv[1]
CHECKS = []


def check(name):
    """Registers a check: it raises what does not hold, and may return a note."""

    def register(run):
        CHECKS.append((name, run))
        return run

    return register


@contextlib.contextmanager
def cursor(**options):
    with flightsql.connect(URI, autocommit=True, **options) as conn, conn.cursor() as cur:
        yield cur


def table(cur, sql, parameters=None):
    cur.execute(sql, parameters)
    return cur.fetch_arrow_table()


def count(cur, name):
    return table(cur, f"SELECT count(*) AS n FROM {name}")["n"][0].as_py()


def equal(got, want):
    if got != want:
        raise AssertionError(f"got {got!r}, want {want!r}")


def fails(kind, run):
    try:
        run()
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__} was raised")


@check("connects, and says what it is")
def _():
    with flightsql.connect(URI, autocommit=True) as conn:
        info = conn.adbc_get_info()
        equal(info["vendor_name"], "DuckDB")
        return f"{info['vendor_name']} {info['vendor_version']}, {info['driver_name']} {info['driver_version']}"


@check("a query's types arrive as Arrow has them")
def _():
    with cursor() as cur:
        got = table(
            cur,
            """SELECT true AS b, 1::TINYINT AS i8, 2::INTEGER AS i32, 3::BIGINT AS i64, 4::UBIGINT AS u64,
            1.5::FLOAT AS f32, 2.5::DOUBLE AS f64, 12.34::DECIMAL(9,2) AS d, 'zoë' AS s, '\\xAA'::BLOB AS x,
            DATE '2001-02-03' AS day, TIMESTAMP '2001-02-03 04:05:06.789' AS ts, TIME '04:05:06' AS t,
            [1, 2] AS l, {'a': 1, 'b': 'x'} AS st, MAP {'k': 7} AS m, NULL::INTEGER AS n""",
        )
    want = {
        "b": pa.bool_(), "i8": pa.int8(), "i32": pa.int32(), "i64": pa.int64(), "u64": pa.uint64(),
        "f32": pa.float32(), "f64": pa.float64(), "d": pa.decimal128(9, 2), "s": pa.string(), "x": pa.binary(),
        "day": pa.date32(), "ts": pa.timestamp("us"), "t": pa.time64("us"), "l": pa.list_(pa.int32()),
        "m": pa.map_(pa.string(), pa.int32()), "n": pa.int32(),
    }
    for name, kind in want.items():
        # DuckDB names the fields of lists and maps in its own way.
        if not got.schema.field(name).type.equals(kind) and not pa.types.is_nested(kind):
            raise AssertionError(f"{name} is {got.schema.field(name).type}, want {kind}")
    row = got.to_pylist()[0]
    equal((row["s"], row["x"], str(row["d"]), row["l"], row["st"], row["m"], row["n"]),
          ("zoë", b"\xaa", "12.34", [1, 2], {"a": 1, "b": "x"}, [("k", 7)], None))
    return f"{len(got.schema)} types"


@check("an aggregate is what pyarrow computes from the same rows")
def _():
    with cursor() as cur:
        rows = table(cur, "SELECT origin, delay, distance FROM flights")
        got = table(cur, """SELECT origin, count(*) AS n, sum(distance) AS miles, avg(delay) AS delay
                            FROM flights GROUP BY origin ORDER BY origin""")
    want = rows.group_by("origin").aggregate([([], "count_all"), ("distance", "sum"), ("delay", "mean")]).sort_by("origin")
    equal(got["origin"].to_pylist(), want["origin"].to_pylist())
    equal(got["n"].to_pylist(), want["count_all"].to_pylist())
    equal([int(x) for x in got["miles"].to_pylist()], want["distance_sum"].to_pylist())
    furthest = max(abs(a - b) for a, b in zip(got["delay"].to_pylist(), want["delay_mean"].to_pylist()))
    if furthest > 1e-9:
        raise AssertionError(f"averages differ by {furthest}")
    return f"{rows.num_rows} rows, {got.num_rows} groups"


@check("a large result comes whole, its first batch early")
def _():
    with cursor() as cur:
        began = time.monotonic()
        cur.execute("SELECT i, i * 2 AS twice FROM range(5000000) t(i)")
        reader = cur.fetch_record_batch()
        first, rows, total = None, 0, 0
        for batch in reader:
            first = first or time.monotonic() - began
            rows += batch.num_rows
            total += pc.sum(batch["twice"]).as_py()
        whole = time.monotonic() - began
    equal((rows, total), (5_000_000, 4_999_999 * 5_000_000))
    if first > whole / 2:
        raise AssertionError(f"the first batch took {first:.3f} of {whole:.3f} s")
    return f"first batch after {first * 1000:.0f} of {whole * 1000:.0f} ms"


@check("an empty result keeps its schema")
def _():
    with cursor() as cur:
        got = table(cur, "SELECT 1::BIGINT AS a, 'x' AS b WHERE false")
    equal((got.num_rows, got.schema.names), (0, ["a", "b"]))


@check("parameters of a query")
def _():
    with cursor() as cur:
        got = table(cur, "SELECT ? + 1 AS n, ? || '!' AS s, ?::DATE AS d", (41, "zoë", "2001-02-03"))
        equal([got["n"][0].as_py(), got["s"][0].as_py(), str(got["d"][0])], [42, "zoë!", "2001-02-03"])
        equal(table(cur, "SELECT $1::INTEGER IS NULL AS yes", (None,))["yes"][0].as_py(), True)


@check("executemany binds a stream of rows")
def _():
    with cursor() as cur:
        cur.execute("CREATE OR REPLACE TABLE many (i BIGINT, s VARCHAR)")
        rows = pa.table({"i": range(10_000), "s": [f"row {i}" for i in range(10_000)]})
        batches = pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(max_chunksize=999))
        cur.executemany("INSERT INTO many VALUES (?, ?)", batches)
        equal(cur.rowcount, 10_000)
        equal(table(cur, "SELECT * FROM many ORDER BY i").to_pydict(), rows.to_pydict())
        cur.executemany("DELETE FROM many WHERE i = ?", [(1,), (2,), (10_001,)])
        equal(cur.rowcount, 2)
        cur.execute("DROP TABLE many")


@check("a prepared statement tells its parameters and rows")
def _():
    with cursor() as cur:
        equal(cur.adbc_execute_schema("SELECT 1::BIGINT AS a").names, ["a"])
        parameters = cur.adbc_prepare("SELECT count(*) FROM airports WHERE iata = ? AND latitude > ?")
        equal([f.type for f in parameters], [pa.string(), pa.float64()])


@check("rows affected by changes")
def _():
    with cursor() as cur:
        cur.execute("CREATE OR REPLACE TABLE affected AS SELECT * FROM range(10) t(i)")
        cur.adbc_statement.set_sql_query("UPDATE affected SET i = i + 1 WHERE i < 4")
        equal(cur.adbc_statement.execute_update(), 4)
        equal(table(cur, "DELETE FROM affected WHERE i = 9 RETURNING i").to_pydict(), {"i": [9]})
        cur.execute("DROP TABLE affected")


@check("adbc_ingest: create, append, replace, create_append")
def _():
    rows = pa.table({"i": pa.array(range(200_000), pa.int64()), "s": pa.array([str(i) if i % 7 else None for i in range(200_000)])})
    with cursor() as cur:
        cur.execute("DROP TABLE IF EXISTS ingested")
        equal(cur.adbc_ingest("ingested", rows, mode="create"), 200_000)
        equal(table(cur, "SELECT * FROM ingested ORDER BY i").to_pydict(), rows.to_pydict())
        error = fails(flightsql.Error, lambda: cur.adbc_ingest("ingested", rows, mode="create"))
        if "exist" not in str(error):
            raise AssertionError(f"create over a table says {error}")
        equal(cur.adbc_ingest("ingested", rows.slice(0, 5), mode="append"), 5)
        equal(count(cur, "ingested"), 200_005)
        cur.adbc_ingest("ingested", rows.slice(0, 3), mode="replace")
        equal(count(cur, "ingested"), 3)
        cur.adbc_ingest("ingested", rows.slice(0, 3), mode="create_append")
        equal(count(cur, "ingested"), 6)
        cur.execute("DROP TABLE ingested")
        fails(flightsql.Error, lambda: cur.adbc_ingest("ingested", rows, mode="append"))


@check("adbc_ingest: schemas and temporary tables")
def _():
    rows = pa.table({"i": [1, 2, 3]})
    with cursor() as cur:
        cur.execute("CREATE SCHEMA IF NOT EXISTS elsewhere")
        cur.adbc_ingest("here", rows, mode="replace", db_schema_name="elsewhere")
        equal(count(cur, "elsewhere.here"), 3)
        cur.adbc_ingest("mine", rows, mode="create", temporary=True)
        equal(count(cur, "mine"), 3)
        with cursor() as other:
            fails(flightsql.Error, lambda: count(other, "mine"))
        cur.execute("DROP SCHEMA elsewhere CASCADE")


@check("transactions: what is rolled back is gone, what is committed is there")
def _():
    # A connection without a commit at its end gives up what it did.
    with cursor() as other:
        other.execute("CREATE OR REPLACE TABLE tx (i BIGINT)")
        with flightsql.connect(URI) as conn, conn.cursor() as cur:
            cur.execute("INSERT INTO tx VALUES (1)")
            equal((count(cur, "tx"), count(other, "tx")), (1, 0))
            conn.rollback()
            # The driver would repeat the same text as the statement that it
            # has prepared in the transaction before, which is over.
            stale = fails(flightsql.ProgrammingError, lambda: count(cur, "tx"))
            if "unknown transaction" not in str(stale):
                raise AssertionError(f"a statement of an ended transaction says {stale}")
            equal(table(cur, "SELECT i FROM tx").num_rows, 0)
            cur.execute("INSERT INTO tx VALUES (2)")
            conn.commit()
            equal(count(other, "tx"), 1)
            cur.execute("INSERT INTO tx VALUES (3)")
        equal(table(other, "SELECT i FROM tx").to_pydict(), {"i": [2]})
        other.execute("DROP TABLE tx")


@check("transactions: a failed statement aborts, rollback mends")
def _():
    with flightsql.connect(URI) as conn, conn.cursor() as cur:
        cur.execute("CREATE TABLE undone (i INTEGER)")
        fails(flightsql.Error, lambda: cur.execute("SELECT * FROM missing"))
        conn.rollback()
        gone = fails(flightsql.Error, lambda: count(cur, "undone"))
        if "does not exist" not in str(gone):
            raise AssertionError(f"a table that was rolled back says {gone}")
        conn.rollback()
        equal(table(cur, "SELECT 1 AS x")["x"].to_pylist(), [1])


@check("metadata: objects, table schema, table types")
def _():
    with flightsql.connect(URI, autocommit=True) as conn:
        objects = conn.adbc_get_objects(depth="all", table_name_filter="airports").read_all().to_pylist()
        tables = [t for c in objects for s in c["catalog_db_schemas"] or [] for t in s["db_schema_tables"] or []]
        equal([t["table_name"] for t in tables], ["airports"])
        columns = [c["column_name"] for c in tables[0]["table_columns"]]
        equal(columns, conn.adbc_get_table_schema("airports").names)
        schemas = conn.adbc_get_objects(depth="db_schemas").read_all().to_pylist()
        if "main" not in [s["db_schema_name"] for c in schemas for s in c["catalog_db_schemas"]]:
            raise AssertionError(f"schema main is not among {schemas}")
        with conn.cursor() as cur:
            equal(conn.adbc_get_table_schema("airports"), table(cur, "SELECT * FROM airports LIMIT 0").schema)
        fails(flightsql.Error, lambda: conn.adbc_get_table_schema("missing"))
        return f"table types {', '.join(sorted(conn.adbc_get_table_types()))}"


@check("the current catalog and schema are those that are set")
def _():
    with flightsql.connect(URI, autocommit=True) as conn, conn.cursor() as cur:
        cur.execute("CREATE SCHEMA IF NOT EXISTS current")
        conn.adbc_current_db_schema = "current"
        equal(conn.adbc_current_db_schema, "current")
        equal(table(cur, "SELECT current_schema() AS s")["s"].to_pylist(), ["current"])
        with cursor() as other:
            equal(table(other, "SELECT current_schema() AS s")["s"].to_pylist(), ["main"])

        def missing():
            conn.adbc_current_db_schema = "missing"

        fails(flightsql.Error, missing)
        cur.execute("DROP SCHEMA current")


@check("what the driver does not send, the server cannot have")
def _():
    with cursor() as cur:
        nothing = pa.table({"i": pa.array([], pa.int64())})
        error = fails(flightsql.Error, lambda: cur.adbc_ingest("nothing", nothing, mode="create"))
        return f"an ingest without rows: {str(error).split(' (')[0]}"


@check("an error names its kind, and the connection works on")
def _():
    with cursor() as cur:
        wrong = {
            "SELEC 1": flightsql.ProgrammingError,
            "SELECT * FROM missing": flightsql.ProgrammingError,
            "SELECT 'x'::INTEGER": flightsql.Error,
        }
        seen = []
        for sql, kind in wrong.items():
            error = fails(flightsql.Error, lambda: table(cur, sql))
            seen.append(type(error).__name__)
            equal(table(cur, "SELECT 1 AS x")["x"].to_pylist(), [1])
            if not isinstance(error, kind):
                raise AssertionError(f"{sql} raises {type(error).__name__}: {error}")
        return ", ".join(seen) + "; Flight SQL has no field for SQLSTATE"


@check("a cancel from another thread stops the statement at once")
def _():
    with cursor() as cur:
        timer = threading.Timer(0.5, cur.adbc_cancel)
        began = time.monotonic()
        timer.start()
        error = fails(flightsql.Error, lambda: table(
            cur, "SELECT count(*) FROM range(1000000) a(x), range(1000000) b(y) WHERE (x * y) % 7 = 3"))
        took = time.monotonic() - began
        timer.join()
        equal(error.status_code, adbc_driver_manager.AdbcStatusCode.CANCELLED)
        if took > 2:
            raise AssertionError(f"the cancel took {took - 0.5:.1f} s")
        began = time.monotonic()
        equal(table(cur, "SELECT 1 AS x")["x"].to_pylist(), [1])
        return f"{(took - 0.5) * 1000:.0f} ms, the next statement {(time.monotonic() - began) * 1000:.0f} ms"


@check("a deadline stops the statement")
def _():
    options = {"adbc.flight.sql.rpc.timeout_seconds.fetch": "0.5"}
    with cursor(conn_kwargs=options) as cur:
        began = time.monotonic()
        error = fails(flightsql.Error, lambda: table(
            cur, "SELECT count(*) FROM range(1000000) a(x), range(1000000) b(y) WHERE (x * y) % 7 = 3"))
        if time.monotonic() - began > 3:
            raise AssertionError(f"it took {time.monotonic() - began:.1f} s")
        equal(error.status_code, adbc_driver_manager.AdbcStatusCode.TIMEOUT)
        equal(table(cur, "SELECT 1 AS x")["x"].to_pylist(), [1])


@check("a result that is left half read costs nothing")
def _():
    with cursor() as cur:
        for _ in range(5):
            cur.execute("SELECT * FROM range(100000000) t(i)")
            next(iter(cur.fetch_record_batch()))
        equal(table(cur, "SELECT 1 AS x")["x"].to_pylist(), [1])


@check("many connections at once")
def _():
    faults = []

    def work(n):
        try:
            with cursor() as cur:
                for _ in range(20):
                    equal(table(cur, f"SELECT {n} + count(*) AS n FROM airports")["n"][0].as_py(), n + 3376)
        except Exception as e:  # told to the main thread
            faults.append(e)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if faults:
        raise faults[0]
    return "16 connections, 320 queries"


def main():
    holds = True
    for name, run in CHECKS:
        try:
            result = {"check": name, "ok": True, "note": run() or ""}
        except Exception as e:
            holds = False
            result = {"check": name, "ok": False, "note": f"{type(e).__name__}: {e}"}
        print(json.dumps(result, ensure_ascii=False), flush=True)
    sys.exit(0 if holds else 1)


main()
