package adbcpool

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

const manyBatches = "SELECT * FROM generate(30, 10)"

// exec stores a value.
func (s *endsPlay) exec(ctx context.Context, on sqlOn) error {
	text, v := s.insertSQL()
	err := s.call("Exec", func() error { _, err := on.ExecContext(ctx, text); return err })
	s.said[v] = err
	return err
}

// readSQL reads all of a result's rows, or some.
func (s *endsPlay) readSQL(ctx context.Context, on sqlOn, upTo int) error {
	return s.call("Query", func() error {
		rows, err := on.QueryContext(ctx, manyBatches)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		n := 0
		for n != upTo && rows.Next() {
			n++
		}
		if err := rows.Err(); err != nil {
			return err
		}
		if n != upTo && n != 30 {
			s.wrong("%d rows of 30", n)
		}
		return rows.Close()
	})
}

type sqlBegins interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// sqlTx does what f does in a transaction.
func (s *endsPlay) sqlTx(ctx context.Context, on sqlBegins, f func(tx *sql.Tx) error) error {
	return s.together(func() error {
		var tx *sql.Tx
		err := s.call("BeginTx", func() (err error) { tx, err = on.BeginTx(ctx, nil); return err })
		if err != nil {
			return err
		}
		if err := f(tx); err != nil {
			_ = s.call("Rollback", tx.Rollback)
			return err
		}
		return s.call("Commit", tx.Commit)
	})
}

// onConn does what f does on a *sql.Conn.
func (s *endsPlay) onConn(ctx context.Context, f func(cn *sql.Conn) error) error {
	var cn *sql.Conn
	err := s.call("Conn", func() (err error) { cn, err = s.db.Conn(ctx); return err })
	if err != nil {
		return err
	}
	s.conn = cn.Close
	defer func() { _ = cn.Close() }()
	return f(cn)
}

// goOn stores a value with a fresh context, after which err is what was before.
func (s *endsPlay) goOn(cn *sql.Conn, err error) error {
	text, v := s.insertSQL()
	_, next := cn.ExecContext(s.fresh, text)
	s.said[v] = next
	switch {
	case next == nil, !s.c.endsContext(), errors.Is(next, driver.ErrBadConn), errors.Is(next, sql.ErrConnDone), errors.Is(next, flightpool.ErrSessionLost):
	case errors.Is(next, context.Canceled), errors.Is(next, context.DeadlineExceeded): // the transaction's, until database/sql has closed the connection
	default:
		s.wrong("goes on with: %v, after %v", next, err)
	}
	return err
}

