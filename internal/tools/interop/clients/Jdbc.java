import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.Date;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;
import java.util.Timer;
import java.util.TimerTask;

/**
 * Apache's JDBC driver for Flight SQL as a foreign client of the DuckDB server. Takes the server's host and port;
 * prints one line of JSON for each check: its name, whether it holds, and a note.
 */
public class Jdbc {
  static final String ENDLESS =
      "SELECT count(*) FROM range(1000000) a(x), range(1000000) b(y) WHERE (x * y) % 7 = 3";
  static Connection conn;
  static boolean holds = true;

  interface Check {
    String run() throws Exception;
  }

  static void check(String name, Check check) {
    String note;
    boolean ok = false;
    try {
      note = check.run();
      ok = true;
    } catch (Throwable e) {
      holds = false;
      note = e.toString();
    }
    System.out.println("{\"check\": " + quoted(name) + ", \"ok\": " + ok + ", \"note\": " + quoted(note) + "}");
  }

  static String quoted(String s) {
    return '"' + s.replace("\\", "\\\\").replace("\"", "\\\"").replaceAll("\\s+", " ") + '"';
  }

  static void equal(Object got, Object want) {
    if (!got.equals(want)) {
      throw new AssertionError("got " + got + ", want " + want);
    }
  }

  static SQLException fails(Check check) throws Exception {
    try {
      check.run();
    } catch (SQLException e) {
      return e;
    }
    throw new AssertionError("no SQLException was thrown");
  }

  /** The rows of a query, as text. */
  static List<String> rows(ResultSet r) throws SQLException {
    List<String> all = new ArrayList<>();
    while (r.next()) {
      StringBuilder row = new StringBuilder();
      for (int i = 1; i <= r.getMetaData().getColumnCount(); i++) {
        row.append(i > 1 ? "|" : "").append(r.getString(i));
      }
      all.add(row.toString());
    }
    return all;
  }

  static List<String> query(String sql) throws SQLException {
    try (Statement s = conn.createStatement(); ResultSet r = s.executeQuery(sql)) {
      return rows(r);
    }
  }

  public static void main(String[] args) throws Exception {
    conn = DriverManager.getConnection("jdbc:arrow-flight-sql://" + args[0] + "?useEncryption=false");
    check("connects, and says what it is", Jdbc::identity);
    check("queries", Jdbc::queries);
    check("metadata: tables, columns, table types", Jdbc::metadata);
    check("changes and their counts", Jdbc::changes);
    check("a prepared statement with parameters", Jdbc::prepared);
    check("a large result comes whole", Jdbc::large);
    check("an error leaves the connection usable", Jdbc::errors);
    check("a cancel from another thread returns at once", Jdbc::cancel);
    check("transactions: the driver has none, and commits all at once", Jdbc::transactions);
    conn.close();
    System.exit(holds ? 0 : 1);
  }

  static String identity() throws SQLException {
    DatabaseMetaData m = conn.getMetaData();
    equal(m.getDatabaseProductName(), "DuckDB");
    return m.getDatabaseProductName() + " " + m.getDatabaseProductVersion() + ", " + m.getDriverName() + " " + m.getDriverVersion();
  }

  static String queries() throws SQLException {
    equal(query("SELECT count(*) FROM flights"), List.of("750000"));
    equal(query("SELECT iata, city FROM airports WHERE iata IN ('SEA', 'BOS') ORDER BY iata"), List.of("BOS|Boston", "SEA|Seattle"));
    equal(query("SELECT 12.34::DECIMAL(9,2), NULL::INTEGER, DATE '2001-02-03', 'zoë'"), List.of("12.34|null|2001-02-03|zoë"));
    return "";
  }

