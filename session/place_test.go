package session

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

// A bulk load is an INSERT with parameters, of which some servers take the table
// alone, and stay at its catalogue.
func TestABulkLoadLeavesTheSessionWhereItWas(t *testing.T) {
	const insert = "INSERT INTO lake2.t VALUES (?)"
	const path = "SELECT current_database(), current_schema(), current_setting('search_path')"
	const place = "SELECT current_database(), current_schema()"
	for name, tc := range map[string]struct {
		conn   func(c *stateConn)
		stays  bool                                 // the server leaves the session where it was
		before func(t *testing.T, s *SessionHandle) // what the session does before
		sql    string
		fails  bool
		looks  int    // how often the place is asked for, with the closing of the handle
		lost   string // why the connection is discarded, if it is
	}{
		"moves":                              {looks: 3},
		"stays":                              {stays: true, looks: 2},
		"has no search path":                 {conn: func(c *stateConn) { c.pathless = true }, looks: 4},
		"tells of no place":                  {conn: func(c *stateConn) { c.blind = true }, stays: true, looks: 3},
		"fails":                              {sql: "INSERT INTO bad.t VALUES (?)", fails: true, looks: 3},
		"is not put back":                    {conn: func(c *stateConn) { c.stubborn = "search_path" }, looks: 5, lost: "is not what it was"},
		"after USE":                          {before: exec("USE other"), looks: 6},
		"cannot be asked afterwards":         {conn: func(c *stateConn) { c.failOnce = map[string][]error{path: {nil, sqlError("no")}} }, looks: 2, lost: "no"},
		"in a transaction, never asked":      {before: begin, stays: true, looks: 1},
		"in a transaction, asked by another": {before: func(t *testing.T, s *SessionHandle) { s.policy.answeredQueries.add(searchPathQuery.key); begin(t, s) }, looks: 3},
		"in a transaction, without a path": {conn: func(c *stateConn) { c.pathless = true }, before: func(t *testing.T, s *SessionHandle) {
			s.policy.answeredQueries.add(namespaceQuery.key)
			begin(t, s)
		}, looks: 3},
		"in a transaction, known not to tell": {conn: func(c *stateConn) { c.blind = true }, stays: true, before: func(t *testing.T, s *SessionHandle) {
			s.policy.nonMovingInserts.add(namespaceUnsupported)
			begin(t, s)
		}},
		"in a transaction of a server that tells nothing": {conn: func(c *stateConn) { c.blind = true }, stays: true, before: begin, looks: 3},
		"in a transaction of a server to be proven":       {conn: func(c *stateConn) { c.forgives = true }, before: begin, looks: 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newStateConn()
				if tc.conn != nil {
					tc.conn(c)
				}
				if !tc.stays {
					c.useParams = func() { c.settings["search_path"] = "lake2.main" }
				}
				r := stateRig(t, c)
				home := "lake.main"
				if tc.before != nil {
					tc.before(t, r.handle)
					home = c.settings["search_path"]
				}
				sql := insert
				if tc.sql != "" {
					sql = tc.sql
				}
				batch := int64Batch(1)
				defer batch.Release()
				_, err := r.handle.UpdateWithRecordBatch(t.Context(), sql, batch)
				require.Equal(t, tc.fails, err != nil, "%s: %v", name, err)
				if !tc.fails && tc.lost == "" {
					require.Equal(t, home, c.settings["search_path"], name)
				}
				synctest.Wait()
				_ = r.handle.Close()
				synctest.Wait()
				looks := 0
				for _, sql := range c.Log() {
					if slices.Contains([]string{path, place, "tx1: " + path, "tx1: " + place}, sql) {
						looks++
					}
				}
				require.Equal(t, tc.looks, looks, "%s: %q", name, c.Log())
				if tc.lost != "" {
					require.ErrorContains(t, r.discarded(), tc.lost, name)
					return
				}
				r.reused()
				require.Equal(t, "lake.main", c.settings["search_path"], name)
			})
		})
	}
}

func begin(t *testing.T, s *SessionHandle) { must(t, s.BeginTransaction(t.Context())) }

func exec(sql string) func(t *testing.T, s *SessionHandle) {
	return func(t *testing.T, s *SessionHandle) {
		_, err := s.Update(t.Context(), sql)
		must(t, err)
	}
}