var endsSteps = map[string]endsStep{
	"sql exec": func(ctx context.Context, s *endsPlay) error { return s.exec(ctx, s.db) },
	"sql arguments": func(ctx context.Context, s *endsPlay) error {
		s.next++
		v := s.next
		err := s.call("Exec", func() error {
			_, err := s.db.ExecContext(ctx, "INSERT INTO memory.t VALUES (?)", v)
			return err
		})
		s.said[v] = err
		return err
	},
	"sql query":        func(ctx context.Context, s *endsPlay) error { return s.readSQL(ctx, s.db, -1) },
	"sql query closed": func(ctx context.Context, s *endsPlay) error { return s.readSQL(ctx, s.db, 3) },
	"sql row": func(ctx context.Context, s *endsPlay) error {
		return s.call("QueryRow", func() error {
			var got int
			err := s.db.QueryRowContext(ctx, "SELECT ? AS a", 7).Scan(&got)
			if err == nil && got != 7 {
				s.wrong("%d for 7", got)
			}
			return err
		})
	},
	"sql returning": func(ctx context.Context, s *endsPlay) error {
		if s.server.Profile().Run == testserver.RunInBoth {
			return nil // twice, as the package says of New
		}
		text, v := s.insertSQL()
		err := s.call("QueryRow", func() error {
			var k int
			return s.db.QueryRowContext(ctx, text+" RETURNING v").Scan(&k)
		})
		s.said[v] = err
		return err
	},
	"sql ping": func(ctx context.Context, s *endsPlay) error {
		return s.call("Ping", func() error { return s.db.PingContext(ctx) })
	},
	"sql types": func(ctx context.Context, s *endsPlay) error {
		return s.call("ColumnTypes", func() error {
			rows, err := s.db.QueryContext(ctx, manyBatches)
			if err != nil {
				return err
			}
			defer func() { _ = rows.Close() }()
			types, err := rows.ColumnTypes()
			if err != nil {
				return err
			}
			for _, c := range types {
				_, _ = c.Nullable()
				_, _, _ = c.DecimalSize()
				_ = c.ScanType().String() + c.DatabaseTypeName()
			}
			_ = rows.Next()
			return rows.Err()
		})
	},
	"sql statement": func(ctx context.Context, s *endsPlay) error {
		text, v := s.insertSQL()
		var stmt *sql.Stmt
		err := s.call("Prepare", func() (err error) { stmt, err = s.db.PrepareContext(ctx, text); return err })
		if err == nil {
			err = s.call("Stmt.Exec", func() error { _, err := stmt.ExecContext(ctx); return err })
			_ = s.call("Stmt.Close", stmt.Close)
		}
		s.said[v] = err
		return err
	},
	"sql statement again": func(ctx context.Context, s *endsPlay) error {
		var stmt *sql.Stmt
		err := s.call("Prepare", func() (err error) { stmt, err = s.db.PrepareContext(ctx, "SELECT ? AS a"); return err })
		if err != nil {
			return err
		}
		defer func() { _ = s.call("Stmt.Close", stmt.Close) }()
		for i := range 3 {
			err = s.call("Stmt.QueryRow", func() error {
				var got int
				err := stmt.QueryRowContext(ctx, i).Scan(&got)
				if err == nil && got != i {
					s.wrong("%d for %d", got, i)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	},
	"sql tx": func(ctx context.Context, s *endsPlay) error {
		return s.sqlTx(ctx, s.db, func(tx *sql.Tx) error {
			if err := s.exec(ctx, tx); err != nil {
				return err
			}
			if err := s.readSQL(ctx, tx, 3); err != nil {
				return err
			}
			return s.exec(context.Background(), tx)
		})
	},
	"sql tx with rows open": func(ctx context.Context, s *endsPlay) error {
		return s.sqlTx(ctx, s.db, func(tx *sql.Tx) error {
			if err := s.exec(ctx, tx); err != nil {
				return err
			}
			return s.call("Query", func() error {
				rows, err := tx.QueryContext(s.fresh, manyBatches) //nolint:sqlclosecheck // that is the use
				if err == nil {
					rows.Next()
					err = rows.Err()
				}
				return err
			})
		})
	},
	"sql tx with statements": func(ctx context.Context, s *endsPlay) error {
		text, v := s.insertSQL()
		s.said[v] = errNothing
		outside, err := s.db.PrepareContext(ctx, text)
		if err != nil {
			return err
		}
		defer func() { _ = outside.Close() }()
		s.next--
		return s.sqlTx(ctx, s.db, func(tx *sql.Tx) error {
			s.next++
			if err := s.call("Tx.Stmt", func() error { _, err := tx.StmtContext(ctx, outside).ExecContext(ctx); return err }); err != nil {
				return err
			}
			text, _ := s.insertSQL()
			return s.call("Tx.Prepare", func() error {
				inside, err := tx.PrepareContext(ctx, text)
				if err != nil {
					return err
				}
				_, err = inside.Exec()
				return err
			})
		})
	},
	"sql tx rolled back": func(ctx context.Context, s *endsPlay) error {
		var err error
		first := s.next + 1
		_ = s.sqlTx(ctx, s.db, func(tx *sql.Tx) error {
			if err = s.exec(ctx, tx); err != nil {
				return err
			}
			rolled := s.call("Rollback", tx.Rollback)
			if rolled == nil || !errors.Is(rolled, flightpool.ErrCommitUnknown) {
				rolled = errNothing
			}
			return rolled
		})
		for v := first; v <= s.next; v++ {
			if s.said[v] == nil {
				s.said[v] = errNothing
			}
		}
		return err
	},
	"sql conn": func(ctx context.Context, s *endsPlay) error {
		return s.onConn(ctx, func(cn *sql.Conn) error {
			for _, text := range []string{"SET colour = 'red'", "CREATE TEMP TABLE mine (i BIGINT)", "USE other"} {
				if err := s.call(text, func() error { _, err := cn.ExecContext(ctx, text); return err }); err != nil {
					return s.goOn(cn, err)
				}
			}
			if err := s.exec(ctx, cn); err != nil {
				return s.goOn(cn, err)
			}
			return s.goOn(cn, s.readSQL(ctx, cn, 3))
		})
	},
	"sql conn with tx": func(ctx context.Context, s *endsPlay) error {
		return s.onConn(ctx, func(cn *sql.Conn) error {
			return s.goOn(cn, s.sqlTx(ctx, cn, func(tx *sql.Tx) error {
				if err := s.exec(ctx, tx); err != nil {
					return err
				}
				if err := s.call("SET", func() error { _, err := tx.ExecContext(ctx, "SET colour = 'red'"); return err }); err != nil {
					return err
				}
				return s.exec(ctx, tx)
			}))
		})
	},
	"sql conn with statement": func(ctx context.Context, s *endsPlay) error {
		return s.onConn(ctx, func(cn *sql.Conn) error {
			text, v := s.insertSQL()
			err := s.call("Prepare", func() error {
				stmt, err := cn.PrepareContext(ctx, text)
				if err == nil {
					_, err = stmt.ExecContext(ctx)
					_ = stmt.Close()
				}
				return err
			})
			s.said[v] = err
			return s.goOn(cn, err)
		})
	},
	"sql raw": func(ctx context.Context, s *endsPlay) error {
		return s.onConn(ctx, func(cn *sql.Conn) error {
			text, v := s.insertSQL()
			err := s.call("Raw", func() error {
				return cn.Raw(func(dc any) error {
					_, err := dc.(driver.ExecerContext).ExecContext(ctx, text, nil)
					return err
				})
			})
			s.said[v] = err
			return s.goOn(cn, err)
		})
	},
	"sql raw rows": func(ctx context.Context, s *endsPlay) error {
		return s.onConn(ctx, func(cn *sql.Conn) error {
			return s.goOn(cn, s.call("Raw", func() error {
				return cn.Raw(func(dc any) error {
					for _, upTo := range []int{30, 3, 30} {
						rows, err := dc.(driver.QueryerContext).QueryContext(ctx, manyBatches, nil)
						if err != nil {
							return err
						}
						n, to := 0, make([]driver.Value, len(rows.Columns()))
						for err == nil && n != upTo {
							if err = rows.Next(to); err == nil {
								n++
							}
						}
						if errors.Is(err, io.EOF) {
							err = nil
						}
						if err == nil && n != upTo {
							s.wrong("%d rows of %d", n, upTo)
						}
						if err := errors.Join(err, rows.Close()); err != nil {
							return err
						}
					}
					return nil
				})
			}))
		})
	},
	"sql raw tx": func(ctx context.Context, s *endsPlay) error {
		return s.onConn(ctx, func(cn *sql.Conn) error {
			return s.goOn(cn, s.together(func() error {
				return s.call("Raw", func() error {
					return cn.Raw(func(dc any) error {
						tx, err := dc.(driver.ConnBeginTx).BeginTx(ctx, driver.TxOptions{})
						if err != nil {
							return err
						}
						text, v := s.insertSQL()
						_, err = dc.(driver.ExecerContext).ExecContext(s.fresh, text, nil)
						if s.said[v] = err; err != nil {
							_ = tx.Rollback()
							return err
						}
						return tx.Commit()
					})
				})
			}))
		})
	},
	"sql raw tx rolled back": func(ctx context.Context, s *endsPlay) error {
		return s.onConn(ctx, func(cn *sql.Conn) error {
			var err error
			_ = s.together(func() error {
				err = s.call("Raw", func() error {
					return cn.Raw(func(dc any) error {
						tx, err := dc.(driver.ConnBeginTx).BeginTx(ctx, driver.TxOptions{})
						if err != nil {
							return err
						}
						text, v := s.insertSQL()
						_, err = dc.(driver.ExecerContext).ExecContext(ctx, text, nil)
						s.said[v] = err
						return errors.Join(err, tx.Rollback())
					})
				})
				if errors.Is(err, flightpool.ErrCommitUnknown) {
					return err
				}
				return errNothing
			})
			return s.goOn(cn, err)
		})
	},

	"adbc update": func(ctx context.Context, s *endsPlay) error {
		return s.onADBC(ctx, func(cn adbc.Connection) error { return s.updateADBC(ctx, cn) })
	},
	"adbc query": func(ctx context.Context, s *endsPlay) error {
		return s.onADBC(ctx, func(cn adbc.Connection) error { return s.readADBC(ctx, cn, true) })
	},
	"adbc query released": func(ctx context.Context, s *endsPlay) error {
		return s.onADBC(ctx, func(cn adbc.Connection) error { return s.readADBC(ctx, cn, false) })
	},
	"adbc prepared": func(ctx context.Context, s *endsPlay) error {
		return s.onADBC(ctx, func(cn adbc.Connection) error {
			return s.withStatement(cn, "INSERT INTO memory.t VALUES (?)", func(stmt adbc.Statement) error {
				if err := s.call("Prepare", func() error { return stmt.Prepare(ctx) }); err != nil {
					return err
				}
				return s.alike(func() error {
					s.next += 2
					batch := int64s(int64(s.next-1), int64(s.next))
					defer batch.Release()
					if err := s.call("Bind", func() error { return stmt.Bind(ctx, batch) }); err != nil {
						return err
					}
					return s.call("ExecuteUpdate", func() error { _, err := stmt.ExecuteUpdate(ctx); return err })
				})
			})
		})
	},
	"adbc prepared stream": func(ctx context.Context, s *endsPlay) error {
		return s.onADBC(ctx, func(cn adbc.Connection) error {
			return s.withStatement(cn, "SELECT ? AS a", func(stmt adbc.Statement) error {
				if err := s.call("Prepare", func() error { return stmt.Prepare(ctx) }); err != nil {
					return err
				}
				batch := int64s(7)
				defer batch.Release()
				rows, err := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch})
				if err != nil {
					return err
				}
				defer rows.Release()
				if err := s.call("BindStream", func() error { return stmt.BindStream(ctx, rows) }); err != nil {
					return err
				}
				return s.call("ExecuteQuery", func() error {
					got, err := textOf(stmt.ExecuteQuery(ctx))
					if err == nil && got != "7" {
						s.wrong("%s for 7", got)
					}
					return err
				})
			})
		})
	},
	"adbc again": func(ctx context.Context, s *endsPlay) error {
		return s.onADBC(ctx, func(cn adbc.Connection) error {
			return s.withStatement(cn, manyBatches, func(stmt adbc.Statement) error {
				for range 3 {
					err := s.call("ExecuteQuery", func() error {
						rows, _, err := stmt.ExecuteQuery(ctx)
						if err != nil {
							return err
						}
						s.Cleanup(rows.Release) // the next execution ends it
						rows.Next()
						return rows.Err()
					})
					if err != nil {
						return err
					}
				}
				return nil
			})
		})
	},
	"adbc ingest": func(ctx context.Context, s *endsPlay) error {
		return s.onADBC(ctx, func(cn adbc.Connection) error {
			return s.withStatement(cn, "", func(stmt adbc.Statement) error {
				for key, value := range map[string]string{
					adbc.OptionKeyIngestTargetTable: "t", adbc.OptionValueIngestTargetCatalog: "memory", adbc.OptionValueIngestTargetDBSchema: "main",
					adbc.OptionKeyIngestMode: adbc.OptionValueIngestModeAppend,
				} {
					if err := stmt.SetOption(key, value); err != nil {
						return err
					}
				}
				return s.alike(func() error {
					s.next += 2
					batch := int64s(int64(s.next-1), int64(s.next))
					defer batch.Release()
					if err := stmt.Bind(ctx, batch); err != nil {
						return err
					}
					return s.call("ExecuteUpdate", func() error { _, err := stmt.ExecuteUpdate(ctx); return err })
				})
			})
		})
	},
	"adbc schema": func(ctx context.Context, s *endsPlay) error {
		return s.onADBC(ctx, func(cn adbc.Connection) error {
			return s.withStatement(cn, manyBatches, func(stmt adbc.Statement) error {
				return s.call("ExecuteSchema", func() error {
					_, err := stmt.(adbc.StatementExecuteSchema).ExecuteSchema(ctx)
					return err
				})
			})
		})
	},
	"adbc catalogue": func(ctx context.Context, s *endsPlay) error {
		return s.onADBC(ctx, func(cn adbc.Connection) error {
			for what, ask := range map[string]func() error{
				"GetInfo":       func() error { _, err := textOf2(cn.GetInfo(ctx, nil)); return err },
				"GetTableTypes": func() error { _, err := textOf2(cn.GetTableTypes(ctx)); return err },
				"GetObjects": func() error {
					_, err := textOf2(cn.GetObjects(ctx, adbc.ObjectDepthTables, nil, nil, nil, nil, nil))
					return err
				},
			} {
				if err := s.call(what, ask); err != nil {
					return err
				}
			}
			return nil
		})
	},
	"adbc tx": func(ctx context.Context, s *endsPlay) error {
		return s.onADBC(ctx, func(cn adbc.Connection) error { return s.txADBC(ctx, cn, "commit") })
	},
	"adbc tx goes on": func(ctx context.Context, s *endsPlay) error {
		return s.onADBC(ctx, func(cn adbc.Connection) error {
			err := s.txADBC(ctx, cn, "commit")
			s.fresher = true
			_ = cn.Rollback(s.fresh) // where that of before was not sent
			if next := s.txADBC(s.fresh, cn, "commit"); next != nil && s.c.endsContext() && !s.mayFail(next) && !errors.Is(next, flightpool.ErrSessionLost) {
				s.wrong("goes on with: %v, after %v", next, err)
			}
			return err
		})
	},
	"adbc tx rolled back": func(ctx context.Context, s *endsPlay) error {
		return s.onADBC(ctx, func(cn adbc.Connection) error { return s.txADBC(ctx, cn, "rollback") })
	},
	"adbc settings": func(ctx context.Context, s *endsPlay) error {
		return s.onADBC(ctx, func(cn adbc.Connection) error {
			for _, text := range []string{"SET colour = 'red'", "CREATE TEMP TABLE mine (i BIGINT)", "USE other"} {
				err := s.withStatement(cn, text, func(stmt adbc.Statement) error {
					return s.call(text, func() error { _, err := stmt.ExecuteUpdate(ctx); return err })
				})
				if err != nil {
					return err
				}
			}
			return s.updateADBC(ctx, cn)
		})
	},
}

func int64s(values ...int64) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "k", Type: arrow.PrimitiveTypes.Int64}}, nil))
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues(values, nil)
	return b.NewRecordBatch()
}

