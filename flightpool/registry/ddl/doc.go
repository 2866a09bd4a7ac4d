// Package ddl reads the statements by which SQL/MED defines servers and their users:
// CREATE, ALTER and DROP SERVER, and CREATE, ALTER and DROP USER MAPPING.
//
// It knows text and makes statements of it; what an option means, and whether a
// server exists, it does not know. Registry.Apply of package registry carries them out.
package ddl
