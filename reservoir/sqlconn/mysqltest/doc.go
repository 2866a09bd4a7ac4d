// Package mysqltest runs sqlconn and the registry against a real MariaDB, over
// github.com/go-sql-driver/mysql. It holds tests only, and is a module of its own
// so that nobody else depends on that driver.
package mysqltest