func textOf(rows array.RecordReader, _ int64, err error) (string, error) { return textOf2(rows, err) }

func textOf2(rows array.RecordReader, err error) (got string, _ error) {
	if err != nil {
		return "", err
	}
	defer rows.Release()
	for rows.Next() {
		if batch := rows.RecordBatch(); batch.NumRows() > 0 && batch.NumCols() > 0 {
			got = fmt.Sprint(batch.Column(0).ValueStr(0))
		}
	}
	return got, rows.Err()
}

// onADBC does what f does on a connection.
func (s *endsPlay) onADBC(ctx context.Context, f func(cn adbc.Connection) error) error {
	var cn adbc.Connection
	err := s.call("Open", func() (err error) { cn, err = Database(s.pool).Open(ctx); return err })
	if err != nil {
		return err
	}
	defer func() { _ = cn.Close() }()
	return f(cn)
}

func (s *endsPlay) withStatement(cn adbc.Connection, text string, f func(stmt adbc.Statement) error) error {
	stmt, err := cn.NewStatement()
	if err != nil {
		return err
	}
	defer func() { _ = stmt.Close() }()
	if text != "" {
		if err := stmt.SetSqlQuery(text); err != nil {
			return err
		}
	}
	return f(stmt)
}

func (s *endsPlay) updateADBC(ctx context.Context, cn adbc.Connection) error {
	text, v := s.insertSQL()
	err := s.withStatement(cn, text, func(stmt adbc.Statement) error {
		return s.call("ExecuteUpdate", func() error { _, err := stmt.ExecuteUpdate(ctx); return err })
	})
	s.said[v] = err
	return err
}