// What was found out holds for every later session of the pool.
func TestAServerThatLeavesTheSessionWhereItWasIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStateConn()
		r := stateRig(t, c)
		batch := int64Batch(1)
		defer batch.Release()
		counts := []int{}
		for _, sql := range []string{"INSERT INTO t VALUES (?)", "INSERT INTO t VALUES (?)", "INSERT INTO t VALUES (?)", "INSERT INTO other.t VALUES (?)", "UPDATE t SET a = ?"} {
			before := len(c.Log())
			_, err := r.handle.UpdateWithRecordBatch(t.Context(), sql, batch)
			must(t, err)
			synctest.Wait()
			counts = append(counts, len(c.Log())-before)
		}
		require.Equal(t, []int{5, 8, 3, 5, 3}, counts, "what the first seems to say is proven by the second: %q", c.Log())
		must(t, r.handle.Close())
		r.reused()
	})
}

// int64Batch is a batch of one column.
func int64Batch(values ...int64) arrow.RecordBatch {
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	b.AppendValues(values, nil)
	column := b.NewArray()
	defer column.Release()
	return array.NewRecordBatch(fakeSchema, []arrow.Array{column}, int64(len(values)))
}

// The look after a bulk load may abort the transaction, of which some servers
// confirm the COMMIT then and store nothing.
func TestALookThatFailsAfterABulkLoadAbortsTheTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStateConn()
		c.failOnce = map[string][]error{"tx1: " + searchPathQuery.sql: {nil, sqlError("no")}}
		r := stateRig(t, c)
		r.policy.answeredQueries.add(searchPathQuery.key)
		must(t, r.handle.BeginTransaction(t.Context()))
		batch := int64Batch(1)
		defer batch.Release()
		_, err := r.handle.UpdateWithRecordBatch(t.Context(), "INSERT INTO lake2.t VALUES (?)", batch)
		must(t, err)
		require.ErrorIs(t, r.handle.Commit(t.Context()), backend.ErrTxAborted)
		require.NotContains(t, c.Log(), "Commit")
		_ = r.handle.Close()
		require.ErrorContains(t, r.discarded(), "no")
	})
}

// Spark's current_database() is the schema, so that another catalogue does not show by it (Sail).
func TestAServerWhoseDatabaseIsTheSchemaIsAskedForTheCatalogue(t *testing.T) {
	for name, run := range map[string]func(t *testing.T, s *SessionHandle){
		"USE": exec("USE lake2.main"),
		"a bulk load": func(t *testing.T, s *SessionHandle) {
			batch := int64Batch(1)
			defer batch.Release()
			_, err := s.UpdateWithRecordBatch(t.Context(), "INSERT INTO lake2.t VALUES (?)", batch)
			must(t, err)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newStateConn()
			c.pathless, c.namesake = true, true
			c.useParams = func() { c.settings["search_path"] = "lake2.main" }
			r := stateRig(t, c)
			run(t, r.handle)
			must(t, r.handle.Close())
			synctest.Wait()
			r.reused()
			require.Equal(t, "lake.main", c.settings["search_path"], name)
		})
	}
}

// One that cannot tell the catalogue has the connection closed behind a USE.
func TestADatabaseThatIsTheSchemaProvesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStateConn()
		c.pathless, c.namesake = true, true
		r := stateRig(t, c)
		c.fail = map[string]error{"SELECT current_catalog(), current_schema()": sqlError("no such function")}
		exec("USE lake2.main")(t, r.handle)
		require.ErrorContains(t, r.handle.Close(), "could not tell it before")
		require.Error(t, r.discarded())
	})
}

// A schema may have its database's name: what is compared may be equal.
func TestASessionIsLedBackFromASchemaOfItsDatabasesName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStateConn()
		c.pathless = true
		r := stateRig(t, c)
		exec("USE lake2.lake2")(t, r.handle)
		must(t, r.handle.Close())
		r.reused()
		require.Equal(t, "lake.main", c.settings["search_path"])
	})
}

// What has told two names once tells the catalogue, also where both are equal.
func TestASchemaOfItsDatabasesNameIsAPlaceOfAServerThatTellsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStateConn()
		c.pathless = true
		c.settings["search_path"] = "same.same"
		r := stateRig(t, c)
		r.policy.answeredQueries.add(namespaceQuery.key)
		must(t, r.handle.BeginTransaction(t.Context()))
		batch := int64Batch(1)
		defer batch.Release()
		_, err := r.handle.UpdateWithRecordBatch(t.Context(), "INSERT INTO lake2.t VALUES (?)", batch)
		must(t, err)
		must(t, r.handle.Commit(t.Context()))
		must(t, r.handle.Close())
		r.reused()
	})
}
