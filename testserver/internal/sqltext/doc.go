// Package sqltext takes SQL apart as the test servers need it: into statements,
// tokens and parameters.
package sqltext
