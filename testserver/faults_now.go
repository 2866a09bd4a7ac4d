package testserver

// What can be made to happen now, rather than when a call comes by.

// KillConns resets every open connection and returns how many there were.
func (f *Faults) KillConns() int {
	return f.each(func(c *serverConn) { c.Cut() })
}

// FreezeConns makes every open connection a black hole: its calls get no
// answer and its end is not noticed. It returns how many there were.
func (f *Faults) FreezeConns() int {
	return f.each(func(c *serverConn) { c.Freeze() })
}

// ThawConns ends FreezeConns; what was held back arrives.
func (f *Faults) ThawConns() int {
	return f.each(func(c *serverConn) { c.Thaw() })
}

// GoAway tells every connection to take no new calls; each closes when its
// calls are done. It returns how many there were.
func (f *Faults) GoAway() int { return f.each((*serverConn).goAway) }

func (f *Faults) each(do func(*serverConn)) int {
	all := f.srv.openConns()
	for _, c := range all {
		do(c)
	}
	return len(all)
}

// EvictSessions ends every session with all it holds, as expiry does: its
// client is not told, and its next RPC gets a new and empty session. What runs
// in it runs to its end. It returns how many there were.
func (f *Faults) EvictSessions() int { return f.srv.sessions.evictAll() }

// LimitSessions changes Profile.MaxSessions; zero is no bound. Sessions that
// exist live on.
func (f *Faults) LimitSessions(n int) { f.srv.sessions.setLimit(n) }

// ExpireTokens makes every bearer token invalid. Calls answer UNAUTHENTICATED
// until the client makes a handshake. It returns how many there were.
func (f *Faults) ExpireTokens() int { return f.srv.auth.expireAll() }

// ExpireToken makes one bearer token invalid and reports whether it was valid.
func (f *Faults) ExpireToken(token string) bool { return f.srv.auth.expire(token) }