func (s *endsPlay) readADBC(ctx context.Context, cn adbc.Connection, whole bool) error {
	return s.withStatement(cn, manyBatches, func(stmt adbc.Statement) error {
		var rows array.RecordReader
		err := s.call("ExecuteQuery", func() (err error) { rows, _, err = stmt.ExecuteQuery(ctx); return err })
		if err != nil {
			return err
		}
		defer rows.Release()
		n := int64(0)
		return s.call("Next", func() error {
			for rows.Next() {
				if n += rows.RecordBatch().NumRows(); !whole {
					return nil
				}
			}
			if rows.Err() == nil && n != 30 {
				s.wrong("%d rows of 30", n)
			}
			return rows.Err()
		})
	})
}

// txADBC is a transaction, which is ended as end says.
func (s *endsPlay) txADBC(ctx context.Context, cn adbc.Connection, end string) error {
	if err := cn.(adbc.PostInitOptions).SetOption(adbc.OptionKeyAutoCommit, adbc.OptionValueDisabled); err != nil {
		return err
	}
	var err error
	told := s.together(func() error {
		if err = s.updateADBC(ctx, cn); err == nil {
			if err = s.readADBC(ctx, cn, false); err == nil {
				err = s.updateADBC(ctx, cn)
			}
		}
		if err != nil || end == "rollback" {
			rolled := s.call("Rollback", func() error { return cn.Rollback(ctx) })
			if err == nil {
				err = rolled
			}
			if rolled != nil && errors.Is(rolled, flightpool.ErrCommitUnknown) {
				return rolled
			}
			return errNothing
		}
		err = s.call("Commit", func() error { return cn.Commit(ctx) })
		return err
	})
	_ = told
	return err
}
