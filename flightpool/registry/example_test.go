package registry_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/testserver"
)

func Example() {
	ctx := context.Background()
	server, err := testserver.Start(testserver.Options{Users: map[string]string{"reports": "secret"}}) // yours runs elsewhere
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	host, port, err := net.SplitHostPort(server.Addr())
	if err != nil {
		log.Fatal(err)
	}

	r := registry.New()
	defer r.Close(ctx)
	err = r.ApplyDDL(ctx, fmt.Sprintf(`
		CREATE SERVER lake FOREIGN DATA WRAPPER flight_sql OPTIONS (host '%s', port '%s', max_connections '8');
		CREATE USER MAPPING FOR ann SERVER lake OPTIONS (user 'reports', password 'secret')`, host, port))
	if err != nil {
		log.Fatal(err)
	}
	n, err := flightpool.CollectOneRow[int64](r.Query(ctx, "lake", "ann", "SELECT 42"))
	fmt.Println(n, err)
	_, err = r.Query(ctx, "lake", "bob", "SELECT 42")
	fmt.Println(err != nil) // bob has no mapping
	// Output:
	// 42 <nil>
	// true
}
