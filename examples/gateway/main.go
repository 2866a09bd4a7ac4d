// Command gateway keeps connections to three real servers for two users: a DuckDB
// over Flight SQL, a PostgreSQL and a MariaDB, as gateway.sql defines them. While
// both users work on all three, it kills one, shows that calls to it fail fast
// with the reason and the others notice nothing, and starts it again. Its
// statistics are tables that any Flight SQL client can query; it does so itself.
//
//	gateway [-rounds 1] [-span 1.5s] [-postgres host:port] [-mariadb host:port]
//
// It checks what it shows; the last line is "gateway: ok", or "gateway: FAILED"
// with the reason and exit status 1. Servers whose address is given are used as
// they are, and not killed; they need the users app and report of gateway.sql.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"github.com/flightpool/flightpool/flightpool/registry"
)

//go:embed gateway.sql
var definitions string

type options struct {
	rounds            int
	span              time.Duration // of a phase under load
	postgres, mariadb string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.IntVar(&o.rounds, "rounds", 1, "how many times a server is killed, in turn")
	flag.DurationVar(&o.span, "span", 1500*time.Millisecond, "how long each phase is watched")
	flag.StringVar(&o.postgres, "postgres", "", "host:port of a PostgreSQL (default: one is started)")
	flag.StringVar(&o.mariadb, "mariadb", "", "host:port of a MariaDB (default: one is started)")
	flag.Parse()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Println("gateway: FAILED:", err)
		os.Exit(1)
	}
	fmt.Println("gateway: ok")
}

// gateway is what the acts share.
type gateway struct {
	options
	out      io.Writer
	registry *registry.Registry
	servers  map[string]remote
	health   chan bool // what turned, of the server that is killed
	load     *load
	figures  figures
}

func run(ctx context.Context, o options, out io.Writer) (err error) {
	_ = mysql.SetLogger(&mysql.NopLogger{}) // it would tell of the server that is killed
	g := &gateway{options: o, out: out, health: make(chan bool, 16)}
	g.registry, err = registry.NewWith(registry.Config{Health: func(_ string, down *registry.UnhealthyError) { g.health <- down == nil }})
	if err != nil {
		return err
	}
	began := time.Now()
	g.servers, err = startAll(ctx, o, func(name string) (arrow.RecordBatch, error) { return g.registry.Table(name, nil) })
	defer func() {
		for _, s := range g.servers {
			s.close()
		}
	}()
	if err != nil {
		return errors.Join(err, g.registry.Close(ctx))
	}
	for _, name := range []string{"duck", "pg", "maria"} {
		fmt.Fprintf(out, "%s: %s\n", name, g.servers[name].addr())
	}
	fmt.Fprintf(out, "three servers after %s\n", rounded(time.Since(began)))
	return errors.Join(g.acts(ctx), g.settled(context.WithoutCancel(ctx)))
}

// acts is what the gateway does while its servers run.
func (g *gateway) acts(ctx context.Context) error {
	values, err := places(g.servers)
	if err != nil {
		return err
	}
	if err := g.registry.ApplyDDL(ctx, os.Expand(definitions, func(name string) string { return values[name] })); err != nil {
		return err
	}
	g.load = startLoad(ctx, g.registry)
	defer g.load.end()
	victims := g.victims()
	for round := range g.rounds {
		if len(victims) == 0 {
			break
		}
		victim := victims[round%len(victims)]
		if err := g.round(ctx, victim, round == 0); err != nil {
			return fmt.Errorf("round %d, %s: %w", round+1, victim, err)
		}
	}
	g.figures.print(g.out)
	return nil
}

// victims are the servers that can be killed. MariaDB is first: the statistics
// are on DuckDB.
func (g *gateway) victims() []string {
	return slices.DeleteFunc([]string{"maria", "pg", "duck"}, func(name string) bool {
		_, elsewhere := g.servers[name].(given)
		return elsewhere
	})
}

// settled closes the registry and checks that no connection is left, by the count
// of the servers.
func (g *gateway) settled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := g.registry.Close(ctx); err != nil {
		return err
	}
	for name, s := range g.servers {
		if err := until(ctx, s, func(n int) bool { return n == 0 }); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	fmt.Fprintln(g.out, "closed: no connection is left on any server, by its own count")
	return nil
}

// until waits for a server to have as many connections of the gateway's as it should.
func until(ctx context.Context, s remote, should func(n int) bool) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		n, err := s.connections(ctx)
		if err == nil && should(n) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("the server has %d connections, by its own count", n), err, ctx.Err())
		}
	}
}

func rounded(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
