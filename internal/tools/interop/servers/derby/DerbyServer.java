import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.arrow.flight.FlightServer;
import org.apache.arrow.flight.Location;
import org.apache.arrow.flight.sql.example.FlightSqlExample;
import org.apache.arrow.memory.RootAllocator;

/** Arrow's Flight SQL example on Derby: DerbyServer HOST PORT FOLDER. */
public class DerbyServer {
  public static void main(String[] args) throws Exception {
    Location location = Location.forGrpcInsecure(args[0], Integer.parseInt(args[1]));
    String db = Path.of(args[2]).resolve("derbyDB").toString();
    System.setProperty("derby.stream.error.file", Path.of(args[2]).resolve("derby.log").toString());
    try (RootAllocator allocator = new RootAllocator();
        FlightSqlExample producer = new FlightSqlExample(location, db);
        FlightServer server = FlightServer.builder(allocator, location, producer).build()) {
      server.start();
      System.out.println("listening");
      server.awaitTermination();
    }
  }
}