  static String metadata() throws SQLException {
    DatabaseMetaData m = conn.getMetaData();
    List<String> columns = new ArrayList<>();
    try (ResultSet r = m.getColumns(null, null, "airports", "%")) {
      while (r.next()) {
        columns.add(r.getString("COLUMN_NAME"));
      }
    }
    equal(columns.subList(0, 3), List.of("iata", "name", "city"));
    try (ResultSet r = m.getTables(null, null, "air%", null)) {
      equal(r.next() && r.getString("TABLE_NAME").equals("airports"), true);
    }
    try (ResultSet r = m.getTableTypes()) {
      return "table types " + String.join(", ", rows(r));
    }
  }

  static String changes() throws SQLException {
    try (Statement s = conn.createStatement()) {
      s.executeUpdate("CREATE OR REPLACE TABLE changed AS SELECT * FROM range(10) t(i)");
      equal(s.executeUpdate("UPDATE changed SET i = i + 1 WHERE i < 4"), 4);
      equal(s.executeUpdate("DROP TABLE changed"), 0);
    }
    return "";
  }

  static String prepared() throws SQLException {
    try (PreparedStatement p = conn.prepareStatement("SELECT ?::BIGINT + 1, ?::VARCHAR || '!', ?::DATE")) {
      p.setLong(1, 41);
      p.setString(2, "zoë");
      p.setDate(3, Date.valueOf("2001-02-03"));
      try (ResultSet r = p.executeQuery()) {
        equal(rows(r), List.of("42|zoë!|2001-02-03"));
      }
    }
    try (Statement s = conn.createStatement()) {
      s.executeUpdate("CREATE OR REPLACE TABLE bound (i BIGINT, s VARCHAR)");
    }
    try (PreparedStatement p = conn.prepareStatement("INSERT INTO bound VALUES (?, ?)")) {
      for (long i = 0; i < 3; i++) {
        p.setLong(1, i);
        p.setString(2, "row " + i);
        p.addBatch();
      }
      p.executeBatch();
    }
    equal(query("SELECT count(*), max(s) FROM bound"), List.of("3|row 2"));
    return "";
  }

  static String large() throws SQLException {
    try (Statement s = conn.createStatement(); ResultSet r = s.executeQuery("SELECT i FROM range(2000000) t(i)")) {
      long rows = 0;
      long sum = 0;
      for (; r.next(); rows++) {
        sum += r.getLong(1);
      }
      equal(sum, 1999999L * 1000000L);
      return rows + " rows";
    }
  }

  static String errors() throws Exception {
    SQLException e = fails(() -> query("SELECT * FROM missing").toString());
    equal(query("SELECT 1"), List.of("1"));
    equal(e.getMessage().contains("missing"), true);
    return "SQLSTATE " + e.getSQLState();
  }

  static String cancel() throws Exception {
    try (Statement s = conn.createStatement()) {
      Timer timer = new Timer(true);
      timer.schedule(new TimerTask() {
        @Override
        public void run() {
          try {
            s.cancel();
          } catch (SQLException e) {
            System.err.println(e);
          }
        }
      }, 1000);
      long began = System.nanoTime();
      SQLException e = fails(() -> rows(s.executeQuery(ENDLESS)).toString());
      long took = (System.nanoTime() - began) / 1_000_000;
      equal(query("SELECT 1"), List.of("1"));
      equal(took < 5000, true);
      return (took - 1000) + " ms: " + e.getMessage();
    }
  }

  /** The driver takes setAutoCommit(false), and neither begins nor ends a transaction. */
  static String transactions() throws Exception {
    try (Statement s = conn.createStatement()) {
      s.executeUpdate("CREATE OR REPLACE TABLE kept (i BIGINT)");
      conn.setAutoCommit(false);
      s.executeUpdate("INSERT INTO kept VALUES (1)");
      String says = "rollback is accepted";
      try {
        conn.rollback();
      } catch (SQLException e) {
        says = "rollback says: " + e.getMessage();
      }
      conn.setAutoCommit(true);
      equal(query("SELECT count(*) FROM kept"), List.of("1"));
      return says;
    }
  }
}
