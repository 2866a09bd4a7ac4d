// Package backendtest is the conformance suite of backend.Conn: what the pool
// and the session handles rely on, whatever the backend and the server.
//
// A backend's own tests call Exercise with a Suite, once for each kind of
// server that it talks to:
//
//	backendtest.Exercise(t, backendtest.Suite{
//		Has:   backendtest.Features{Transactions: true},
//		SQL:   backendtest.SQL{Rows: ..., Empty: ..., Invalid: ...},
//		Start: func(t *testing.T) backendtest.Server { ... },
//	})
//
// Features tell what the server can do. A case that needs what the server
// lacks gives way to one that checks how the lack is reported: as
// FaultUnsupported, with the connection as good as before.
package backendtest
