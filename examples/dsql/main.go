// Command dsql uses an Aurora DSQL cluster through database/sql and through pgx,
// both on one reservoir; the queries for pgx are as sqlc writes them. Without
// CLUSTER_ENDPOINT it starts a stand-in on this machine; with it, it uses your
// cluster and the credentials of your account, and a table dsql_example of its own.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/jackc/pgx/v5"

	"github.com/flightpool/flightpool/examples/dsql/accounts"
	"github.com/flightpool/flightpool/reservoir/dsql"
	"github.com/flightpool/flightpool/testserver/dsqlgate"
	"github.com/flightpool/flightpool/testserver/localdeps"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) (err error) {
	cfg, err := dsql.ConfigFromEnv()
	if err != nil {
		return err
	}
	cfg.OnDemand = false // keep connections ready even without DSQL_RESERVOIR_ENABLED
	if cfg.Host == "" {
		stop, err := standIn(ctx, &cfg)
		if err != nil {
			return err
		}
		defer stop()
	}

	// One cluster for the whole process; every pool is a view of it.
	cluster, err := dsql.NewCluster(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		err = errors.Join(err, cluster.Close(closing))
	}()
	ready, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := cluster.WaitReady(ready, 0); err != nil {
		return err
	}
	fmt.Fprintf(out, "ready: %d connections\n", cluster.Stats().Reservoir.Idle)

	db, err := cluster.OpenDB(dsql.View{Reserve: 1})
	if err != nil {
		return err
	}
	if err := withDatabaseSQL(ctx, db, out); err != nil {
		return err
	}
	pool, err := cluster.NewPool(dsql.View{})
	if err != nil {
		return err
	}
	return errors.Join(withPgx(ctx, pool, out), db.Close(), pool.Close(ctx))
}

// withDatabaseSQL moves money; RetryOCC runs the transaction again when another
// one was faster.
func withDatabaseSQL(ctx context.Context, db *sql.DB, out io.Writer) error {
	for _, statement := range []string{
		"create table if not exists dsql_example (owner text primary key, amount int not null)",
		"delete from dsql_example",
		"insert into dsql_example values ('ann', 100), ('bob', 0)",
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	runs := 0
	err := dsql.RetryOCC(ctx, func(ctx context.Context) error {
		runs++
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() // after Commit there is nothing to roll back
		for owner, change := range map[string]int{"ann": -30, "bob": 30} {
			if _, err := tx.ExecContext(ctx, "update dsql_example set amount = amount + $1 where owner = $2", change, owner); err != nil {
				return err
			}
		}
		return tx.Commit()
	})
	fmt.Fprintf(out, "database/sql: moved 30 in %d run(s)\n", runs)
	return err
}

// withPgx runs what sqlc wrote: on the pool, and in a transaction that runs again
// after a conflict.
func withPgx(ctx context.Context, pool *dsql.Pool, out io.Writer) error {
	queries := accounts.New(pool)
	if _, err := queries.CreateAccounts(ctx, []accounts.Account{{Owner: "cas", Amount: 5}}); err != nil {
		return err
	}
	err := pool.InTx(ctx, func(tx pgx.Tx) error {
		return queries.WithTx(tx).Add(ctx, []accounts.Account{{Owner: "ann", Amount: -20}, {Owner: "cas", Amount: 20}})
	})
	if err != nil {
		return err
	}
	cas, err := queries.GetAccount(ctx, "cas")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "pgx: %s has %d\n", cas.Owner, cas.Amount)
	all, err := queries.ListAccounts(ctx)
	if err != nil {
		return err
	}
	deleted, err := queries.DeleteAccounts(ctx)
	fmt.Fprintf(out, "pgx: %v, %d deleted\n", all, deleted)
	return err
}

// standIn starts PostgreSQL behind a gateway that behaves as DSQL does, and
// makes the first commit lose a conflict.
func standIn(ctx context.Context, cfg *dsql.Config) (stop func(), err error) {
	postgres, err := localdeps.StartPostgres(ctx, localdeps.PostgresOptions{})
	if err != nil {
		return nil, err
	}
	gate, err := dsqlgate.Start(ctx, dsqlgate.Options{
		Upstream: postgres.DSN(), Credentials: []dsqlgate.Credential{{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "secret"}},
	})
	if err != nil {
		postgres.Close()
		return nil, err
	}
	gate.FailCommits(1, "OC000")
	cfg.Host, cfg.TLS, cfg.Dial = gate.Host(), gate.ClientTLS(), gate.Dial
	cfg.Credentials = credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", "")
	return func() {
		_ = gate.Close() // the example is over
		postgres.Close()
	}, nil
}
