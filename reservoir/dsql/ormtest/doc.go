// Package ormtest has no code of its own: its tests show which rules of Aurora DSQL
// concern sqlx, sqlc, gorm, bun and goose, and that these work on package dsql
// then, on a PostgreSQL behind dsqlgate. It is a module so that nobody else gets
// their dependencies.
package ormtest
