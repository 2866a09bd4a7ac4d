// Package script is a database in Go alone for package testserver: real
// transactions, temporary tables and settings behind a small SQL, and answers
// of a test's own for everything else. Its whole state is in memory, and it runs
// in testing/synctest bubbles. The comment of Engine lists the SQL, and On is for the rest.
package script
